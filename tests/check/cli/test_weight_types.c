/* SPDX-License-Identifier: MIT
 *
 * test_weight_types.c: the names of weight types that commands take are the library's types, with their sizes; all of
 * them but F32.
 */
#include <ctype.h>

#include "check.h"
#include "cli/lib/shape/weight_types.h"
#include "linear/format.h"

static int is_name_of(const char *name, const char *upper) {
    for (; *name; name++, upper++)
        if (toupper((unsigned char)*name) != *upper) return 0;
    return !*upper;
}

static void test_each_is_the_librarys(void) {
    for (uint32_t i = 0; i < N_WEIGHT_TYPES; i++) {
        const weight_type *t = &weight_types[i];
        pleat__weight_type type;
        if (!CHECK(pleat__weight_type_of(t->number, &type))) return;
        const pleat__weight_format *f = &pleat__weight_formats[type];
        CHECK(is_name_of(t->name, f->name));
        CHECK_EQ_U64(t->block_values, f->block);
        CHECK_EQ_U64(t->block_bytes, f->bytes);
    }
}

static void test_each_of_the_librarys_is_there(void) {
    for (uint32_t type = 0; type < PLEAT__N_WEIGHT_TYPES; type++) {
        uint32_t n_found = 0;
        for (uint32_t i = 0; i < N_WEIGHT_TYPES; i++)
            n_found += weight_types[i].number == pleat__weight_formats[type].ggml;
        CHECK_EQ_U64(n_found, type != PLEAT__W_F32);
    }
}

static void test_names(void) {
    for (uint32_t i = 0; i < N_WEIGHT_TYPES; i++) {
        CHECK_EQ_STR(weight_type_names[i], weight_types[i].name);
        CHECK(weight_type_of(weight_types[i].name) == &weight_types[i]);
    }
    CHECK(!weight_type_names[N_WEIGHT_TYPES]);
    CHECK(!weight_type_of("q4_K") && !weight_type_of("f32") && !weight_type_of(""));
}

static const check_test tests[] = {
    {"each_is_the_librarys", test_each_is_the_librarys},
    {"each_of_the_librarys_is_there", test_each_of_the_librarys_is_there},
    {"names", test_names},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
