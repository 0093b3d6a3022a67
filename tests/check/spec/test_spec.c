/* SPDX-License-Identifier: MIT
 *
 * test_spec.c: the KV spec: every name round-trips, every error names its position and the nearest word.  Policies that
 * evict have theirs in test_spec_evict.c, compressors in test_spec_comp.c.
 */
#include <locale.h>

#include "spec_rig.h"

static void test_round_trip(void) {
    for (size_t i = 0; i < CHECK_COUNT(spec_names); i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        check_context("%s", spec_names[i]);
        if (!CHECK_STATUS(pleat_spec_parse(spec_names[i], &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, spec_names[i]);
        if (spec_names[i][0] == 'f') continue;
        CHECK(spec.high.rotated == (spec_names[i][0] == 'h'));
        CHECK_EQ_U64(spec.high.k_bits, (uint64_t)(spec_names[i][1] - '0'));
        CHECK_EQ_U64(spec.high.v_bits, (uint64_t)(spec_names[i][3] - '0'));
    }
}

static void test_canonical(void) {
    static const text_pair cases[] = {
        {"tq4", "h4v4"},
        {"tq3", "h3v3"},
        {"leankv:low=h3v2", "leankv:ah=3,al=0,low=h3v2"},
        {"leankv", "leankv:ah=3,al=0"},
        {"leankv:al=0,ah=3", "leankv:ah=3,al=0"},
        {"leankv:ah=1.50e0,al=.1,window=64,high=k8v4,low=k4v2,threshold=length,step=paper", "leankv:ah=1.5,al=0.1"},
        {"leankv:step=code,threshold=position,low=k2v2,high=f16,window=1",
         "leankv:ah=3,al=0,window=1,high=f16,low=k2v2,threshold=position,step=code"},
        {"leankv:high=k4v4,low=k4v4,ah=1000000,al=1e6", "leankv:ah=1000000,al=1000000,high=k4v4,low=k4v4"},
        {"leankv:ah=-0,al=0e999", "leankv:ah=0,al=0"},
        {"leankv:al=15e-9,ah=000.00001", "leankv:ah=0.00001,al=1.5e-8"},
        {"leankv:ah=1e-999,al=0", "leankv:ah=0,al=0"},
        {"leankv:ah=0.1000000000000000000000000001", "leankv:ah=0.1,al=0"},
        {"leankv:ah=123456.7", "leankv:ah=123456.7,al=0"},
        {"leankv:every=1,step=code", "leankv:ah=3,al=0,step=code"},
        {"leankv:every=8", "leankv:ah=3,al=0,every=8"},
        {"leankv:profile=models/a=b:c d.json", "leankv:profile=models/a=b:c d.json"},
        {"topk", "topk:keep=50%"},
        {"topk:keep=0.25,format=f32,window=16777216", "topk:keep=25%,window=16777216,format=f32"},
        {"topk:window=64,format=k8v4,keep=33.3%", "topk:keep=33.3%"},
        {"topk:keep=1", "topk:keep=100%"},
        {"topk:keep=1e-7%", "topk:keep=1e-7%"},
    };
    check_canonical(cases, CHECK_COUNT(cases));
}

static void test_defaults(void) {
    pleat_spec s;
    CHECK_STATUS(pleat_spec_parse("leankv", &s, NULL), PLEAT_OK);
    CHECK(s.policy == PLEAT_POLICY_LEANKV && s.ah == 3 && s.al == 0 && s.window == 64 && s.keep == 0);
    CHECK(s.high.k_bits == 8 && s.high.v_bits == 4 && s.low.k_bits == 4 && s.low.v_bits == 2);
    CHECK(s.threshold == PLEAT_THRESHOLD_LENGTH && s.step == PLEAT_STEP_PAPER && s.every == 1 && s.profile[0] == 0);
    CHECK_STATUS(pleat_spec_parse("topk:format=k4v4", &s, NULL), PLEAT_OK);
    CHECK(s.policy == PLEAT_POLICY_TOPK && s.keep == 0.5f && s.window == 64 && s.ah == 0 && s.al == 0);
    CHECK(s.high.k_bits == 4 && s.high.v_bits == 4 && s.low.k_bits == 0 && s.low.v_bits == 0);
}

/* Any valid spec of leankv or topk. */
static pleat_spec any_spec(void) {
    pleat_spec s = {.high = any_format(), .window = (uint32_t)check_between(1, 1u << check_below(25))};
    if (check_below(2)) {
        s.policy = PLEAT_POLICY_TOPK;
        while (!(s.keep > 0)) s.keep = any_number(1);
        return s;
    }
    s.policy = PLEAT_POLICY_LEANKV;
    do s.low = any_format();
    while (s.low.k_bits + s.low.v_bits > s.high.k_bits + s.high.v_bits);
    s.ah = any_number(1e6);
    s.al = check_below(4) ? (float)check_uniform(0, 1) * s.ah : s.ah;
    s.threshold = (pleat_threshold)check_below(2);
    s.step = (pleat_step_order)check_below(2);
    s.every = s.step == PLEAT_STEP_CODE ? 1 : 1u << check_below(4);
    return s;
}

static void test_any_round_trip(void) { check_round_trips(any_spec); }

/* A decimal comma in the host program's locale changes nothing. */
static void test_locale(void) {
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "ru_RU.UTF-8"};
    size_t i = 0;
    while (i < CHECK_COUNT(locales) && !setlocale(LC_NUMERIC, locales[i])) i++;
    if (i == CHECK_COUNT(locales)) SKIP("no locale with a decimal comma here");
    pleat_spec spec, evicting;
    char text[PLEAT_SPEC_TEXT_CAP], evicting_text[PLEAT_SPEC_TEXT_CAP];
    CHECK_STATUS(pleat_spec_parse("leankv:ah=1.5,al=0.25", &spec, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
    CHECK_STATUS(pleat_spec_parse("h2o:budget=0.1%+kvcrush:share=0.25", &evicting, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_spec_print(&evicting, evicting_text, sizeof evicting_text), PLEAT_OK);
    setlocale(LC_NUMERIC, "C");
    CHECK(spec.ah == 1.5f && spec.al == 0.25f);
    CHECK_EQ_STR(text, "leankv:ah=1.5,al=0.25");
    CHECK(budget_is(&evicting, 0.001, PLEAT_BUDGET_SHARE) && evicting.share == 0.25f);
    CHECK_EQ_STR(evicting_text, "h2o:budget=0.1%+kvcrush:share=25%");
}

/* Errors name the position, and the word that was meant. */
static void test_bad_names(void) {
    static const bad_text cases[] = {
        {"", 0, "missing"},
        {"k8v5", 0, "'k8v8'"},
        {"f1", 0, "'f16'"},
        {"K8V4", 0, "unknown name 'K8V4' at position 0; did you mean 'k8v4'?"},
        {"fancy", 0, "unknown name 'fancy' at position 0; allowed: f32"},
        {" f16", 0, "unknown name"},
        {"k8v4:", 5, "no options"},
        {"k8v4:window=3", 5, "'window'"},
        {"f16+k8v4", 4, "'k8v4'"},
        {"k8v4+", 5, "nothing can"},
        {"+f16", 0, "missing"},
        {":a=1", 0, "missing"},
        {"f16 ", 0, "'f16'"},
        {"quite_a_long_name_that_is_longer_than_any_word_allowed_here", 0, "unknown name"},
    };
    check_refused(cases, CHECK_COUNT(cases));
    CHECK_STATUS(pleat_spec_parse(NULL, NULL, NULL), PLEAT_E_ARG);
}

static void test_bad_keys(void) {
    static const bad_text cases[] = {
        {"leankw", 0, "'leankv'"},
        {"top", 0, "did you mean 'topk'"},
        {"leankv:", 7,
         "a key is missing at position 7; leankv has: ah, al, window, high, low, threshold, step, every, profile"},
        {"topk:keep=1,", 12, "a key is missing at position 12; topk has: keep, window, format"},
        {"leankv:windw=3", 7, "unknown key 'windw' at position 7; did you mean 'window'"},
        {"topk:ah=1", 5, "unknown key 'ah' at position 5; topk has: keep"},
        {"leankv:ah=1,al=0,ah=2", 17, "'ah' at position 17 was given already, at position 7"},
        {"leankv:ah", 7, "'ah' at position 7 needs '='"},
        {"leankv:ah,al=1", 7, "'ah' at position 7 needs '='"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

static void test_bad_values(void) {
    static const bad_text cases[] = {
        {"leankv:ah=", 10, "ah has no value at position 10: it must be a number from 0 to 1000000"},
        {"leankv:high=,al=0", 12, "high has no value at position 12"},
        {"leankv:ah=two", 10, "ah 'two' at position 10: it must be a number from 0 to 1000000"},
        {"leankv:ah=nan", 10, "'nan'"},
        {"leankv:ah=inf", 10, "'inf'"},
        {"leankv:ah=0x1", 10, "'0x1'"},
        {"leankv:ah=1.2.3", 10, "'1.2.3'"},
        {"leankv:ah=1e", 10, "'1e'"},
        {"leankv:ah=.", 10, "'.'"},
        {"leankv:ah= 1", 10, "' 1'"},
        {"leankv:ah=50%", 10, "'50%'"},
        {"leankv:ah=-1", 10, "'-1'"},
        {"leankv:ah=1000000.5", 10, "a number from 0 to 1000000"},
        {"leankv:ah=1e999", 10, "a number from 0 to 1000000"},
        {"leankv:ah=1e99999999999999999999", 10, "a number from 0 to 1000000"},
        {"leankv:window=0", 14, "window '0' at position 14: it must be a whole number from 1 to 16777216"},
        {"leankv:window=16777217", 14, "'16777217'"},
        {"leankv:window=99999999999999999999", 14, "a whole number"},
        {"leankv:window=64.0", 14, "a whole number"},
        {"leankv:window=-1", 14, "a whole number"},
        {"leankv:high=k8v5", 12, "high 'k8v5' at position 12; did you mean 'k8v8'? it must be a format: f32, f16"},
        {"leankv:low=leankv", 11, "low 'leankv'"},
        {"leankv:every=3", 13, "1, 2, 4 or 8"},
        {"leankv:every=16", 13, "1, 2, 4 or 8"},
        {"leankv:step=code,every=2", 23, "every=2 does not go with step=code"},
        {"leankv:threshold=lenght", 17, "did you mean 'length'? it must be length or position"},
        {"leankv:step=papr", 12, "did you mean 'paper'? it must be paper or code"},
        {"leankv:ah=1,al=2", 15, "al=2 is above ah=1, at position 15"},
        {"leankv:al=2,ah=1", 10, "al=2 is above ah=1, at position 10"},
        {"leankv:al=4", 10, "al=4 is above ah=3, at position 10"},
        {"leankv:high=k4v2,low=k4v4", 21, "low=k4v4 takes more bits than high=k4v2, at position 21"},
        {"leankv:high=k2v2", 12, "low=k4v2 takes more bits than high=k2v2, at position 12; low was left"},
        {"leankv:profile=", 15, "profile has no value at position 15: it must be a path of 1 to 199 bytes"},
        {"leankv:profile=a,ah=1", 17, "'ah' at position 17 cannot stand beside 'profile'"},
        {"leankv:step=code,profile=a", 7, "'step' at position 7 cannot stand beside 'profile'"},
        {"leankv:profile=a+b", 17, "'b' at position 17: nothing can follow leankv"},
        {"leankv+topk", 7, "nothing can follow leankv"},
        {"topk:keep=0", 10, "keep '0' at position 10: it must be a share above 0 and up to 1, as 50% or 0.5"},
        {"topk:keep=101%", 10, "a share above 0"},
        {"topk:keep=1e-60", 10, "a share above 0"},
        {"topk:keep=%", 10, "a share above 0"},
        {"topk:keep=5%%", 10, "a share above 0"},
        {"topk:profile=a", 5, "unknown key 'profile'"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

static void test_cache_types(void) {
    static const struct {
        const char *k, *v, *spec;
    } cases[] = {{"f32", "f32", "f32"},    {"f16", "f16", "f16"},    {"q8_0", "q8_0", "k8v8"},
                 {"q8_0", "q4_0", "k8v4"}, {"q4_0", "q8_0", "k4v8"}, {"q4_0", "q4_0", "k4v4"}};
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        if (!CHECK_STATUS(pleat_spec_from_cache_types(cases[i].k, cases[i].v, &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, cases[i].spec);
    }
    pleat_spec spec;
    pleat_error err;
    CHECK_STATUS(pleat_spec_from_cache_types("f16", "q8_0", &spec, &err), PLEAT_E_UNSUPPORTED);
    CHECK_STATUS(pleat_spec_from_cache_types("q5_0", "q8_0", &spec, &err), PLEAT_E_SYNTAX);
    CHECK(strstr(err.text, "q5_0") != NULL);
    CHECK_STATUS(pleat_spec_from_cache_types("q8_0", "", &spec, &err), PLEAT_E_SYNTAX);
    CHECK_STATUS(pleat_spec_from_cache_types(NULL, "f16", &spec, &err), PLEAT_E_SYNTAX);
}

/* design: d*(bk+bv)/8 + 8; f16 4*d. */
static void test_token_bytes(void) {
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){16, 16}, 128), 512);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){32, 32}, 64), 512);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){8, 4}, 128), 200);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){4, 2}, 64), 56);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){16, 8}, 64), 0);
    CHECK_EQ_U64(pleat_format_token_bytes((pleat_format){3, 3}, 64), 0);
}

/* A path of `n` bytes after "leankv:profile=". */
static pleat_status parse_path(size_t n, pleat_spec *spec, pleat_error *err) {
    char text[400] = "leankv:profile=";
    const size_t start = strlen(text);
    memset(text + start, 'p', n);
    text[start + n] = 0;
    return pleat_spec_parse(text, spec, err);
}

static void test_path_lengths(void) {
    pleat_spec spec, back;
    pleat_error err = {0};
    char text[PLEAT_SPEC_TEXT_CAP];
    CHECK_STATUS(parse_path(PLEAT_PROFILE_CAP - 1, &spec, &err), PLEAT_OK);
    CHECK_EQ_U64(strlen(spec.profile), PLEAT_PROFILE_CAP - 1);
    CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
    CHECK_STATUS(pleat_spec_parse(text, &back, NULL), PLEAT_OK);
    CHECK_EQ_STR(back.profile, spec.profile);
    CHECK_STATUS(parse_path(PLEAT_PROFILE_CAP, &spec, &err), PLEAT_E_SYNTAX);
    CHECK(strstr(err.text, "a path of 1 to 199 bytes") != NULL);
    CHECK_EQ_U64(err.where, 15);
}

/* Specs filled in by hand: each differs from a valid one in what is named. */
static void test_print_refuses_nonsense_of_f16(void) {
    const pleat_spec f16 = {.high = {16, 16}};
    REFUSED(f16, high.v_bits, 4);
    REFUSED(f16, low.k_bits, 2);
    REFUSED(f16, policy, PLEAT_POLICY_H2O);
    REFUSED(f16, policy, (pleat_policy)(PLEAT_POLICY_ADAKV + 1));
    REFUSED(f16, window, 64);
    REFUSED(f16, ah, 1);
    REFUSED(f16, keep, 0.5f);
    REFUSED(f16, profile[0], 'a');
    REFUSED(f16, crush, 1);
    REFUSED(f16, merge, 1);
    REFUSED(f16, novel, 1);
    REFUSED(f16, sinks, 1);
    REFUSED(f16, share, NAN);
    REFUSED(f16, budget.value, 1);
    REFUSED(f16, budget.value, NAN);
    REFUSED(f16, budget.unit, PLEAT_BUDGET_SHARE);
    REFUSED(f16, k, 0.2f);
    REFUSED(f16, v, NAN);
    REFUSED(f16, kunit, PLEAT_K_UNIT_BLOCK);
    REFUSED(f16, block, 64);
    REFUSED(f16, buffer, 128);
    REFUSED(f16, bits, 2);
    REFUSED(f16, pack, 1);
}

static void test_print_refuses_nonsense_of_leankv(void) {
    pleat_spec lean, profile;
    (void)pleat_spec_parse("leankv", &lean, NULL);
    (void)pleat_spec_parse("leankv:profile=a", &profile, NULL);
    REFUSED(lean, ah, -1);
    REFUSED(lean, ah, NAN);
    REFUSED(lean, ah, INFINITY);
    REFUSED(lean, al, 3.5f);
    REFUSED(lean, al, NAN);
    REFUSED(lean, window, 0);
    REFUSED(lean, window, 16777217);
    REFUSED(lean, high.v_bits, 3);
    REFUSED(lean, low.k_bits, 0);
    REFUSED(lean, low, ((pleat_format){8, 8}));
    REFUSED(lean, threshold, (pleat_threshold)2);
    REFUSED(lean, step, (pleat_step_order)2);
    REFUSED(lean, keep, 0.5f);
    REFUSED(lean, profile[0], ',');
    REFUSED(lean, crush, 1);
    REFUSED(lean, merge, 1);
    REFUSED(lean, compressor, PLEAT_COMPRESSOR_KIVI);
    REFUSED(lean, every, 3);
    REFUSED(profile, ah, 2);
    REFUSED(profile, window, 3);
    REFUSED(profile, profile[1], '+');
    REFUSED(profile, budget, ((pleat_budget){10, PLEAT_BUDGET_TOKENS}));
}

static void test_print_refuses_nonsense_of_topk(void) {
    pleat_spec top;
    (void)pleat_spec_parse("topk", &top, NULL);
    REFUSED(top, keep, 0);
    REFUSED(top, keep, 1.5f);
    REFUSED(top, keep, NAN);
    REFUSED(top, low, ((pleat_format){4, 2}));
    REFUSED(top, step, PLEAT_STEP_CODE);
    REFUSED(top, every, 2);
    REFUSED(top, al, 0.5f);
    REFUSED(top, reclaim, PLEAT_RECLAIM_COPY);
    REFUSED(top, crush, 1);
    REFUSED(top, pack, 1);
}

/* What does not fit, or has no end. */
static void test_print_writes_nothing(void) {
    pleat_spec lean, profile;
    char text[PLEAT_SPEC_TEXT_CAP] = "untouched";
    (void)pleat_spec_parse("leankv", &lean, NULL);
    (void)pleat_spec_parse("leankv:profile=a", &profile, NULL);
    memset(profile.profile, 'p', sizeof profile.profile); /* no NUL */
    CHECK_STATUS(pleat_spec_print(&profile, text, sizeof text), PLEAT_E_ARG);
    CHECK_STATUS(pleat_spec_print(&lean, text, 3), PLEAT_E_ARG);
    CHECK_STATUS(pleat_spec_print(NULL, text, sizeof text), PLEAT_E_ARG);
    CHECK_EQ_STR(text, "untouched");
}

static const check_test tests[] = {
    {"round_trip", test_round_trip},
    {"canonical", test_canonical},
    {"defaults", test_defaults},
    {"any_round_trip", test_any_round_trip},
    {"locale", test_locale},
    {"path_lengths", test_path_lengths},
    {"bad_names", test_bad_names},
    {"bad_keys", test_bad_keys},
    {"bad_values", test_bad_values},
    {"cache_types", test_cache_types},
    {"token_bytes", test_token_bytes},
    {"print_refuses_nonsense_of_f16", test_print_refuses_nonsense_of_f16},
    {"print_refuses_nonsense_of_leankv", test_print_refuses_nonsense_of_leankv},
    {"print_refuses_nonsense_of_topk", test_print_refuses_nonsense_of_topk},
    {"print_writes_nothing", test_print_writes_nothing},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
