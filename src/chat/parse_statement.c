/* SPDX-License-Identifier: MIT
 *
 * parse_statement.c: the tags between {% and %}, and what stands between them.
 */
#include "chat/parser.h"

typedef pleat_status (*parse_fn)(pleat__parser *p, pleat__node **out);

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

pleat_status pleat__node_new(pleat__parser *p, pleat__node_kind kind, pleat__node **out) {
    void *node;
    PLEAT_TRY(pleat__vm_take(p->vm, sizeof(pleat__node), &node));
    p->vm->line = p->t->line;
    *out = node;
    **out = (pleat__node){.kind = (uint8_t)kind, .line = p->t->line, .value = PLEAT__NONE};
    return PLEAT_OK;
}

bool pleat__skip(pleat__parser *p, pleat__token_kind kind, const char *text) {
    if (!pleat__next_is(p, kind, text)) return false;
    p->t++;
    return true;
}

pleat_status pleat__parse_error(pleat__parser *p, const char *wanted) {
    static const char *const kinds[] = {
        [PLEAT__T_END] = "the template's end", [PLEAT__T_DATA] = "text",        [PLEAT__T_PRINT_BEGIN] = "'{{'",
        [PLEAT__T_PRINT_END] = "'}}'",         [PLEAT__T_BLOCK_BEGIN] = "'{%'", [PLEAT__T_BLOCK_END] = "'%}'"};
    p->vm->line = p->t->line;
    if (p->t->kind < PLEAT__T_NAME) {
        return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "%s is wanted, not %s", wanted, kinds[p->t->kind]);
    }
    if (p->t->kind == PLEAT__T_NUMBER)
        return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "%s is wanted, not a number", wanted);
    const int n = p->t->value.n > 60 ? 60 : (int)p->t->value.n;
    return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "%s is wanted, not '%.*s'", wanted, n, p->t->value.s);
}

pleat_status pleat__expect(pleat__parser *p, pleat__token_kind kind, const char *text) {
    static const char *const kinds[] = {[PLEAT__T_END] = "the template's end",
                                        [PLEAT__T_DATA] = "text",
                                        [PLEAT__T_PRINT_BEGIN] = "'{{'",
                                        [PLEAT__T_PRINT_END] = "'}}'",
                                        [PLEAT__T_BLOCK_BEGIN] = "'{%'",
                                        [PLEAT__T_BLOCK_END] = "'%}'",
                                        [PLEAT__T_NAME] = "a name",
                                        [PLEAT__T_STRING] = "a string",
                                        [PLEAT__T_NUMBER] = "a number",
                                        [PLEAT__T_OP] = "an operator"};
    if (p->t->kind != kind || (text && !pleat__is_text(p->t->value, text))) {
        return pleat__parse_error(p, text ? text : kinds[kind]);
    }
    p->t++;
    return PLEAT_OK;
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

static pleat_status parse_statement(pleat__parser *p, pleat__node **out);

static pleat_status parse_data(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_DATA, out));
    (*out)->value = p->t->value;
    p->t++;
    return PLEAT_OK;
}

static pleat_status parse_print(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_PRINT, out));
    p->t++;
    PLEAT_TRY(pleat__parse_tuple(p, PLEAT__TUPLE_PLAIN, &(*out)->a));
    return pleat__expect(p, PLEAT__T_PRINT_END, NULL);
}

/* Whether the tag that begins here is one of `ends`, words with blanks between. */
static bool is_end(const pleat__parser *p, const char *ends) {
    if (!ends || p->t->kind != PLEAT__T_BLOCK_BEGIN || p->t[1].kind != PLEAT__T_NAME) return false;
    const pleat__value name = p->t[1].value;
    for (const char *word = ends; *word;) {
        const size_t n = strcspn(word, " ");
        if (n == name.n && memcmp(word, name.s, n) == 0) return true;
        word += n + (word[n] == ' ');
    }
    return false;
}

/* Statements up to one of the tags `ends` (NULL: the template's end), whose name is the next token then. */
static pleat_status parse_until(pleat__parser *p, const char *ends, pleat__node **out) {
    pleat__chain body = {0};
    PLEAT_TRY(pleat__vm_enter(p->vm));
    while (p->t->kind != PLEAT__T_END && !is_end(p, ends)) {
        pleat__node *node = NULL;
        if (p->t->kind == PLEAT__T_DATA) {
            PLEAT_TRY(parse_data(p, &node));
        } else if (p->t->kind == PLEAT__T_PRINT_BEGIN) {
            PLEAT_TRY(parse_print(p, &node));
        } else {
            p->t++;
            PLEAT_TRY(parse_statement(p, &node));
            PLEAT_TRY(pleat__expect(p, PLEAT__T_BLOCK_END, NULL));
        }
        pleat__chain_add(&body, node);
        while (node->next) node = node->next; /* `print` makes several */
        body.end = &node->next;
    }
    pleat__vm_leave(p->vm);
    *out = body.first;
    if (ends && p->t->kind == PLEAT__T_END) return pleat__parse_error(p, ends);
    if (ends) p->t++;
    return PLEAT_OK;
}

/* The end of a tag and the body behind it, up to one of `ends`. */
static pleat_status parse_body(pleat__parser *p, const char *ends, pleat__node **out) {
    (void)pleat__skip(p, PLEAT__T_OP, ":");
    PLEAT_TRY(pleat__expect(p, PLEAT__T_BLOCK_END, NULL));
    return parse_until(p, ends, out);
}

/* Like parse_body(), and past the one word that ends it. */
static pleat_status parse_whole_body(pleat__parser *p, const char *end, pleat__node **out) {
    PLEAT_TRY(parse_body(p, end, out));
    p->t++;
    return PLEAT_OK;
}

/* ---- tags; each is entered at its name ----------------------------------------------------------------------------- */

static pleat_status parse_if(pleat__parser *p, pleat__node **out) {
    const bool was_soft = p->is_soft;
    p->is_soft = true;
    for (pleat__node **at = out;;) {
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_IF, at));
        p->t++;
        PLEAT_TRY(pleat__parse_tuple(p, PLEAT__TUPLE_NO_COND, &(*at)->a));
        PLEAT_TRY(parse_body(p, "elif else endif", &(*at)->c));
        (*at)->id = pleat__next_is(p, PLEAT__T_NAME, "elif");
        pleat__node **rest = &(*at)->d;
        const bool has_more = (*at)->id;
        at = rest;
        if (has_more) continue;
        if (pleat__skip(p, PLEAT__T_NAME, "else")) PLEAT_TRY(parse_body(p, "endif", at));
        break;
    }
    p->is_soft = was_soft;
    p->t++;
    return PLEAT_OK;
}

static pleat_status parse_for(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_FOR, out));
    pleat__node *node = *out;
    const bool was_soft = p->is_soft;
    p->t++;
    PLEAT_TRY(pleat__parse_target(p, false, true, &node->a));
    PLEAT_TRY(pleat__expect(p, PLEAT__T_NAME, "in"));
    PLEAT_TRY(pleat__parse_tuple(p, PLEAT__TUPLE_NO_COND | PLEAT__TUPLE_RECURSIVE, &node->b));
    p->is_soft = false; /* a loop's frame is not soft, even in a branch */
    if (pleat__skip(p, PLEAT__T_NAME, "if")) PLEAT_TRY(pleat__parse_expression(p, &node->test));
    node->id = pleat__skip(p, PLEAT__T_NAME, "recursive");
    p->n_loops++;
    PLEAT_TRY(parse_body(p, "endfor else", &node->c));
    p->n_loops--;
    if (pleat__skip(p, PLEAT__T_NAME, "else")) PLEAT_TRY(parse_body(p, "endfor", &node->d));
    p->is_soft = was_soft;
    p->t++;
    return PLEAT_OK;
}

static pleat_status parse_set(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_SET, out));
    p->t++;
    PLEAT_TRY(pleat__parse_target(p, true, false, &(*out)->a));
    if (pleat__skip(p, PLEAT__T_OP, "=")) return pleat__parse_tuple(p, PLEAT__TUPLE_PLAIN, &(*out)->b);
    (*out)->kind = PLEAT__N_SET_BODY;
    PLEAT_TRY(pleat__parse_filters(p, NULL, false, &(*out)->b));
    return parse_whole_body(p, "endset", &(*out)->c);
}

static pleat_status parse_with(pleat__parser *p, pleat__node **out) {
    pleat__chain parts = {0};
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_WITH, out));
    p->t++;
    while (p->t->kind != PLEAT__T_BLOCK_END) {
        pleat__node *target, *value;
        if (parts.first) PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ","));
        PLEAT_TRY(pleat__parse_target(p, false, false, &target));
        PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, "="));
        PLEAT_TRY(pleat__parse_expression(p, &value));
        pleat__chain_add(&parts, target);
        pleat__chain_add(&parts, value);
    }
    (*out)->a = parts.first;
    return parse_whole_body(p, "endwith", &(*out)->c);
}

/* "(a, b=1)" */
static pleat_status parse_parameters(pleat__parser *p, pleat__node **out) {
    pleat__chain params = {0};
    bool has_default = false;
    PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, "("));
    while (!pleat__next_is(p, PLEAT__T_OP, ")")) {
        pleat__node *param;
        if (params.first) PLEAT_TRY(pleat__expect(p, PLEAT__T_OP, ","));
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_PARAM, &param));
        param->value = p->t->value;
        PLEAT_TRY(pleat__expect(p, PLEAT__T_NAME, NULL));
        if (pleat__skip(p, PLEAT__T_OP, "=")) {
            has_default = true;
            PLEAT_TRY(pleat__parse_expression(p, &param->a));
        } else if (has_default) {
            return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "a parameter without a default stands behind one with it");
        }
        pleat__chain_add(&params, param);
    }
    *out = params.first;
    return pleat__expect(p, PLEAT__T_OP, ")");
}

/* The body of a macro or call block: a function of its own, whose uses of caller, varargs and kwargs are noted. */
static pleat_status parse_function(pleat__parser *p, const char *end, pleat__node *node) {
    const uint8_t uses = p->uses;
    const uint32_t n_loops = p->n_loops;
    const bool was_soft = p->is_soft;
    p->uses = 0;
    p->n_loops = 0;
    p->is_soft = false;
    PLEAT_TRY(parse_whole_body(p, end, &node->c));
    node->op = p->uses;
    p->uses |= uses;
    p->n_loops = n_loops;
    p->is_soft = was_soft;
    return PLEAT_OK;
}

static pleat_status parse_macro(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_MACRO, out));
    p->t++;
    (*out)->value = p->t->value;
    PLEAT_TRY(pleat__expect(p, PLEAT__T_NAME, NULL));
    PLEAT_TRY(parse_parameters(p, &(*out)->a));
    return parse_function(p, "endmacro", *out);
}

static pleat_status parse_call_body(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_CALL_BODY, out));
    pleat__node *node = *out;
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_MACRO, &node->a));
    node->a->value = pleat__value_text("caller");
    p->t++;
    if (pleat__next_is(p, PLEAT__T_OP, "(")) PLEAT_TRY(parse_parameters(p, &node->a->a));
    PLEAT_TRY(pleat__parse_expression(p, &node->b));
    if (node->b->kind != PLEAT__N_CALL) return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "'call' wants a call");
    return parse_function(p, "endcall", node->a);
}

static pleat_status parse_filter_body(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_FILTERED, out));
    p->t++;
    PLEAT_TRY(pleat__parse_filters(p, NULL, true, &(*out)->b));
    return parse_whole_body(p, "endfilter", &(*out)->c);
}

/* A call block to jinja2, so no loop reaches into it. */
static pleat_status parse_generation(pleat__parser *p, pleat__node **out) {
    PLEAT_TRY(pleat__node_new(p, PLEAT__N_SCOPE, out));
    p->t++;
    return parse_function(p, "endgeneration", *out);
}

/* `print a, b`, as {{ a }}{{ b }} */
static pleat_status parse_print_tag(pleat__parser *p, pleat__node **out) {
    pleat__chain parts = {0};
    p->t++;
    do {
        pleat__node *node;
        PLEAT_TRY(pleat__node_new(p, PLEAT__N_PRINT, &node));
        PLEAT_TRY(pleat__parse_expression(p, &node->a));
        pleat__chain_add(&parts, node);
    } while (pleat__skip(p, PLEAT__T_OP, ","));
    *out = parts.first;
    return PLEAT_OK;
}

static pleat_status parse_jump(pleat__parser *p, pleat__node **out) {
    const bool is_break = pleat__is_text(p->t->value, "break");
    PLEAT_TRY(pleat__node_new(p, is_break ? PLEAT__N_BREAK : PLEAT__N_CONTINUE, out));
    if (p->n_loops == 0)
        return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "'%s' outside of a loop", is_break ? "break" : "continue");
    p->t++;
    return PLEAT_OK;
}

static pleat_status parse_statement(pleat__parser *p, pleat__node **out) {
    static const struct {
        const char *name;
        parse_fn parse; /* NULL: a tag of jinja2's that is not supported */
    } tags[] = {{"if", parse_if},           {"for", parse_for},
                {"set", parse_set},         {"macro", parse_macro},
                {"call", parse_call_body},  {"filter", parse_filter_body},
                {"with", parse_with},       {"generation", parse_generation},
                {"print", parse_print_tag}, {"break", parse_jump},
                {"continue", parse_jump},   {"block", NULL},
                {"extends", NULL},          {"include", NULL},
                {"import", NULL},           {"from", NULL},
                {"autoescape", NULL}};
    p->vm->line = p->t->line;
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!pleat__next_is(p, PLEAT__T_NAME, tags[i].name)) continue;
        if (tags[i].parse) return tags[i].parse(p, out);
        return pleat__vm_fail(p->vm, PLEAT_E_UNSUPPORTED, "the tag '%s' is not supported", tags[i].name);
    }
    if (p->t->kind != PLEAT__T_NAME) return pleat__parse_error(p, "a tag's name");
    const int n = p->t->value.n > 60 ? 60 : (int)p->t->value.n;
    return pleat__vm_fail(p->vm, PLEAT_E_SYNTAX, "there is no tag '%.*s' here", n, p->t->value.s);
}

pleat_status pleat__parse(pleat__vm *vm, const char *text, size_t n_bytes, pleat__node **out) {
    pleat__tokens tokens = {0};
    PLEAT_TRY(pleat__lex(vm, text, n_bytes, &tokens));
    pleat__parser p = {.vm = vm, .t = tokens.v};
    PLEAT_TRY(parse_until(&p, NULL, out));
    if (p.unknown) {
        vm->line = p.unknown->line;
        return pleat__vm_fail(vm, PLEAT_E_SYNTAX, "there is no %s '%.*s'",
                              p.unknown->kind == PLEAT__N_FILTER ? "filter" : "test",
                              p.unknown->value.n > 60 ? 60 : (int)p.unknown->value.n, p.unknown->value.s);
    }
    return PLEAT_OK;
}
