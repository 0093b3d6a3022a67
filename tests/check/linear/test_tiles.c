/* SPDX-License-Identifier: MIT
 *
 * test_tiles.c: matrices packed for a GPU's tensor cores hold the weights of the file, each where the law of
 * linear/tiles.h has it: all types, alone, one behind the other and in pairs; zeros behind the last row and column.
 */
#include "tiles_rig.h"

static const struct { uint32_t rows, cols; } shapes[] = {{16, 256}, {7, 256}, {33, 512}, {50, 768}};

/* What a weight may differ by: nothing where the file's scales are kept. */
static double tolerance(pleat__weight_type type, pleat__tile_format format, double size) {
    const bool is_exact = type == PLEAT__W_Q8_0 || type == PLEAT__W_Q5_0 || type == PLEAT__W_IQ4_NL ||
                          type == PLEAT__W_Q4_0 || type == PLEAT__W_F16;
    if (is_exact && format == pleat__tile_format_of(type)) return 0;
    if (type == PLEAT__W_Q4_1) return 0x1p-23 * size; /* the sum's last bit */
    return 0x1p-10 * size + 0x1p-17;                  /* subnormal scales, times codes up to 128 */
}

/* Rows [0, m->rows) of m stand where `place` says. */
static void check_part(const pleat__tiles *t, const uint8_t *tiles, const random_matrix *m, uint32_t before,
                       int pair_of) {
    for (uint32_t row = 0; row < m->m.rows; row++) {
        const uint32_t tile = pair_of < 0 ? (before + row) / 16 : row / 8;
        const uint32_t at = pair_of < 0 ? (before + row) % 16 : row % 8 + 8 * (uint32_t)pair_of;
        for (uint32_t col = 0; col < m->m.cols; col++) {
            const size_t i = (size_t)row * m->m.cols + col;
            const double got = weight_in(t, tiles, tile, at, col);
            if (!(fabs(got - m->values[i]) <= tolerance(m->m.type, t->format, m->sizes[i]))) {
                check_context("%s as %s, row %u, column %u of %u", pleat__weight_formats[m->m.type].name,
                              pleat__tile_format_name(t->format), row, col, m->m.cols);
                CHECK_NEAR(got, m->values[i], tolerance(m->m.type, t->format, m->sizes[i]));
                return;
            }
        }
    }
    CHECK(true);
}

static void check_source(random_matrix *parts, uint32_t n_parts, bool in_pairs) {
    pleat__tile_source source = {.n_parts = n_parts, .in_pairs = in_pairs};
    pleat__tiles t;
    uint32_t before = 0;
    for (uint32_t i = 0; i < n_parts; i++) source.parts[i] = parts[i].m;
    uint8_t *tiles = tiles_new(&source, &t);
    for (uint32_t i = 0; i < n_parts; i++) {
        check_part(&t, tiles, &parts[i], before, in_pairs ? (int)i : -1);
        before += parts[i].m.rows;
    }
    if (!in_pairs)
        for (uint32_t row = before; row < 16 * t.n_tiles; row++)
            for (uint32_t col = 0; col < t.cols; col++) CHECK_NEAR(weight_in(&t, tiles, row / 16, row % 16, col), 0, 0);
    for (uint32_t col = t.cols; col < 128 * t.n_groups; col++) CHECK_NEAR(weight_in(&t, tiles, 0, 0, col), 0, 0);
    free(tiles);
}

static void every_weight_is_in_its_place(void) {
    for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++)
        for (size_t s = 0; s < CHECK_COUNT(shapes); s++) {
            random_matrix parts[3];
            for (int i = 0; i < 3; i++) parts[i] = matrix_new((pleat__weight_type)type, shapes[s].rows, shapes[s].cols);
            check_source(parts, 1, false);
            check_source(parts, 3, false);
            check_source(parts, 2, true);
            for (int i = 0; i < 3; i++) matrix_free(&parts[i]);
        }
}

static void rows_of_several_formats_become_f16(void) {
    random_matrix parts[3] = {matrix_new(PLEAT__W_Q4_K, 24, 256), matrix_new(PLEAT__W_Q4_K, 8, 256),
                              matrix_new(PLEAT__W_Q6_K, 9, 256)};
    const pleat__tile_source source = {.parts = {parts[0].m, parts[1].m, parts[2].m}, .n_parts = 3};
    CHECK_EQ_U64(pleat__tiles_of(&source).format, PLEAT__TILE_F16);
    check_source(parts, 3, false);
    for (int i = 0; i < 3; i++) matrix_free(&parts[i]);
}

static void columns_need_not_fill_a_group(void) {
    random_matrix m = matrix_new(PLEAT__W_Q8_0, 20, 160), f = matrix_new(PLEAT__W_F16, 20, 32);
    check_source(&m, 1, false);
    check_source(&f, 1, false);
    matrix_free(&m);
    matrix_free(&f);
}

static void groups_are_aligned(void) {
    for (uint32_t f = 0; f < PLEAT__N_TILE_FORMATS; f++)
        CHECK_EQ_U64(pleat__tile_group_bytes((pleat__tile_format)f) % 128, 0);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"every weight is in its place", every_weight_is_in_its_place},
        {"rows of several formats become f16", rows_of_several_formats_become_f16},
        {"columns need not fill a group", columns_need_not_fill_a_group},
        {"groups are aligned", groups_are_aligned},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
