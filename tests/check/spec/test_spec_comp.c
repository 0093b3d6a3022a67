/* SPDX-License-Identifier: MIT
 *
 * test_spec_comp.c: the KV spec of compressors of cold tokens, and the stage behind kvcomp.
 */
#include <stdio.h>

#include "spec_rig.h"

#define RECOMMENDED "kvcomp:k=0.1,v=0.2,buffer=94,high=k8v8"

/* ---- what is valid -------------------------------------------------------------------------------------- */

/* What belongs to other stages is 0; the buffer is as asked for. */
static void check_rest_of(const pleat_spec *s, uint8_t k_bits, uint8_t v_bits) {
    CHECK(s->high.k_bits == k_bits && s->high.v_bits == v_bits && s->low.k_bits == 0 && s->low.v_bits == 0);
    CHECK(s->policy == PLEAT_POLICY_NONE && s->threshold == 0 && s->step == 0 && s->window == 0);
    CHECK(s->ah == 0 && s->al == 0 && s->keep == 0 && s->profile[0] == 0);
    CHECK(budget_is(s, 0, PLEAT_BUDGET_TOKENS) && s->sinks == 4 && s->reclaim == 0);
    CHECK(s->crush == 0 && s->share == 0 && s->anchor == 0 && s->unit == 0);
}

static void check_rest(const pleat_spec *s) { check_rest_of(s, 16, 16); }

static void test_defaults(void) {
    pleat_spec s;
    CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.2", &s, NULL), PLEAT_OK);
    check_rest(&s);
    CHECK(s.compressor == PLEAT_COMPRESSOR_KVCOMP && s.k == 0.2f && s.v == 0.15f && s.kunit == PLEAT_K_UNIT_CHANNEL);
    CHECK(s.block == 64 && s.buffer == 128 && s.bits == 0 && s.pack == 0);
    CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.2+pack", &s, NULL), PLEAT_OK);
    check_rest(&s);
    CHECK(s.compressor == PLEAT_COMPRESSOR_KVCOMP && s.k == 0.2f && s.v == 0.15f && s.pack == 1);
    CHECK_STATUS(pleat_spec_parse("kivi", &s, NULL), PLEAT_OK);
    check_rest(&s);
    CHECK(s.compressor == PLEAT_COMPRESSOR_KIVI && s.bits == 2 && s.block == 32 && s.buffer == 128);
    CHECK(s.k == 0 && s.v == 0 && s.kunit == 0 && s.pack == 0);
}

/* A name without keys is the recommended setting, with pack behind it too. */
static void test_bare(void) {
    static const char *const names[] = {"kvcomp", "kvcomp+pack"};
    for (uint32_t i = 0; i < 2; i++) {
        pleat_spec bare, named;
        char text[PLEAT_SPEC_TEXT_CAP];
        snprintf(text, sizeof text, "%s%s", RECOMMENDED, i ? "+pack" : "");
        CHECK_STATUS(pleat_spec_parse(names[i], &bare, NULL), PLEAT_OK);
        CHECK_STATUS(pleat_spec_parse(text, &named, NULL), PLEAT_OK);
        CHECK(bare.k == named.k && bare.v == named.v && bare.buffer == named.buffer && bare.block == named.block);
        check_rest_of(&bare, named.high.k_bits, named.high.v_bits);
        check_round_trip(&bare);
        CHECK_EQ_U64(bare.pack, i);
    }
}

/* auto is one of two specs that are written without it, by what the CPU may use. */
static void test_auto(void) {
    const uint32_t mine = pleat_cpu_flags(), sets[] = {0, mine & PLEAT_CPU_AVX2, mine};
    for (uint32_t i = 0; i < CHECK_COUNT(sets); i++) {
        const bool is_packed = !(sets[i] & PLEAT_CPU_VBMI2);
        pleat_spec s;
        char text[PLEAT_SPEC_TEXT_CAP];
        pleat_cpu_mask(sets[i]);
        CHECK_STATUS(pleat_spec_parse("kvcomp+auto", &s, NULL), PLEAT_OK);
        CHECK_EQ_U64(s.pack, is_packed);
        pleat_spec_print(&s, text, sizeof text);
        CHECK_EQ_STR(text, is_packed ? RECOMMENDED "+pack" : RECOMMENDED);
        CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.2,block=32+auto", &s, NULL), PLEAT_OK);
        CHECK(s.k == 0.2f && s.block == 32 && s.pack == is_packed);
    }
    pleat_cpu_mask(mine);
}

static void test_fields(void) {
    pleat_spec s;
    CHECK_STATUS(pleat_spec_parse("kvcomp:buffer=1,block=256,kunit=block,v=1,k=0.05+pack", &s, NULL), PLEAT_OK);
    check_rest(&s);
    CHECK(s.k == 0.05f && s.v == 1 && s.kunit == PLEAT_K_UNIT_BLOCK && s.block == 256 && s.buffer == 1 && s.pack == 1);
    CHECK_STATUS(pleat_spec_parse("kvcomp:sinks=16777216+pack", &s, NULL), PLEAT_OK);
    CHECK(s.sinks == 16777216 && s.buffer == 128 && s.pack == 1);
    CHECK_STATUS(pleat_spec_parse("kivi:bits=4,sinks=0", &s, NULL), PLEAT_OK);
    CHECK(s.sinks == 0 && s.bits == 4);
    CHECK_STATUS(pleat_spec_parse("kivi:buffer=16777216,bits=4", &s, NULL), PLEAT_OK);
    check_rest(&s);
    CHECK(s.bits == 4 && s.buffer == 16777216 && s.block == 32);
    CHECK_STATUS(pleat_spec_parse("kvcomp:high=k8v8,k=1+pack", &s, NULL), PLEAT_OK);
    check_rest_of(&s, 8, 8);
    CHECK(s.k == 1 && s.v == 0.15f && s.buffer == 128 && s.pack == 1);
    CHECK_STATUS(pleat_spec_parse("kivi:high=k8v4", &s, NULL), PLEAT_OK);
    check_rest_of(&s, 8, 4);
    CHECK(s.bits == 2 && s.buffer == 128);
    CHECK_STATUS(pleat_spec_parse("kvcomp:k=0.0039216,v=0.00392156863", &s, NULL), PLEAT_OK);
    CHECK(s.k >= 1.0f / 255 && s.v == 1.0f / 255);
}

static void test_canonical(void) {
    static const text_pair cases[] = {
        {"kvcomp", RECOMMENDED},
        {"kvcomp:v=0.15,k=0.2,kunit=channel,block=64,buffer=128", "kvcomp:k=0.2,v=0.15"},
        {"kvcomp:k=5e-2", "kvcomp:k=0.05,v=0.15"},
        {"kvcomp:v=.3", "kvcomp:k=0.2,v=0.3"},
        {"kvcomp:k=1,v=1.000", "kvcomp:k=1,v=1"},
        {"kvcomp:k=0.003921569", "kvcomp:k=0.003921569,v=0.15"},
        {"kvcomp:buffer=00256,block=016,kunit=block", "kvcomp:k=0.2,v=0.15,kunit=block,block=16,buffer=256"},
        {"kvcomp:block=32", "kvcomp:k=0.2,v=0.15,block=32"},
        {"kvcomp:block=128", "kvcomp:k=0.2,v=0.15,block=128"},
        {"kvcomp:block=256,buffer=1", "kvcomp:k=0.2,v=0.15,block=256,buffer=1"},
        {"kvcomp:high=f16", "kvcomp:k=0.2,v=0.15"},
        {"kvcomp:high=k8v8,buffer=9", "kvcomp:k=0.2,v=0.15,buffer=9,high=k8v8"},
        {"kvcomp+pack", RECOMMENDED "+pack"},
        {"kvcomp:buffer=128+pack", "kvcomp:k=0.2,v=0.15+pack"},
        {"kvcomp:kunit=block+pack", "kvcomp:k=0.2,v=0.15,kunit=block+pack"},
        {"kvcomp:buffer=9,sinks=004", "kvcomp:k=0.2,v=0.15,buffer=9"},
        {"kvcomp:buffer=9,sinks=0", "kvcomp:k=0.2,v=0.15,sinks=0,buffer=9"},
        {"kivi:high=k8v8,sinks=1", "kivi:bits=2,sinks=1,high=k8v8"},
        {"kivi", "kivi:bits=2"},
        {"kivi:buffer=128,bits=2", "kivi:bits=2"},
        {"kivi:buffer=1,bits=4", "kivi:bits=4,buffer=1"},
        {"kivi:high=f32", "kivi:bits=2,high=f32"},
        {"auto", "auto:bytes=20%"},
        {"auto:from=512,bytes=0.125", "auto:bytes=12.5%,from=512"},
        {"auto:bytes=100%,from=01024", "auto:bytes=100%"},
        {"rd", "rd:k=0.15,v=1.1"},
        {"rd:v=1.4,k=0.2,buffer=94", "rd:k=0.2,v=1.4"},
        {"rd:high=k8v8,buffer=32,sinks=1", "rd:k=0.15,v=1.1,sinks=1,buffer=32"},
        {"rd:sinks=4,fine=256", "rd:k=0.15,v=1.1,fine=256"},
        {"rd:fine=00", "rd:k=0.15,v=1.1"},
    };
    check_canonical(cases, CHECK_COUNT(cases));
}

/* A step from the least on, at times one that few digits write. */
static float any_step(void) {
    return check_below(2) ? fminf(1.0f / 255 + any_number(1), 1) : (float)check_between(1, 100) / 100;
}

/* One that blocks' buffers may have. */
static pleat_format any_plain_format(void) {
    pleat_format format;
    do format = any_format();
    while (format.rotated);
    return format;
}

/* Any valid spec of a compressor, half of those that can with pack. */
static pleat_spec any_compressor(void) {
    pleat_spec s = {.high = any_plain_format(), .compressor = PLEAT_COMPRESSOR_KIVI, .block = 32};
    s.sinks = check_below(2) ? 4 : (uint32_t)check_below((1u << check_below(25)) + 1);
    s.buffer = (uint32_t)check_between(1, 1u << check_below(25));
    if (check_below(8) == 0)
        return (pleat_spec){.high = {8, 8},
                            .compressor = PLEAT_COMPRESSOR_AUTO,
                            .block = 64,
                            .sinks = 4,
                            .buffer = 91,
                            .bytes = (float)check_uniform(0.001, 1),
                            .from = (uint32_t)check_between(1, 1u << check_below(25))};
    if (check_below(4) == 0) {
        s.bits = check_below(2) ? 2 : 4;
        return s;
    }
    s.compressor = PLEAT_COMPRESSOR_KVCOMP;
    s.k = any_step();
    s.v = any_step();
    s.kunit = (pleat_k_unit)check_below(2);
    s.block = 16u << check_below(5);
    s.pack = (uint32_t)check_below(2);
    return s;
}

static void test_any_round_trip(void) { check_round_trips(any_compressor); }

/* ---- what is refused ------------------------------------------------------------------------------------ */

#define STEPS "it must be a number from 1/255 (0.0039216) to 1"
#define BLOCKS "it must be 16, 32, 64, 128 or 256"
#define BUFFERS "it must be a whole number from 1 to 16777216"

static void test_errors(void) {
    static const bad_text cases[] = {
        {"kvcmp", 0, "unknown name 'kvcmp' at position 0; did you mean 'kvcomp'?"},
        {"kvi", 0, "did you mean 'kivi'?"},
        {"KIVI", 0, "unknown name 'KIVI'"},
        {"kvcomp:", 7, "a key is missing at position 7; kvcomp has: k, v, kunit, block, sinks, buffer, high"},
        {"kvcomp:kunt=block", 7, "unknown key 'kunt' at position 7; did you mean 'kunit'?"},
        {"kvcomp:bits=2", 7, "unknown key 'bits' at position 7"},
        {"kvcomp:window=64", 7, "unknown key 'window'"},
        {"kvcomp:high=", 12, "high has no value at position 12: it must be a format: f32, f16, k8v8"},
        {"kvcomp:high=k8v9", 12, "high 'k8v9' at position 12; did you mean 'k8v8'?"},
        {"kvcomp:high=k16v16", 12, "it must be a format"},
        {"kvcomp:low=k8v8", 7, "unknown key 'low'"},
        {"kvcomp:pack=1", 7, "unknown key 'pack'"},
        {"kvcomp:k=", 9, "k has no value at position 9: " STEPS},
        {"kvcomp:k=0", 9, "k '0' at position 9: " STEPS},
        {"kvcomp:k=-0.2", 9, "k '-0.2' at position 9: " STEPS},
        {"kvcomp:k=1.0000001", 9, STEPS},
        {"kvcomp:k=0.0039", 9, STEPS},
        {"kvcomp:k=0.003921568", 9, STEPS},
        {"kvcomp:k=20%", 9, STEPS},
        {"kvcomp:k=1/5", 9, STEPS},
        {"kvcomp:k=nan", 9, "'nan' at position 9: " STEPS},
        {"kvcomp:k=inf", 9, STEPS},
        {"kvcomp:k=0.2,v=2", 15, "v '2' at position 15: " STEPS},
        {"kvcomp:k=0.2,k=0.2", 13, "'k' at position 13 was given already, at position 7"},
        {"kvcomp:kunit=chanel", 13, "did you mean 'channel'? it must be channel or block"},
        {"kvcomp:kunit=", 13, "kunit has no value at position 13: it must be channel or block"},
        {"kvcomp:block=0", 13, "block '0' at position 13: " BLOCKS},
        {"kvcomp:block=8", 13, BLOCKS},
        {"kvcomp:block=17", 13, BLOCKS},
        {"kvcomp:block=48", 13, "block '48' at position 13: " BLOCKS},
        {"kvcomp:block=96", 13, BLOCKS},
        {"kvcomp:block=255", 13, BLOCKS},
        {"kvcomp:block=512", 13, BLOCKS},
        {"kvcomp:block=64.0", 13, BLOCKS},
        {"kvcomp:block=-64", 13, BLOCKS},
        {"kvcomp:block=4294967360", 13, BLOCKS},
        {"kvcomp:buffer=0", 14, "buffer '0' at position 14: " BUFFERS},
        {"kvcomp:buffer=16777217", 14, BUFFERS},
        {"kvcomp:buffer=1e2", 14, BUFFERS},
        {"kvcomp:sinks=16777217", 13, "sinks '16777217' at position 13: it must be a whole number from 0 to 16777216"},
        {"kvcomp:sinks=-1", 13, "it must be a whole number from 0"},
        {"kvcomp:sink=4", 7, "unknown key 'sink' at position 7; did you mean 'sinks'?"},
        {"kivi:sinks=", 11, "sinks has no value at position 11"},
        {"kivi:", 5, "a key is missing at position 5; kivi has: bits, sinks, buffer, high"},
        {"kivi:block=32", 5, "unknown key 'block' at position 5"},
        {"kivi:k=0.2", 5, "unknown key 'k'"},
        {"kivi:bits=3", 10, "bits '3' at position 10: it must be 2 or 4"},
        {"kivi:bits=0", 10, "it must be 2 or 4"},
        {"kivi:bits=1", 10, "it must be 2 or 4"},
        {"kivi:bits=8", 10, "it must be 2 or 4"},
        {"kivi:bits=2,buffer=0", 19, BUFFERS},
        {"f16:buffer=3", 4, "f16 takes no options"},
        {"h2o:k=0.2", 4, "unknown key 'k'"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

static void test_stage_errors(void) {
    static const bad_text cases[] = {
        {"pack", 0, "'pack' at position 0 must stand behind kvcomp, as in kvcomp+pack"},
        {"pack+kvcomp", 0, "must stand behind kvcomp"},
        {"pak", 0, "unknown name 'pak'"},
        {"kvcomp+", 7, "'' at position 7: only pack or auto can follow kvcomp"},
        {"kvcomp+pak", 7, "'pak' at position 7: only pack or auto can follow kvcomp"},
        {"kvcomp+f16", 7, "only pack or auto can follow kvcomp"},
        {"kvcomp+kivi", 7, "only pack or auto can follow kvcomp"},
        {"kvcomp:k=1+kvcrush", 11,
         "'kvcrush' at position 11: only pack or auto can follow kvcomp; kvcrush can follow random"},
        {"kvcomp+auto+pack", 12, "'pack' at position 12: nothing can follow +pack"},
        {"kvcomp+auto:k=1", 12, "'k' at position 12: pack takes no options"},
        {"kivi+auto", 5, "nothing can follow kivi"},
        {"kvcomp+pack+pack", 12, "'pack' at position 12: nothing can follow +pack"},
        {"kvcomp+pack+kvcrush", 12, "nothing can follow +pack; kvcrush can follow random"},
        {"kvcomp+pack:", 12, "'' at position 12: pack takes no options"},
        {"kvcomp+pack:k=0.2", 12, "'k' at position 12: pack takes no options"},
        {"kivi+pack", 5, "'pack' at position 5: nothing can follow kivi; pack can follow kvcomp"},
        {"kivi:bits=4+kvcomp", 12, "nothing can follow kivi"},
        {"f16+pack", 4, "nothing can follow f16; pack can follow kvcomp"},
        {"leankv+pack", 7, "nothing can follow leankv; pack can follow kvcomp"},
        {"h2o+pack", 4, "'pack' at position 4: only kvcrush, merge or novel can follow h2o; pack can follow kvcomp"},
        {"h2o+kvcrush+pack", 12, "nothing can follow +kvcrush; pack can follow kvcomp"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

/* Specs filled in by hand: each differs from a valid one in what is named. */
static void test_print_refuses_nonsense(void) {
    pleat_spec comp, pack, kivi;
    (void)pleat_spec_parse("kvcomp", &comp, NULL);
    (void)pleat_spec_parse("kvcomp:kunit=block+pack", &pack, NULL);
    (void)pleat_spec_parse("kivi:bits=4", &kivi, NULL);
    REFUSED(comp, compressor, PLEAT_COMPRESSOR_NONE);
    REFUSED(comp, compressor, PLEAT_COMPRESSOR_KIVI);
    REFUSED(comp, compressor, PLEAT_COMPRESSOR_AUTO);
    REFUSED(comp, compressor, (pleat_compressor)5);
    REFUSED(comp, policy, PLEAT_POLICY_LEANKV);
    REFUSED(comp, policy, PLEAT_POLICY_H2O);
    REFUSED(comp, high, ((pleat_format){32, 16}));
    REFUSED(comp, high, ((pleat_format){16, 4}));
    REFUSED(comp, high, ((pleat_format){0, 0}));
    REFUSED(comp, low.k_bits, 4);
    REFUSED(comp, k, 0);
    REFUSED(comp, k, 0.0039f);
    REFUSED(comp, k, 1.5f);
    REFUSED(comp, k, NAN);
    REFUSED(comp, v, -0.15f);
    REFUSED(comp, v, INFINITY);
    REFUSED(comp, v, NAN);
    REFUSED(comp, kunit, (pleat_k_unit)2);
    REFUSED(comp, block, 0);
    REFUSED(comp, block, 8);
    REFUSED(comp, block, 65);
    REFUSED(comp, block, 192);
    REFUSED(comp, block, 512);
    REFUSED(comp, block, UINT32_MAX);
    REFUSED(comp, buffer, 0);
    REFUSED(comp, buffer, 16777217);
    REFUSED(comp, sinks, 16777217);
    REFUSED(comp, bits, 2);
    REFUSED(comp, pack, 2);
    REFUSED(comp, crush, 1);
    REFUSED(comp, window, 64);
    REFUSED(comp, profile[0], 'a');
    REFUSED(pack, pack, 2);
    REFUSED(pack, pack, UINT32_MAX);
    REFUSED(pack, compressor, PLEAT_COMPRESSOR_NONE);
    REFUSED(pack, share, 0.25f);
    REFUSED(kivi, block, 64);
    REFUSED(kivi, bits, 3);
    REFUSED(kivi, bits, 0);
    REFUSED(kivi, bits, 8);
    REFUSED(kivi, k, 0.2f);
    REFUSED(kivi, v, 0.15f);
    REFUSED(kivi, kunit, PLEAT_K_UNIT_BLOCK);
    REFUSED(kivi, buffer, 0);
    REFUSED(kivi, pack, 1);
    REFUSED(kivi, high, ((pleat_format){4, 3}));
    REFUSED(kivi, high, ((pleat_format){4, 4, 1}));
}

static const check_test tests[] = {
    {"defaults", test_defaults},
    {"bare", test_bare},
    {"auto", test_auto},
    {"fields", test_fields},
    {"canonical", test_canonical},
    {"any_round_trip", test_any_round_trip},
    {"errors", test_errors},
    {"stage_errors", test_stage_errors},
    {"print_refuses_nonsense", test_print_refuses_nonsense},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
