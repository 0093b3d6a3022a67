/* SPDX-License-Identifier: MIT
 *
 * names.c: which names a scope hides before it sets them.
 *
 * To jinja2 a name belongs to the scope that sets it, from the scope's beginning: where that happens outside of branches,
 * the scope has not read the name before, and no scope around knows it.  A loop or macro inside that reads it earlier
 * finds it undefined, and does not reach the context's variable of that name.
 *
 *     {% for m in messages %}{{ tools }}{% endfor %}{% set tools = none %}      prints nothing
 *
 * So each scope of the tree gets a list of such names, which are undefined when it begins.
 */
#include "chat/ast.h"

typedef struct frame frame;
struct frame {
    const frame *parent;
    pleat__vm *vm;
    pleat__dict known; /* names that this scope reads or sets itself */
    pleat__node *hidden, **end;
    bool is_branch;
};

static bool is_known_around(const frame *f, pleat__value name) {
    for (f = f->parent; f; f = f->parent) {
        if (pleat__dict_get(&f->known, name.s, name.n)) return true;
    }
    return false;
}

static pleat_status reads(frame *f, pleat__value name) {
    return is_known_around(f, name) ? PLEAT_OK : pleat__dict_set(f->vm, &f->known, name, PLEAT__NONE);
}

static pleat_status sets(frame *f, pleat__value name) {
    if (pleat__dict_get(&f->known, name.s, name.n)) return PLEAT_OK;
    PLEAT_TRY(pleat__dict_set(f->vm, &f->known, name, PLEAT__NONE));
    if (f->is_branch || is_known_around(f, name)) return PLEAT_OK;
    void *p;
    PLEAT_TRY(pleat__vm_take(f->vm, sizeof(pleat__node), &p));
    pleat__node *node = p;
    *node = (pleat__node){.kind = PLEAT__N_NAME, .value = name};
    *f->end = node;
    f->end = &node->next;
    return PLEAT_OK;
}

/* All names in an expression and those that hang behind it.  Only the first operand may be nested deeply. */
static pleat_status read_all(frame *f, const pleat__node *first) {
    for (; first; first = first->next) {
        for (const pleat__node *node = first; node; node = node->a) {
            PLEAT_TRY(pleat__vm_charge(f->vm, 1));
            if (node->kind == PLEAT__N_NAME) PLEAT_TRY(reads(f, node->value));
            PLEAT_TRY(read_all(f, node->b));
            PLEAT_TRY(read_all(f, node->c));
            PLEAT_TRY(read_all(f, node->d));
            if (node->a && node->a->next) {
                PLEAT_TRY(read_all(f, node->a));
                break;
            }
        }
    }
    return PLEAT_OK;
}

static pleat_status set_target(frame *f, const pleat__node *target) {
    if (target->kind == PLEAT__N_NAME) return sets(f, target->value);
    if (target->kind == PLEAT__N_NS_ATTR) return reads(f, target->b->value);
    for (const pleat__node *part = target->a; part; part = part->next) PLEAT_TRY(set_target(f, part));
    return PLEAT_OK;
}

static pleat_status note_names(frame *f, const pleat__node *body);

static pleat_status note_branches(frame *f, const pleat__node *node) {
    const bool was_branch = f->is_branch;
    PLEAT_TRY(read_all(f, node->a));
    f->is_branch = true;
    PLEAT_TRY(note_names(f, node->c));
    for (; node->id; node = node->d) { /* elif */
        PLEAT_TRY(read_all(f, node->d->a));
        PLEAT_TRY(note_names(f, node->d->c));
    }
    PLEAT_TRY(note_names(f, node->d));
    f->is_branch = was_branch;
    return PLEAT_OK;
}

/* The names that statements read and set in this scope itself, in the order in which jinja2 looks at them. */
static pleat_status note_names(frame *f, const pleat__node *body) {
    for (const pleat__node *node = body; node; node = node->next) {
        switch ((pleat__node_kind)node->kind) {
            case PLEAT__N_IF: PLEAT_TRY(note_branches(f, node)); break;
            case PLEAT__N_PRINT: PLEAT_TRY(read_all(f, node->a)); break;
            case PLEAT__N_SET:
                PLEAT_TRY(read_all(f, node->b));
                PLEAT_TRY(set_target(f, node->a));
                break;
            case PLEAT__N_SET_BODY: PLEAT_TRY(set_target(f, node->a)); break;
            case PLEAT__N_FOR:
            case PLEAT__N_FILTERED: PLEAT_TRY(read_all(f, node->b)); break;
            case PLEAT__N_CALL_BODY: PLEAT_TRY(read_all(f, node->b)); break;
            case PLEAT__N_MACRO: PLEAT_TRY(sets(f, node->value)); break;
            case PLEAT__N_WITH:
                for (const pleat__node *part = node->a; part; part = part->next->next) {
                    const pleat__node *value = part->next;
                    pleat__node alone = *value;
                    alone.next = NULL;
                    PLEAT_TRY(read_all(f, &alone));
                }
                break;
            default: break;
        }
    }
    return PLEAT_OK;
}

static pleat_status hide_inside(frame *f, pleat__node *body);

static pleat_status hide_in_branches(frame *f, const pleat__node *node) {
    PLEAT_TRY(hide_inside(f, node->c));
    for (; node->id; node = node->d) PLEAT_TRY(hide_inside(f, node->d->c));
    return hide_inside(f, node->d);
}

/* A scope with this body, inside `parent`, in which `first`, parameters or a target, are set from the beginning. */
static pleat_status hide(pleat__vm *vm, const frame *parent, const pleat__node *first, pleat__node *body,
                         pleat__node **hidden) {
    frame f = {.parent = parent, .vm = vm};
    f.end = &f.hidden;
    f.is_branch = true; /* what is set now is not hidden */
    for (const pleat__node *part = first; part; part = part->kind == PLEAT__N_PARAM ? part->next : NULL) {
        if (part->kind == PLEAT__N_PARAM)
            PLEAT_TRY(sets(&f, part->value));
        else
            PLEAT_TRY(set_target(&f, part));
    }
    f.is_branch = false;
    PLEAT_TRY(note_names(&f, body));
    *hidden = f.hidden;
    return hide_inside(&f, body);
}

/* The scopes inside a scope whose names are noted. */
static pleat_status hide_inside(frame *f, pleat__node *body) {
    for (pleat__node *node = body; node; node = node->next) {
        switch ((pleat__node_kind)node->kind) {
            case PLEAT__N_IF: PLEAT_TRY(hide_in_branches(f, node)); break;
            case PLEAT__N_FOR:
                PLEAT_TRY(hide(f->vm, f, node->a, node->c, &node->hidden));
                PLEAT_TRY(hide(f->vm, f, NULL, node->d, &node->hidden_else));
                break;
            case PLEAT__N_MACRO: PLEAT_TRY(hide(f->vm, f, node->a, node->c, &node->hidden)); break;
            case PLEAT__N_CALL_BODY: PLEAT_TRY(hide(f->vm, f, node->a->a, node->a->c, &node->a->hidden)); break;
            case PLEAT__N_SET_BODY:
            case PLEAT__N_FILTERED:
            case PLEAT__N_SCOPE: PLEAT_TRY(hide(f->vm, f, NULL, node->c, &node->hidden)); break;
            case PLEAT__N_WITH: PLEAT_TRY(hide(f->vm, f, node->a, node->c, &node->hidden)); break;
            default: break;
        }
    }
    return PLEAT_OK;
}

pleat_status pleat__hide_names(pleat__vm *vm, pleat__node *body, pleat__node **hidden) {
    return hide(vm, NULL, NULL, body, hidden);
}
