/* SPDX-License-Identifier: MIT
 *
 * parse_expression.c: expressions, from the weakest binding to the strongest:
 *
 *     a if b else c   or   and   not   == < in ...   + -   ~   * / // %   **   - +   . [] ()   | is
 *
 * jinja2's order, in which `~` binds stronger than `+`, and filters stronger than any operator.
 */
#include "chat/filters.h"
#include "chat/parser.h"
#include "chat/tests.h"
#include "chat/text.h"

static pleat_status parse_or(pleat__parser *p, pleat__node **out);
static pleat_status parse_unary(pleat__parser *p, bool with_filters, pleat__node **out);

static bool is_op(const pleat__parser *p, const char *op) { return pleat__next_is(p, PLEAT__T_OP, op); }
static bool is_name(const pleat__parser *p, const char *name) { return pleat__next_is(p, PLEAT__T_NAME, name); }
static bool skip_op(pleat__parser *p, const char *op) { return pleat__skip(p, PLEAT__T_OP, op); }
static bool skip_name(pleat__parser *p, const char *name) { return pleat__skip(p, PLEAT__T_NAME, name); }

/* ---- atoms ------------------------------------------------------------------------------------------------------- */

static pleat_status parse_list(pleat__parser *p, pleat__node **out) {
    pleat__chain items = {0};
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_LIST, out));
    p->t++;
    while (!is_op(p, "]")) {
        pleat__node *item;
        if (items.first) PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ","));
        if (is_op(p, "]")) break;
        PLEAT_TRY(pleat__parse_expression(p, &item));
        pleat__chain_add(&items, item);
    }
    (*out)->a = items.first;
    return pleat__expect(p, PLEAT__T_OP, "]");
}

static pleat_status parse_dict(pleat__parser *p, pleat__node **out) {
    pleat__chain items = {0};
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_DICT, out));
    p->t++;
    while (!is_op(p, "}")) {
        pleat__node *key, *value;
        if (items.first) PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ","));
        if (is_op(p, "}")) break;
        PLEAT_TRY(pleat__parse_expression(p, &key));
        PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ":"));
        PLEAT_TRY(pleat__parse_expression(p, &value));
        pleat__chain_add(&items, key);
        pleat__chain_add(&items, value);
    }
    (*out)->a = items.first;
    return pleat__expect(p, PLEAT__T_OP, "}");
}

/* Names that have a meaning of their own. */
static bool constant_of(pleat__value name, pleat__value *out) {
    if (pleat__is_text(name, "true") || pleat__is_text(name, "True"))
        *out = pleat__value_bool(true);
    else if (pleat__is_text(name, "false") || pleat__is_text(name, "False"))
        *out = pleat__value_bool(false);
    else if (pleat__is_text(name, "none") || pleat__is_text(name, "None"))
        *out = PLEAT__NONE;
    else
        return false;
    return true;
}

static pleat_status parse_name(pleat__parser *p, pleat__node **out) {
    pleat__value constant;
    const bool is_constant = constant_of(p->t->value, &constant);
    PLEAT_TRY(pleat__node_new(p, is_constant ? PLEAT__N_CONST : PLEAT__N_NAME, out));
    (*out)->value = is_constant ? constant : p->t->value;
    if (pleat__is_text(p->t->value, "caller")) p->uses |= PLEAT__USES_CALLER;
    if (pleat__is_text(p->t->value, "varargs")) p->uses |= PLEAT__USES_VARARGS;
    if (pleat__is_text(p->t->value, "kwargs")) p->uses |= PLEAT__USES_KWARGS;
    p->t++;
    return PLEAT_OK;
}

/* Strings that stand side by side are one. */
static pleat_status parse_string(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_CONST, out));
    (*out)->value = p->t->value;
    p->t++;
    if (p->t->kind != PLEAT__T_STRING) return PLEAT_OK;
    pleat__builder b = {0};
    PLEAT_TRY(pleat__put(p->vm, &b, (*out)->value.s, (*out)->value.n));
    for (; p->t->kind == PLEAT__T_STRING; p->t++) PLEAT_TRY(pleat__put(p->vm, &b, p->t->value.s, p->t->value.n));
    (*out)->value = pleat__built(&b);
    return PLEAT_OK;
}

static pleat_status parse_primary(pleat__parser *p, pleat__node **out) {
    if (p->t->kind == PLEAT__T_NAME) return parse_name(p, out);
    if (p->t->kind == PLEAT__T_STRING) return parse_string(p, out);
    if (p->t->kind == PLEAT__T_NUMBER) {
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_CONST, out));
        (*out)->value = p->t->value;
        p->t++;
        return PLEAT_OK;
    }
    if (is_op(p, "[")) return parse_list(p, out);
    if (is_op(p, "{")) return parse_dict(p, out);
    if (!skip_op(p, "(")) return pleat__parse_error(p, "an expression");
    PLEAT_TRY(pleat__parse_tuple(p, PLEAT__TUPLE_EMPTY, out));
    return pleat__expect(p, PLEAT__T_OP, ")");
}

/* ---- behind an atom: . [] () | is -------------------------------------------------------------------------------- */

static pleat_status parse_arg(pleat__parser *p, pleat__arg *kind, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_ARG, out));
    if (skip_op(p, "*")) {
        *kind = PLEAT__ARG_LIST;
    } else if (skip_op(p, "**")) {
        *kind = PLEAT__ARG_DICT;
    } else if (p->t->kind == PLEAT__T_NAME && p->t[1].kind == PLEAT__T_OP && pleat__is_text(p->t[1].value, "=")) {
        *kind = PLEAT__ARG_KEYWORD;
        (*out)->value = p->t->value;
        p->t += 2;
    } else {
        *kind = PLEAT__ARG_PLAIN;
    }
    (*out)->op = (uint8_t)*kind;
    return pleat__parse_expression(p, &(*out)->a);
}

/* "(...)": plain arguments first, then keywords; one *list, one **dict, in that order. */
static pleat_status parse_args(pleat__parser *p, pleat__node **out) {
    pleat__chain args = {0};
    bool seen[4] = {false};
    PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, "("));
    while (!is_op(p, ")")) {
        pleat__node *arg;
        pleat__arg kind;
        if (args.first) PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ","));
        if (args.first && is_op(p, ")")) break;
        PLEAT_TRY(parse_arg(p, &kind, &arg));
        bool is_late = seen[PLEAT__ARG_DICT];
        if (kind == PLEAT__ARG_LIST) is_late = is_late || seen[PLEAT__ARG_LIST];
        if (kind == PLEAT__ARG_PLAIN) is_late = is_late || seen[PLEAT__ARG_LIST] || seen[PLEAT__ARG_KEYWORD];
        if (is_late) return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "a call's arguments are in the wrong order");
        seen[kind] = true;
        pleat__chain_add(&args, arg);
    }
    *out = args.first;
    return pleat__expect(p, PLEAT__T_OP, ")");
}

static pleat_status parse_call(pleat__parser *p, pleat__node *node, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_CALL, out));
    (*out)->a = node;
    return parse_args(p, &(*out)->b);
}

static bool ends_slice_part(const pleat__parser *p) { return is_op(p, ":") || is_op(p, "]") || is_op(p, ","); }

/* "[...]": an item or a slice.  Several with commas between would index a tuple, which no value has. */
static pleat_status parse_brackets(pleat__parser *p, pleat__node *node, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_ITEM, out));
    (*out)->a = node;
    p->t++;
    if (!is_op(p, ":")) PLEAT_TRY(pleat__parse_expression(p, &(*out)->b));
    if (is_op(p, ":")) {
        (*out)->kind = PLEAT__N_SLICE;
        p->t++;
        if (!ends_slice_part(p)) PLEAT_TRY(pleat__parse_expression(p, &(*out)->c));
        if (skip_op(p, ":") && !ends_slice_part(p)) PLEAT_TRY(pleat__parse_expression(p, &(*out)->d));
    }
    if (is_op(p, ",")) return pleat__vm_fail(p->vm, PLEAT_E_UNSUPPORTED, "a tuple between [ and ] is not supported");
    return pleat__expect(p, PLEAT__T_OP, "]");
}

static pleat_status parse_dot(pleat__parser *p, pleat__node *node, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_ATTR, out));
    (*out)->a = node;
    p->t++;
    if (p->t->kind == PLEAT__T_NAME) {
        (*out)->value = p->t->value;
    } else if (p->t->kind == PLEAT__T_NUMBER && p->t->value.kind == PLEAT__V_INT) {
        (*out)->kind = PLEAT__N_ITEM;
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_CONST, &(*out)->b));
        (*out)->b->value = p->t->value;
    } else {
        return pleat__parse_error(p, "a name or number");
    }
    p->t++;
    return PLEAT_OK;
}

static pleat_status parse_postfix(pleat__parser *p, pleat__node *node, pleat__node **out) {
    for (;;) {
        if (is_op(p, "."))
            PLEAT_TRY(parse_dot(p, node, &node));
        else if (is_op(p, "["))
            PLEAT_TRY(parse_brackets(p, node, &node));
        else if (is_op(p, "("))
            PLEAT_TRY(parse_call(p, node, &node));
        else
            break;
    }
    *out = node;
    return PLEAT_OK;
}

/* A filter's or test's name, which may have dots. */
static pleat_status parse_dotted(pleat__parser *p, pleat__value *out) {
    *out = p->t->value;
    PLEAT_TRY(pleat__expect(p, PLEAT__T_NAME, NULL));
    while (skip_op(p, ".")) {
        pleat__builder b = {0};
        PLEAT_TRY(pleat__put(p->vm, &b, out->s, out->n));
        PLEAT_TRY(pleat__put_text(p->vm, &b, "."));
        PLEAT_TRY(pleat__put(p->vm, &b, p->t->value.s, p->t->value.n));
        *out = pleat__built(&b);
        PLEAT_TRY(pleat__expect(p, PLEAT__T_NAME, NULL));
    }
    return PLEAT_OK;
}

/* jinja2 refuses a name that it does not know at once, but in branches only when they are run. */
static pleat_status check_known(pleat__parser *p, const pleat__node *node, bool is_left_out) {
    if (is_left_out) {
        return pleat__vm_fail(p->vm, PLEAT_E_UNSUPPORTED, "the %s '%.*s' is not supported",
                              node->kind == PLEAT__N_FILTER ? "filter" : "test", (int)node->value.n, node->value.s);
    }
    if (node->id < 0 && !p->is_soft && !p->unknown) p->unknown = node;
    return PLEAT_OK;
}

pleat_status pleat__parse_filters(pleat__parser *p, pleat__node *node, bool is_inline, pleat__node **out) {
    while (is_inline || is_op(p, "|")) {
        pleat__node *filter;
        if (!is_inline) p->t++;
        is_inline = false;
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_FILTER, &filter));
        PLEAT_TRY(parse_dotted(p, &filter->value));
        filter->id = (int16_t)pleat__filter_find(filter->value);
        PLEAT_TRY(check_known(p, filter, pleat__filter_is_left_out(filter->value)));
        if (is_op(p, "(")) PLEAT_TRY(parse_args(p, &filter->b));
        filter->a = node;
        node = filter;
    }
    *out = node;
    return PLEAT_OK;
}

/* Whether what follows a test's name is its argument, as in `is divisibleby 3`. */
static bool is_test_argument(const pleat__parser *p) {
    if (p->t->kind == PLEAT__T_NAME) return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    return p->t->kind == PLEAT__T_STRING || p->t->kind == PLEAT__T_NUMBER || is_op(p, "[") || is_op(p, "{");
}

static pleat_status parse_test(pleat__parser *p, pleat__node *node, pleat__node **out) {
    pleat__node *test, *negation = NULL;
    p->t++;
    if (is_name(p, "not")) {
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_NOT, &negation));
        p->t++;
    }
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_TEST, &test));
    PLEAT_TRY(parse_dotted(p, &test->value));
    test->id = (int16_t)pleat__test_find(test->value);
    test->a = node;
    PLEAT_TRY(check_known(p, test, false));
    if (is_op(p, "(")) {
        PLEAT_TRY(parse_args(p, &test->b));
    } else if (is_test_argument(p)) {
        if (is_name(p, "is")) return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "tests cannot be chained with 'is'");
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_ARG, &test->b));
        PLEAT_TRY(parse_primary(p, &test->b->a));
        PLEAT_TRY(parse_postfix(p, test->b->a, &test->b->a));
    }
    if (negation) negation->a = test;
    *out = negation ? negation : test;
    return PLEAT_OK;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static pleat_status parse_filter_tail(pleat__parser *p, pleat__node *node, pleat__node **out) {
    for (;;) {
        if (is_op(p, "|"))
            PLEAT_TRY(pleat__parse_filters(p, node, false, &node));
        else if (is_name(p, "is"))
            PLEAT_TRY(parse_test(p, node, &node));
        else if (is_op(p, "("))
            PLEAT_TRY(parse_call(p, node, &node));
        else
            break;
    }
    *out = node;
    return PLEAT_OK;
}

static pleat_status parse_sign(pleat__parser *p, pleat__node_kind kind, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, kind, out));
    p->t++;
    PLEAT_TRY(pleat__vm_enter(p->vm));
    PLEAT_TRY(parse_unary(p, false, &(*out)->a));
    pleat__vm_leave(p->vm);
    return PLEAT_OK;
}

static pleat_status parse_unary(pleat__parser *p, bool with_filters, pleat__node **out) {
    if (is_op(p, "-"))
        PLEAT_TRY(parse_sign(p, PLEAT__N_NEG, out));
    else if (is_op(p, "+"))
        PLEAT_TRY(parse_sign(p, PLEAT__N_POS, out));
    else
        PLEAT_TRY(parse_primary(p, out));
    PLEAT_TRY(parse_postfix(p, *out, out));
    return with_filters ? parse_filter_tail(p, *out, out) : PLEAT_OK;
}

static pleat_status parse_operand(pleat__parser *p, pleat__node **out) { return parse_unary(p, true, out); }

typedef pleat_status (*parse_fn)(pleat__parser *p, pleat__node **out);

/* Operators of one strength, from left to right. */
typedef struct level {
    const char *text[4];
    pleat__op op[4];
} level;

static pleat_status parse_binary(pleat__parser *p, const level *ops, parse_fn next, pleat__node **out) {
    PLEAT_TRY(next(p, out));
    for (;;) {
        unsigned i = 0;
        while (i < 4 && !(ops->text[i] && is_op(p, ops->text[i]))) i++;
        if (i == 4) return PLEAT_OK;
        pleat__node *node;
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_BINARY, &node));
        p->t++;
        node->op = (uint8_t)ops->op[i];
        node->a = *out;
        PLEAT_TRY(next(p, &node->b));
        *out = node;
    }
}

static pleat_status parse_power(pleat__parser *p, pleat__node **out) {
    static const level powers = {{"**"}, {PLEAT__OP_POW}};
    return parse_binary(p, &powers, parse_operand, out);
}

static pleat_status parse_product(pleat__parser *p, pleat__node **out) {
    static const level products = {{"*", "/", "//", "%"},
                                   {PLEAT__OP_MUL, PLEAT__OP_DIV, PLEAT__OP_FLOORDIV, PLEAT__OP_MOD}};
    return parse_binary(p, &products, parse_power, out);
}

static pleat_status parse_concat(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(parse_product(p, out));
    if (!is_op(p, "~")) return PLEAT_OK;
    pleat__chain operands = {0};
    pleat__node *node, *operand = *out;
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_CONCAT, &node));
    pleat__chain_add(&operands, operand);
    while (skip_op(p, "~")) {
        PLEAT_TRY(parse_product(p, &operand));
        pleat__chain_add(&operands, operand);
    }
    node->a = operands.first;
    *out = node;
    return PLEAT_OK;
}

static pleat_status parse_sum(pleat__parser *p, pleat__node **out) {
    static const level sums = {{"+", "-"}, {PLEAT__OP_ADD, PLEAT__OP_SUB}};
    return parse_binary(p, &sums, parse_concat, out);
}

static bool skip_comparison(pleat__parser *p, uint8_t *op) {
    static const struct {
        const char *text;
        pleat__op op;
    } all[] = {{"==", PLEAT__OP_EQ}, {"!=", PLEAT__OP_NE}, {"<", PLEAT__OP_LT},
               {"<=", PLEAT__OP_LE}, {">", PLEAT__OP_GT},  {">=", PLEAT__OP_GE}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *op = (uint8_t)all[i].op;
        if (skip_op(p, all[i].text)) return true;
    }
    *op = PLEAT__OP_IN;
    if (skip_name(p, "in")) return true;
    *op = PLEAT__OP_NOT_IN;
    if (!is_name(p, "not") || p->t[1].kind != PLEAT__T_NAME || !pleat__is_text(p->t[1].value, "in")) return false;
    p->t += 2;
    return true;
}

static pleat_status parse_compare(pleat__parser *p, pleat__node **out) {
    pleat__chain operands = {0};
    uint8_t op;
    PLEAT_TRY(parse_sum(p, out));
    while (skip_comparison(p, &op)) {
        pleat__node *operand;
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_OPERAND, &operand));
        operand->op = op;
        PLEAT_TRY(parse_sum(p, &operand->a));
        pleat__chain_add(&operands, operand);
    }
    if (!operands.first) return PLEAT_OK;
    pleat__node *node;
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_COMPARE, &node));
    node->line = operands.first->line;
    node->a = *out;
    node->b = operands.first;
    *out = node;
    return PLEAT_OK;
}

static pleat_status parse_not(pleat__parser *p, pleat__node **out) {
    if (!is_name(p, "not")) return parse_compare(p, out);
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_NOT, out));
    p->t++;
    PLEAT_TRY(pleat__vm_enter(p->vm));
    PLEAT_TRY(parse_not(p, &(*out)->a));
    pleat__vm_leave(p->vm);
    return PLEAT_OK;
}

static pleat_status parse_logic(pleat__parser *p, const char *word, pleat__node_kind kind, parse_fn next,
                                pleat__node **out) {
    PLEAT_TRY(next(p, out));
    while (is_name(p, word)) {
        pleat__node *node;
        PLEAT_TRY(pleat__node_new(p, kind, &node));
        p->t++;
        node->a = *out;
        PLEAT_TRY(next(p, &node->b));
        *out = node;
    }
    return PLEAT_OK;
}

static pleat_status parse_and(pleat__parser *p, pleat__node **out) {
    return parse_logic(p, "and", PLEAT__N_AND, parse_not, out);
}

static pleat_status parse_or(pleat__parser *p, pleat__node **out) {
    return parse_logic(p, "or", PLEAT__N_OR, parse_and, out);
}

static pleat_status parse_conditional(pleat__parser *p, pleat__node **out) {
    const pleat__node *unknown = p->unknown;
    PLEAT_TRY(parse_or(p, out));
    while (is_name(p, "if")) {
        pleat__node *node;
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_COND, &node));
        p->t++;
        p->unknown = unknown; /* what stands before the `if` is in a branch, too */
        const bool was_soft = p->is_soft;
        p->is_soft = true;
        node->a = *out;
        PLEAT_TRY(parse_or(p, &node->b));
        if (skip_name(p, "else")) PLEAT_TRY(pleat__parse_expression(p, &node->c));
        p->is_soft = was_soft;
        *out = node;
    }
    return PLEAT_OK;
}

pleat_status pleat__parse_expression(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__vm_enter(p->vm));
    PLEAT_TRY(parse_conditional(p, out));
    pleat__vm_leave(p->vm);
    return PLEAT_OK;
}

/* ---- tuples and targets ------------------------------------------------------------------------------------------ */

static bool ends_tuple(const pleat__parser *p, unsigned rules) {
    if (p->t->kind == PLEAT__T_PRINT_END || p->t->kind == PLEAT__T_BLOCK_END || is_op(p, ")")) return true;
    return ((rules & PLEAT__TUPLE_TO_IN) && is_name(p, "in")) ||
           ((rules & PLEAT__TUPLE_RECURSIVE) && is_name(p, "recursive"));
}

static pleat_status parse_tuple_of(pleat__parser *p, parse_fn item_of, unsigned rules, pleat__node **out) {
    pleat__chain items = {0};
    bool is_tuple = false;
    const pleat__token *begin = p->t;
    for (;;) {
        pleat__node *item;
        if (items.first) PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ","));
        if (ends_tuple(p, rules)) break;
        PLEAT_TRY(item_of(p, &item));
        pleat__chain_add(&items, item);
        if (!is_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && items.first) {
        *out = items.first;
        return PLEAT_OK;
    }
    if (!is_tuple && !(rules & PLEAT__TUPLE_EMPTY)) return pleat__parse_error(p, "an expression");
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_TUPLE, out));
    (*out)->line = begin->line;
    (*out)->a = items.first;
    return PLEAT_OK;
}

pleat_status pleat__parse_tuple(pleat__parser *p, unsigned rules, pleat__node **out) {
    PLEAT_TRY(pleat__vm_enter(p->vm));
    PLEAT_TRY(parse_tuple_of(p, rules & PLEAT__TUPLE_NO_COND ? parse_or : pleat__parse_expression, rules, out));
    pleat__vm_leave(p->vm);
    return PLEAT_OK;
}

/* A name, an attribute of a namespace, or a tuple of targets in parentheses. */
static pleat_status parse_target_item(pleat__parser *p, pleat__node **out) {
    if (pleat__skip(p, PLEAT__T_OP, "(")) {
        PLEAT_TRY(pleat__vm_enter(p->vm));
        PLEAT_TRY(parse_tuple_of(p, parse_target_item, PLEAT__TUPLE_EMPTY, out));
        pleat__vm_leave(p->vm);
        return pleat__expect(p, PLEAT__T_OP, ")");
    }
    pleat__value ignored;
    if (p->t->kind != PLEAT__T_NAME) return pleat__parse_error(p, "a name");
    if (constant_of(p->t->value, &ignored)) return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "a constant cannot be set");
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_NAME, out));
    (*out)->value = p->t->value;
    p->t++;
    return PLEAT_OK;
}

static pleat_status parse_ns_target_item(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(parse_target_item(p, out));
    if ((*out)->kind != PLEAT__N_NAME || !is_op(p, ".")) return PLEAT_OK;
    pleat__node *node;
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_NS_ATTR, &node));
    p->t++;
    node->b = *out;
    node->value = p->t->value;
    *out = node;
    return pleat__expect(p, PLEAT__T_NAME, NULL);
}

pleat_status pleat__parse_target(pleat__parser *p, bool with_ns, bool to_in, pleat__node **out) {
    return parse_tuple_of(p, with_ns ? parse_ns_target_item : parse_target_item, to_in ? PLEAT__TUPLE_TO_IN : 0, out);
}
