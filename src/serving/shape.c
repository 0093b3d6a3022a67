/* SPDX-License-Identifier: MIT
 *
 * shape.c: see shape.h.
 */
#include "serving/shape.h"

#include <string.h>

#include "core/error.h"

#define ENDLESS 255u

/* ---- nodes that each shape has ------------------------------------------------------------------------------------------ */

static const pleat_json_part literals[] = {{.text = "true"}, {.text = "false"}, {.text = "null"}};

static const pleat_json_node common[] = {
    [PLEAT__SHAPE_ANY - PLEAT__SHAPE_ANY] = {.kind = PLEAT_JSON_ANY},
    [PLEAT__SHAPE_ANY_OBJECT - PLEAT__SHAPE_ANY] = {.kind = PLEAT_JSON_OBJECT, .rest = PLEAT__SHAPE_ANY},
    [PLEAT__SHAPE_ANY_LIST -
        PLEAT__SHAPE_ANY] = {.kind = PLEAT_JSON_LIST, .rest = PLEAT__SHAPE_ANY, .most = UINT32_MAX},
    [PLEAT__SHAPE_LITERAL - PLEAT__SHAPE_ANY] = {.kind = PLEAT_JSON_TEXTS, .n = 3},
};

const pleat_json_node *pleat__shape_node(const pleat__shape *shape, uint32_t id) {
    return id >= PLEAT__SHAPE_ANY ? &common[id - PLEAT__SHAPE_ANY] : &shape->nodes[id];
}

const pleat_json_part *pleat__shape_parts(const pleat__shape *shape, uint32_t id) {
    return id >= PLEAT__SHAPE_ANY ? literals : shape->parts + shape->nodes[id].first;
}

bool pleat__shape_fits(const pleat__shape *shape, uint32_t id, uint32_t depth) {
    const uint32_t own = id == PLEAT__SHAPE_ANY_OBJECT || id == PLEAT__SHAPE_ANY_LIST;
    return depth + (id >= PLEAT__SHAPE_ANY ? own : shape->depths[id]) <= PLEAT__JSON_DEPTH;
}

/* ---- depths --------------------------------------------------------------------------------------------------------------- */

static uint32_t deeper(uint32_t depth) { return depth < PLEAT__JSON_DEPTH ? depth + 1 : ENDLESS; }

/* By what is known of the nodes below it. */
static uint32_t depth_of(const pleat_json_shape *s, const pleat_json_node *node, const uint8_t *depths) {
    uint32_t least = ENDLESS, most = 0;
    if (node->kind == PLEAT_JSON_LIST) return deeper(node->least > 0 ? depths[node->rest] : 0);
    if (node->kind != PLEAT_JSON_OBJECT && node->kind != PLEAT_JSON_ONE_OF) return 0;
    for (uint32_t i = node->first; i < node->first + node->n; i++) {
        const uint32_t depth = depths[s->parts[i].node];
        if (depth < least) least = depth;
        if (s->parts[i].is_required && depth > most) most = depth;
    }
    return node->kind == PLEAT_JSON_ONE_OF ? least : deeper(most);
}

static void find_depths(const pleat_json_shape *s, uint8_t *depths) {
    memset(depths, ENDLESS, s->n_nodes);
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            const uint32_t depth = depth_of(s, &s->nodes[i], depths);
            changes |= depth < depths[i];
            if (depth < depths[i]) depths[i] = (uint8_t)depth;
        }
    }
}

/* ---- checks --------------------------------------------------------------------------------------------------------------- */

#define REQUIRE(cond, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_ARG, PLEAT_NOWHERE, "request: shape: " __VA_ARGS__)

static pleat_status check_part(const pleat_json_shape *s, const pleat_json_node *node, uint32_t i, pleat_error *err) {
    const pleat_json_part *part = &s->parts[i];
    const bool has_text = node->kind != PLEAT_JSON_ONE_OF, has_node = node->kind != PLEAT_JSON_TEXTS;
    REQUIRE(!has_node || part->node < s->n_nodes, "part %u has no node", i);
    REQUIRE(!has_text || (part->text && strlen(part->text) <= PLEAT_JSON_TEXT_BYTES_MAX),
            "part %u has no text, or one of more than %u bytes", i, PLEAT_JSON_TEXT_BYTES_MAX);
    return PLEAT_OK;
}

static pleat_status check_node(const pleat_json_shape *s, uint32_t i, pleat_error *err) {
    const pleat_json_node *node = &s->nodes[i];
    const bool has_parts = node->kind >= PLEAT_JSON_TEXTS && node->kind <= PLEAT_JSON_OBJECT;
    const bool has_rest = node->kind == PLEAT_JSON_OBJECT || node->kind == PLEAT_JSON_LIST;
    REQUIRE(node->kind >= PLEAT_JSON_ANY && node->kind <= PLEAT_JSON_LIST, "node %u has an unknown kind", i);
    REQUIRE(!has_parts || (node->first <= s->n_parts && node->n <= s->n_parts - node->first && (s->parts || !node->n)),
            "node %u has parts that are not there", i);
    REQUIRE(!has_parts || node->n > 0 || node->kind == PLEAT_JSON_OBJECT, "node %u has no parts", i);
    REQUIRE(node->kind != PLEAT_JSON_ONE_OF || node->n <= PLEAT_JSON_CHOICES_MAX, "node %u is one of more than %u", i,
            PLEAT_JSON_CHOICES_MAX);
    REQUIRE(!has_rest || node->rest == PLEAT_JSON_NONE || node->rest < s->n_nodes, "node %u has no rest", i);
    if (node->kind == PLEAT_JSON_LIST) {
        REQUIRE(node->least <= node->most && node->least <= PLEAT_JSON_ITEMS_MAX &&
                    (node->most <= PLEAT_JSON_ITEMS_MAX || node->most == UINT32_MAX),
                "node %u has bounds beyond %u, or none lies between them", i, PLEAT_JSON_ITEMS_MAX);
        REQUIRE(node->rest != PLEAT_JSON_NONE || node->most == 0, "node %u has no items, but may have some", i);
    }
    for (uint32_t k = 0; has_parts && k < node->n; k++) PLEAT_TRY(check_part(s, node, node->first + k, err));
    return PLEAT_OK;
}

/* Choices that a node leads to at once, itself included, when `known` are those of others: more each round where it leads to
 * itself. */
static uint32_t choices_of(const pleat_json_shape *s, const pleat_json_node *node, const uint16_t *known) {
    uint32_t n = 1;
    if (node->kind != PLEAT_JSON_ONE_OF) return 1;
    for (uint32_t i = node->first; i < node->first + node->n && n <= PLEAT__SHAPE_CHOICES_MAX; i++)
        n += known[s->parts[i].node];
    return n;
}

static pleat_status check_choices(const pleat_json_shape *s, uint16_t *known, pleat_error *err) {
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            const uint32_t n = choices_of(s, &s->nodes[i], known);
            REQUIRE(n <= PLEAT__SHAPE_CHOICES_MAX, "node %u is one of itself, or of more than %u", i,
                    PLEAT__SHAPE_CHOICES_MAX);
            changes |= n != known[i];
            known[i] = (uint16_t)n;
        }
    }
    return PLEAT_OK;
}

/* Is the node an object, or one of some?  It leads to no more than SHAPE_CHOICES_MAX. */
static bool is_all_objects(const pleat_json_shape *s, uint32_t id) {
    const pleat_json_node *node = &s->nodes[id];
    if (node->kind != PLEAT_JSON_ONE_OF) return node->kind == PLEAT_JSON_OBJECT;
    for (uint32_t i = node->first; i < node->first + node->n; i++)
        if (!is_all_objects(s, s->parts[i].node)) return false;
    return true;
}

pleat_status pleat__shape_check(const pleat_json_shape *s, pleat_error *err) {
    uint16_t choices[PLEAT_JSON_NODES_MAX] = {0};
    uint8_t depths[PLEAT_JSON_NODES_MAX];
    REQUIRE(s->nodes && s->n_nodes >= 1 && s->n_nodes <= PLEAT_JSON_NODES_MAX, "%u nodes are not in 1..%u", s->n_nodes,
            PLEAT_JSON_NODES_MAX);
    REQUIRE(s->n_parts <= PLEAT_JSON_PARTS_MAX, "%u parts are more than %u", s->n_parts, PLEAT_JSON_PARTS_MAX);
    for (uint32_t i = 0; i < s->n_nodes; i++) PLEAT_TRY(check_node(s, i, err));
    PLEAT_TRY(check_choices(s, choices, err));
    REQUIRE(is_all_objects(s, 0), "the whole is no object");
    find_depths(s, depths);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        REQUIRE(depths[i] <= PLEAT__JSON_DEPTH, "node %u takes more than %u lists and objects", i, PLEAT__JSON_DEPTH);
    return PLEAT_OK;
}

/* ---- a copy ----------------------------------------------------------------------------------------------------------------- */

pleat__shape pleat__shape_lengths(const pleat_json_shape *shape) {
    pleat__shape to = {.n_nodes = shape->n_nodes, .n_parts = shape->n_parts};
    for (uint32_t i = 0; i < shape->n_parts; i++)
        to.n_text += (shape->parts[i].text ? strlen(shape->parts[i].text) : 0) + 1;
    return to;
}

void pleat__shape_copy(pleat__shape *to, const pleat_json_shape *shape) {
    char *at = to->text;
    memcpy(to->nodes, shape->nodes, shape->n_nodes * sizeof *to->nodes);
    for (uint32_t i = 0; i < shape->n_parts; i++) {
        const char *text = shape->parts[i].text ? shape->parts[i].text : "";
        const size_t n = strlen(text) + 1;
        to->parts[i] = shape->parts[i];
        to->parts[i].text = memcpy(at, text, n);
        at += n;
    }
    find_depths(shape, to->depths);
}
