/* SPDX-License-Identifier: MIT
 *
 * test_spec.c: the KV spec: every name round-trips, every error names its position and the nearest word.
 */
#include <locale.h>
#include <math.h>
#include <string.h>

#include "cache/spec.h"
#include "check.h"

static const char *const names[] = {"f32",  "f16",  "k8v8", "k8v4", "k8v2", "k4v8",
                                    "k4v4", "k4v2", "k2v8", "k2v4", "k2v2"};

static void test_round_trip(void) {
    for (size_t i = 0; i < CHECK_COUNT(names); i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        check_context("%s", names[i]);
        if (!CHECK_STATUS(pleat_spec_parse(names[i], &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, names[i]);
        if (names[i][0] != 'k') continue;
        CHECK_EQ_U64(spec.high.k_bits, (uint64_t)(names[i][1] - '0'));
        CHECK_EQ_U64(spec.high.v_bits, (uint64_t)(names[i][3] - '0'));
    }
}

/* Texts and their canonical form. */
static void test_canonical(void) {
    static const char *const cases[][2] = {
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
        {"leankv:profile=models/a=b:c d.json", "leankv:profile=models/a=b:c d.json"},
        {"topk", "topk:keep=50%"},
        {"topk:keep=0.25,format=f32,window=16777216", "topk:keep=25%,window=16777216,format=f32"},
        {"topk:window=64,format=k8v4,keep=33.3%", "topk:keep=33.3%"},
        {"topk:keep=1", "topk:keep=100%"},
        {"topk:keep=1e-7%", "topk:keep=1e-7%"},
        {"random", "random:budget=25%"},
        {"recent", "recent:budget=25%"},
        {"streaming", "streaming:budget=25%"},
        {"h2o", "h2o:budget=25%"},
        {"snapkv", "snapkv:budget=25%"},
        {"pyramidkv", "pyramidkv:budget=25%"},
        {"adakv", "adakv:budget=25%"},
        {"h2o:reclaim=none,format=f16,sinks=0,window=1,budget=1",
         "h2o:budget=1,window=1,sinks=0,format=f16,reclaim=none"},
        {"snapkv:window=64,sinks=4,format=k8v4,reclaim=reuse,budget=00068", "snapkv:budget=68"},
        {"streaming:budget=5,reclaim=copy", "streaming:budget=5,reclaim=copy"},
        {"recent:budget=1,reclaim=block,format=k4v4", "recent:budget=1,format=k4v4,reclaim=block"},
        {"adakv:budget=16777216", "adakv:budget=16777216"},
        {"adakv:sinks=16777152,budget=16777216", "adakv:budget=16777216,sinks=16777152"},
        {"adakv:sinks=16777216,window=16777216", "adakv:budget=25%,window=16777216,sinks=16777216"},
        {"random:budget=100%", "random:budget=100%"},
        {"random:budget=100.000%", "random:budget=100%"},
        {"random:budget=1e2%", "random:budget=100%"},
        {"random:budget=33.3%", "random:budget=33.3%"},
        {"random:budget=33.333333333333336%", "random:budget=33.333333333333337%"},
        {"random:budget=.1%", "random:budget=0.1%"},
        {"random:budget=1e-300%", "random:budget=1e-300%"},
        {"h2o:budget=1B", "h2o:budget=1B"},
        {"h2o:budget=1023B", "h2o:budget=1023B"},
        {"h2o:budget=1024B", "h2o:budget=1KiB"},
        {"h2o:budget=1025B", "h2o:budget=1025B"},
        {"h2o:budget=64KiB", "h2o:budget=64KiB"},
        {"h2o:budget=1.5KiB", "h2o:budget=1536B"},
        {"h2o:budget=1.5MiB", "h2o:budget=1536KiB"},
        {"h2o:budget=3072KiB", "h2o:budget=3MiB"},
        {"h2o:budget=1024MiB", "h2o:budget=1GiB"},
        {"h2o:budget=1e3MiB", "h2o:budget=1000MiB"},
        {"h2o:budget=1125899906842624B", "h2o:budget=1048576GiB"},
        {"h2o:budget=1125899906842623B", "h2o:budget=1125899906842623B"},
        {"h2o:budget=1048576GiB", "h2o:budget=1048576GiB"},
        {"h2o+kvcrush", "h2o:budget=25%+kvcrush:share=25%"},
        {"recent+kvcrush:unit=page,anchor=kmeans,share=0",
         "recent:budget=25%+kvcrush:share=0%,anchor=kmeans,unit=page"},
        {"snapkv:budget=512+kvcrush:anchor=mean,unit=token,share=1", "snapkv:budget=512+kvcrush:share=100%"},
        {"adakv:budget=1MiB+kvcrush:anchor=alternate,share=12.5%",
         "adakv:budget=1MiB+kvcrush:share=12.5%,anchor=alternate"},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_spec spec;
        char text[PLEAT_SPEC_TEXT_CAP];
        check_context("%s", cases[i][0]);
        if (!CHECK_STATUS(pleat_spec_parse(cases[i][0], &spec, NULL), PLEAT_OK)) continue;
        CHECK_STATUS(pleat_spec_print(&spec, text, sizeof text), PLEAT_OK);
        CHECK_EQ_STR(text, cases[i][1]);
    }
}

static void test_defaults(void) {
    pleat_spec s;
    CHECK_STATUS(pleat_spec_parse("leankv", &s, NULL), PLEAT_OK);
    CHECK(s.policy == PLEAT_POLICY_LEANKV && s.ah == 3 && s.al == 0 && s.window == 64 && s.keep == 0);
    CHECK(s.high.k_bits == 8 && s.high.v_bits == 4 && s.low.k_bits == 4 && s.low.v_bits == 2);
    CHECK(s.threshold == PLEAT_THRESHOLD_LENGTH && s.step == PLEAT_STEP_PAPER && s.profile[0] == 0);
    CHECK_STATUS(pleat_spec_parse("topk:format=k4v4", &s, NULL), PLEAT_OK);
    CHECK(s.policy == PLEAT_POLICY_TOPK && s.keep == 0.5f && s.window == 64 && s.ah == 0 && s.al == 0);
    CHECK(s.high.k_bits == 4 && s.high.v_bits == 4 && s.low.k_bits == 0 && s.low.v_bits == 0);
}

static const struct {
    const char *name;
    pleat_policy policy;
    uint32_t window, sinks;
} evictions[] = {
    {"random", PLEAT_POLICY_RANDOM, 64, 4},      {"recent", PLEAT_POLICY_RECENT, 1, 0},
    {"streaming", PLEAT_POLICY_STREAMING, 1, 4}, {"h2o", PLEAT_POLICY_H2O, 64, 4},
    {"snapkv", PLEAT_POLICY_SNAPKV, 64, 4},      {"pyramidkv", PLEAT_POLICY_PYRAMIDKV, 64, 4},
    {"adakv", PLEAT_POLICY_ADAKV, 64, 4},
};

static bool budget_is(const pleat_spec *s, double value, pleat_budget_unit unit) {
    return s->budget.value == value && s->budget.unit == unit;
}

static void test_eviction_defaults(void) {
    for (size_t i = 0; i < CHECK_COUNT(evictions); i++) {
        pleat_spec s;
        check_context("%s", evictions[i].name);
        if (!CHECK_STATUS(pleat_spec_parse(evictions[i].name, &s, NULL), PLEAT_OK)) continue;
        CHECK(s.policy == evictions[i].policy && s.window == evictions[i].window && s.sinks == evictions[i].sinks);
        CHECK(budget_is(&s, 0.25, PLEAT_BUDGET_SHARE) && s.reclaim == PLEAT_RECLAIM_REUSE);
        CHECK(s.high.k_bits == 8 && s.high.v_bits == 4 && s.low.k_bits == 0 && s.low.v_bits == 0);
        CHECK(s.ah == 0 && s.al == 0 && s.keep == 0 && s.profile[0] == 0);
        CHECK(s.crush == 0 && s.share == 0 && s.anchor == 0 && s.unit == 0);
    }
}

static void test_eviction_fields(void) {
    pleat_spec s;
    CHECK_STATUS(pleat_spec_parse("h2o:budget=30%,reclaim=block,sinks=7+kvcrush", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 0.3, PLEAT_BUDGET_SHARE) && s.reclaim == PLEAT_RECLAIM_BLOCK && s.sinks == 7);
    CHECK(s.crush == 1 && s.share == 0.25f && s.anchor == PLEAT_ANCHOR_MEAN && s.unit == PLEAT_CRUSH_TOKEN);
    CHECK_STATUS(pleat_spec_parse("h2o:budget=512+kvcrush:share=10%,anchor=kmeans,unit=page", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 512, PLEAT_BUDGET_TOKENS) && s.window == 64 && s.sinks == 4);
    CHECK(s.crush == 1 && s.share == 0.1f && s.anchor == PLEAT_ANCHOR_KMEANS && s.unit == PLEAT_CRUSH_PAGE);
    CHECK_STATUS(pleat_spec_parse("random:budget=1.5MiB+kvcrush:anchor=alternate", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 1572864, PLEAT_BUDGET_BYTES) && s.anchor == PLEAT_ANCHOR_ALTERNATE);
}

static pleat_format any_format(void) {
    pleat_spec s;
    (void)pleat_spec_parse(names[check_below(CHECK_COUNT(names))], &s, NULL);
    return s.high;
}

/* A number of any magnitude up to `most`. */
static float any_number(double most) {
    const double x = check_uniform(0, most) * pow(10, -(double)check_below(44));
    return check_below(4) ? (float)x : (float)(x - fmod(x, 0.01));
}

/* Bytes of any magnitude, with any number of zeros behind; a share of any digits. */
static pleat_budget any_budget(uint32_t least_tokens) {
    const uint64_t bytes = check_between(1, 1ull << check_below(51)) >> check_below(51) << check_below(51);
    double share = check_uniform(0, 1) * pow(10, -(double)check_below(44));
    if (check_below(2)) share = (double)check_between(1, 1000) / 1000;
    if (check_below(3) == 0 && least_tokens <= 1u << 24)
        return (pleat_budget){(double)check_between(least_tokens, 1u << 24), PLEAT_BUDGET_TOKENS};
    if (check_below(2) && bytes > 0 && bytes <= 1ull << 50) return (pleat_budget){(double)bytes, PLEAT_BUDGET_BYTES};
    return (pleat_budget){share > 0 ? share : 1, PLEAT_BUDGET_SHARE};
}

/* Any valid spec that evicts, with kvcrush in half the cases. */
static pleat_spec any_eviction(void) {
    const size_t row = check_below(CHECK_COUNT(evictions));
    pleat_spec s = {.high = any_format(), .policy = evictions[row].policy, .window = 1};
    if (evictions[row].window > 1) s.window = (uint32_t)check_between(1, 1u << check_below(25));
    if (evictions[row].sinks > 0) s.sinks = (uint32_t)check_between(0, 1u << check_below(25));
    s.budget = any_budget(s.sinks + s.window);
    s.reclaim = (pleat_reclaim)check_below(4);
    s.crush = (uint32_t)check_below(2);
    if (!s.crush) return s;
    s.share = check_below(8) ? any_number(1) : (float)check_below(2);
    s.anchor = (pleat_anchor)check_below(4);
    s.unit = (pleat_crush_unit)check_below(2);
    return s;
}

/* Any valid spec of a policy. */
static pleat_spec any_spec(void) {
    if (check_below(2)) return any_eviction();
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
    return s;
}

/* Whatever is valid prints, and reads back as the same to the last bit. */
static void test_any_round_trip(void) {
    for (uint64_t i = 0; i < check_rounds(20000, 2000); i++) {
        const pleat_spec a = any_spec();
        pleat_spec b;
        char text[PLEAT_SPEC_TEXT_CAP], again[PLEAT_SPEC_TEXT_CAP];
        if (!CHECK_STATUS(pleat_spec_print(&a, text, sizeof text), PLEAT_OK)) return;
        check_context("%s", text);
        if (!CHECK_STATUS(pleat_spec_parse(text, &b, NULL), PLEAT_OK)) return;
        CHECK(a.ah == b.ah && a.al == b.al && a.keep == b.keep && a.window == b.window && a.policy == b.policy);
        CHECK(a.high.k_bits == b.high.k_bits && a.high.v_bits == b.high.v_bits && a.low.k_bits == b.low.k_bits);
        CHECK(a.low.v_bits == b.low.v_bits && a.threshold == b.threshold && a.step == b.step);
        CHECK(budget_is(&b, a.budget.value, a.budget.unit) && a.sinks == b.sinks && a.reclaim == b.reclaim);
        CHECK(a.crush == b.crush && a.share == b.share && a.anchor == b.anchor && a.unit == b.unit);
        CHECK_STATUS(pleat_spec_print(&b, again, sizeof again), PLEAT_OK);
        CHECK_EQ_STR(again, text);
        if (check_failures()) return;
    }
}

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

typedef struct bad_text {
    const char *text;
    uint64_t where;
    const char *says;
} bad_text;

static void check_refused(const bad_text *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        pleat_error err = {0};
        pleat_spec spec = {.high = {1, 2}};
        check_context("'%s'", cases[i].text);
        CHECK_STATUS(pleat_spec_parse(cases[i].text, &spec, &err), PLEAT_E_SYNTAX);
        CHECK_EQ_U64(err.where, cases[i].where);
        if (!CHECK(strstr(err.text, cases[i].says) != NULL)) check_context("said: %s", err.text);
        CHECK(spec.high.k_bits == 1 && spec.high.v_bits == 2); /* untouched */
    }
}

static void test_errors_name_position_and_word(void) {
    static const bad_text cases[] = {
        {"", 0, "missing"},
        {"k8v5", 0, "'k8v8'"},
        {"f1", 0, "'f16'"},
        {"K8V4", 0, "unknown name"},
        {" f16", 0, "unknown name"},
        {"k8v4:", 5, "no options"},
        {"k8v4:window=3", 5, "'window'"},
        {"f16+k8v4", 4, "'k8v4'"},
        {"k8v4+", 5, "nothing can"},
        {"+f16", 0, "missing"},
        {":a=1", 0, "missing"},
        {"f16 ", 0, "'f16'"},
        {"quite_a_long_name_that_is_longer_than_any_word_allowed_here", 0, "unknown name"},
        {"leankw", 0, "'leankv'"},
        {"top", 0, "did you mean 'topk'"},
        {"leankv:", 7,
         "a key is missing at position 7; leankv has: ah, al, window, high, low, threshold, step, profile"},
        {"topk:keep=1,", 12, "a key is missing at position 12; topk has: keep, window, format"},
        {"leankv:windw=3", 7, "unknown key 'windw' at position 7; did you mean 'window'"},
        {"topk:ah=1", 5, "unknown key 'ah'"},
        {"leankv:ah=1,al=0,ah=2", 17, "'ah' at position 17 was given already, at position 7"},
        {"leankv:ah", 7, "'ah' at position 7 needs '='"},
        {"leankv:ah,al=1", 7, "'ah' at position 7 needs '='"},
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
    CHECK_STATUS(pleat_spec_parse(NULL, NULL, NULL), PLEAT_E_ARG);
}

#define BUDGETS "it must be tokens (1 to 16777216), a share (above 0% up to 100%) or bytes (1B to 1048576GiB)"

static void test_eviction_errors(void) {
    static const bad_text cases[] = {
        {"h20", 0, "did you mean 'h2o'"},
        {"pyramid_kv_with_a_name_longer_than_any_word_that_is_allowed", 0, "snapkv, pyramidkv, adakv"},
        {"h2o:budgt=1", 4, "unknown key 'budgt' at position 4; did you mean 'budget'?"},
        {"h2o:", 4, "a key is missing at position 4; h2o has: budget, window, sinks, format, reclaim"},
        {"recent:sinks=4", 7, "recent has: budget, format, reclaim"},
        {"recent:window=4", 7, "recent has: budget, format, reclaim"},
        {"streaming:window=4", 10, "streaming has: budget, sinks, format, reclaim"},
        {"h2o:budget=", 11, "budget has no value at position 11: " BUDGETS},
        {"h2o:budget=0", 11, "budget '0' at position 11: " BUDGETS},
        {"h2o:budget=-1", 11, "budget '-1' at position 11: " BUDGETS},
        {"h2o:budget=nan", 11, "'nan' at position 11: " BUDGETS},
        {"h2o:budget=inf", 11, "'inf' at position 11: " BUDGETS},
        {"h2o:budget=16777217", 11, "'16777217' at position 11: " BUDGETS},
        {"h2o:budget=99999999999999999999", 11, BUDGETS},
        {"h2o:budget=512.0", 11, BUDGETS},
        {"h2o:budget=5e2", 11, BUDGETS},
        {"h2o:budget= 512", 11, BUDGETS},
        {"h2o:budget=0.25", 11, "budget '0.25' at position 11: " BUDGETS "; a share is written with %"},
        {"h2o:budget=.5", 11, "a share is written with %"},
        {"h2o:budget=0%", 11, "budget '0%' at position 11: " BUDGETS},
        {"h2o:budget=-0%", 11, BUDGETS},
        {"h2o:budget=-5%", 11, "'-5%' at position 11: " BUDGETS},
        {"h2o:budget=100.1%", 11, "'100.1%' at position 11: " BUDGETS},
        {"h2o:budget=1e-999%", 11, BUDGETS},
        {"h2o:budget=1e999%", 11, BUDGETS},
        {"h2o:budget=nan%", 11, "'nan%' at position 11: " BUDGETS},
        {"h2o:budget=inf%", 11, BUDGETS},
        {"h2o:budget=%", 11, BUDGETS},
        {"h2o:budget=25%%", 11, BUDGETS},
        {"h2o:budget=25 %", 11, BUDGETS},
        {"h2o:budget=0B", 11, "budget '0B' at position 11: " BUDGETS},
        {"h2o:budget=0KiB", 11, BUDGETS},
        {"h2o:budget=-1KiB", 11, BUDGETS},
        {"h2o:budget=nanMiB", 11, BUDGETS},
        {"h2o:budget=B", 11, BUDGETS},
        {"h2o:budget=KiB", 11, BUDGETS},
        {"h2o:budget=0.5B", 11, "'0.5B' at position 11: " BUDGETS "; whole bytes, in B, KiB, MiB or GiB"},
        {"h2o:budget=0.1KiB", 11, "; whole bytes"},
        {"h2o:budget=64KB", 11, "'64KB' at position 11: " BUDGETS "; whole bytes, in B, KiB, MiB or GiB"},
        {"h2o:budget=64K", 11, BUDGETS},
        {"h2o:budget=64kib", 11, BUDGETS},
        {"h2o:budget=1TiB", 11, "in B, KiB, MiB or GiB"},
        {"h2o:budget=64 KiB", 11, BUDGETS},
        {"h2o:budget=1125899906842625B", 11, BUDGETS},
        {"h2o:budget=1048576.5GiB", 11, BUDGETS},
        {"h2o:budget=1e400GiB", 11, BUDGETS},
        {"h2o:budget=99999999999999999999999999999999GiB", 11, BUDGETS},
        {"h2o:budget=50", 11, "budget=50 is below sinks=4 + window=64: at least 68, at position 11"},
        {"h2o:sinks=0,budget=63", 19, "budget=63 is below sinks=0 + window=64: at least 64, at position 19"},
        {"h2o:budget=68,sinks=5", 11, "budget=68 is below sinks=5 + window=64: at least 69, at position 11"},
        {"h2o:budget=16777216,window=16777216,sinks=16777216", 11, "at least 33554432"},
        {"streaming:budget=4", 17, "budget=4 is below sinks=4 + 1: at least 5, at position 17"},
        {"h2o:budget=50+kvcrush", 11, "at least 68"},
        {"h2o:sinks=-1", 10, "sinks '-1' at position 10: it must be a whole number from 0 to 16777216"},
        {"h2o:sinks=16777217", 10, "a whole number from 0 to 16777216"},
        {"h2o:window=0", 11, "a whole number from 1 to 16777216"},
        {"h2o:format=k9v9", 11, "format 'k9v9' at position 11; did you mean"},
        {"h2o:reclaim=resue", 12, "did you mean 'reuse'? it must be reuse, copy, block or none"},
        {"h2o:high=f16", 4, "unknown key 'high'"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

static void test_stage_errors(void) {
    static const bad_text cases[] = {
        {"kvcrush", 0, "'kvcrush' at position 0 must stand behind one of random, recent, streaming, h2o"},
        {"kvcrush:share=1+h2o", 0, "must stand behind one of"},
        {"k8v4+kvcrush", 5, "'kvcrush' at position 5: nothing can follow k8v4; kvcrush can follow random, recent"},
        {"leankv:ah=3+kvcrush", 12, "nothing can follow leankv; kvcrush can follow random"},
        {"topk+kvcrush", 5, "nothing can follow topk; kvcrush can follow random"},
        {"h2o+", 4, "'' at position 4: only kvcrush can follow h2o"},
        {"h2o:budget=1KiB+", 16, "only kvcrush can follow h2o"},
        {"h2o+f16", 4, "'f16' at position 4: only kvcrush can follow h2o"},
        {"h2o+snapkv", 4, "only kvcrush can follow h2o"},
        {"h2o+kvcrash", 4, "'kvcrash' at position 4: only kvcrush can follow h2o"},
        {"h2o+kvcrush+kvcrush", 12, "'kvcrush' at position 12: nothing can follow kvcrush"},
        {"h2o+kvcrush:share=1+", 20, "'' at position 20: nothing can follow kvcrush"},
        {"h2o+kvcrush+f16", 12, "nothing can follow kvcrush"},
        {"h2o+kvcrush:", 12, "a key is missing at position 12; kvcrush has: share, anchor, unit"},
        {"h2o+kvcrush:budget=1", 12, "unknown key 'budget' at position 12"},
        {"h2o:share=25%", 4, "unknown key 'share'"},
        {"h2o+kvcrush:share=1,share=0", 20, "'share' at position 20 was given already, at position 12"},
        {"h2o+kvcrush:share=-1%", 18, "share '-1%' at position 18: it must be a share from 0 to 1, as 25% or 0.25"},
        {"h2o+kvcrush:share=101%", 18, "a share from 0 to 1"},
        {"h2o+kvcrush:share=nan", 18, "a share from 0 to 1"},
        {"h2o+kvcrush:share=", 18, "share has no value at position 18"},
        {"h2o+kvcrush:anchor=men", 19, "did you mean 'mean'? it must be mean, random, alternate or kmeans"},
        {"h2o+kvcrush:unit=pag", 17, "did you mean 'page'? it must be token or page"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

/* No message is cut: each ends as its case does. */
static void test_errors_are_whole(void) {
    static const char *const cases[][2] = {
        {"pyramid_kv_with_a_name_longer_than_any_word_that_is_allowed", "adakv"},
        {"leankv:profile=a_path_that_is_long_enough_to_move_what_follows_to_a_hundred_and_more_bytes_from_start+"
         "kvcrush",
         "adakv"},
        {"h2o:budget=1.00000000000000000000000000000000000000000000001KB", "GiB"},
        {"h2o:format=a_word_that_is_longer_than_what_an_error_shows_of_it", "k2v2"},
    };
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        pleat_error err = {0};
        pleat_spec spec;
        check_context("'%s'", cases[i][0]);
        CHECK_STATUS(pleat_spec_parse(cases[i][0], &spec, &err), PLEAT_E_SYNTAX);
        const size_t n = strlen(err.text), n_end = strlen(cases[i][1]);
        if (!CHECK(n > n_end && strcmp(err.text + n - n_end, cases[i][1]) == 0)) check_context("said: %s", err.text);
    }
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
static void test_print_refuses_nonsense(void) {
    pleat_spec lean, top, profile, h2o, recent, streaming, crush;
    (void)pleat_spec_parse("leankv", &lean, NULL);
    (void)pleat_spec_parse("topk", &top, NULL);
    (void)pleat_spec_parse("leankv:profile=a", &profile, NULL);
    (void)pleat_spec_parse("h2o:budget=512", &h2o, NULL);
    (void)pleat_spec_parse("recent:budget=10%", &recent, NULL);
    (void)pleat_spec_parse("streaming", &streaming, NULL);
    (void)pleat_spec_parse("h2o:budget=1KiB+kvcrush:anchor=kmeans", &crush, NULL);
    char text[PLEAT_SPEC_TEXT_CAP] = "untouched";
    pleat_error err;
#define REFUSED(valid, field, value)                                           \
    do {                                                                       \
        pleat_spec bad_ = (valid);                                             \
        CHECK_STATUS(pleat__spec_check(&bad_, &err), PLEAT_OK);                \
        bad_.field = (value);                                                  \
        err = (pleat_error){0};                                                \
        check_context(#valid "." #field " = " #value);                         \
        CHECK_STATUS(pleat_spec_print(&bad_, text, sizeof text), PLEAT_E_ARG); \
        CHECK_STATUS(pleat__spec_check(&bad_, &err), PLEAT_E_ARG);             \
        CHECK(err.text[0] && err.where == PLEAT_NOWHERE);                      \
    } while (0)
    const pleat_spec f16 = {.high = {16, 16}};
    REFUSED(f16, high.v_bits, 4);
    REFUSED(f16, low.k_bits, 2);
    REFUSED(f16, policy, PLEAT_POLICY_H2O);
    REFUSED(f16, policy, (pleat_policy)(PLEAT_POLICY_ADAKV + 1));
    REFUSED(f16, window, 64);
    REFUSED(f16, ah, 1);
    REFUSED(f16, keep, 0.5f);
    REFUSED(f16, profile[0], 'a');
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
    REFUSED(top, keep, 0);
    REFUSED(top, keep, 1.5f);
    REFUSED(top, keep, NAN);
    REFUSED(top, low, ((pleat_format){4, 2}));
    REFUSED(top, step, PLEAT_STEP_CODE);
    REFUSED(top, al, 0.5f);
    REFUSED(profile, ah, 2);
    REFUSED(profile, window, 3);
    REFUSED(profile, profile[1], '+');
    REFUSED(profile, budget, ((pleat_budget){10, PLEAT_BUDGET_TOKENS}));
    REFUSED(f16, crush, 1);
    REFUSED(f16, sinks, 1);
    REFUSED(f16, share, NAN);
    REFUSED(f16, budget.value, 1);
    REFUSED(f16, budget.value, NAN);
    REFUSED(f16, budget.unit, PLEAT_BUDGET_SHARE);
    REFUSED(top, reclaim, PLEAT_RECLAIM_COPY);
    REFUSED(top, crush, 1);
    REFUSED(lean, crush, 1);
    REFUSED(h2o, policy, PLEAT_POLICY_RECENT);
    REFUSED(h2o, keep, 0.5f);
    REFUSED(h2o, low, ((pleat_format){4, 2}));
    REFUSED(h2o, high.k_bits, 3);
    REFUSED(h2o, step, PLEAT_STEP_CODE);
    REFUSED(h2o, profile[0], 'a');
    REFUSED(h2o, window, 0);
    REFUSED(h2o, window, 509); /* with the sinks above the budget */
    REFUSED(h2o, window, UINT32_MAX);
    REFUSED(h2o, sinks, 449);
    REFUSED(h2o, sinks, 16777217);
    REFUSED(h2o, reclaim, (pleat_reclaim)4);
    REFUSED(h2o, budget.unit, (pleat_budget_unit)3);
    REFUSED(h2o, budget.unit, PLEAT_BUDGET_SHARE);
    REFUSED(h2o, budget.value, 67);
    REFUSED(h2o, budget.value, 512.5);
    REFUSED(h2o, budget.value, 16777217);
    REFUSED(h2o, budget.value, -512);
    REFUSED(h2o, budget.value, NAN);
    REFUSED(h2o, budget.value, INFINITY);
    REFUSED(h2o, crush, 2);
    REFUSED(h2o, share, 0.25f);
    REFUSED(h2o, share, NAN);
    REFUSED(h2o, anchor, PLEAT_ANCHOR_RANDOM);
    REFUSED(h2o, unit, PLEAT_CRUSH_PAGE);
    REFUSED(recent, window, 2);
    REFUSED(recent, window, 0);
    REFUSED(recent, sinks, 4);
    REFUSED(recent, budget.value, 0);
    REFUSED(recent, budget.value, 1.001);
    REFUSED(recent, budget.value, NAN);
    REFUSED(streaming, window, 64);
    REFUSED(streaming, budget, ((pleat_budget){4, PLEAT_BUDGET_TOKENS}));
    REFUSED(crush, crush, 0); /* its anchor stays */
    REFUSED(crush, crush, 2);
    REFUSED(crush, crush, UINT32_MAX);
    REFUSED(crush, share, NAN);
    REFUSED(crush, share, -0.1f);
    REFUSED(crush, share, 1.1f);
    REFUSED(crush, anchor, (pleat_anchor)4);
    REFUSED(crush, unit, (pleat_crush_unit)2);
    REFUSED(crush, policy, PLEAT_POLICY_TOPK);
    REFUSED(crush, budget.value, 0x1p50 + 1);
    REFUSED(crush, budget.value, 0.5);
#undef REFUSED
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
    {"eviction_defaults", test_eviction_defaults},
    {"eviction_fields", test_eviction_fields},
    {"any_round_trip", test_any_round_trip},
    {"locale", test_locale},
    {"path_lengths", test_path_lengths},
    {"errors_name_position_and_word", test_errors_name_position_and_word},
    {"eviction_errors", test_eviction_errors},
    {"stage_errors", test_stage_errors},
    {"errors_are_whole", test_errors_are_whole},
    {"cache_types", test_cache_types},
    {"token_bytes", test_token_bytes},
    {"print_refuses_nonsense", test_print_refuses_nonsense},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
