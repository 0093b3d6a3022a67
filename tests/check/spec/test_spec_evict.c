/* SPDX-License-Identifier: MIT
 *
 * test_spec_evict.c: the KV spec of policies that evict, their budgets, and the stage behind them.
 */
#include "spec_rig.h"

/* ---- what is valid -------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    pleat_policy policy;
    uint32_t window, sinks;
} evictions[] = {
    {"random", PLEAT_POLICY_RANDOM, 64, 4},      {"recent", PLEAT_POLICY_RECENT, 1, 0},
    {"streaming", PLEAT_POLICY_STREAMING, 1, 4}, {"h2o", PLEAT_POLICY_H2O, 64, 4},
    {"snapkv", PLEAT_POLICY_SNAPKV, 64, 4},      {"pyramidkv", PLEAT_POLICY_PYRAMIDKV, 64, 4},
    {"adakv", PLEAT_POLICY_ADAKV, 64, 4},        {"novel", PLEAT_POLICY_NOVEL, 32, 4},
    {"expected", PLEAT_POLICY_EXPECTED, 32, 4},  {"dropkv", PLEAT_POLICY_DROPKV, 64, 4},
    {"kvzip", PLEAT_POLICY_KVZIP, 32, 4},        {"leverage", PLEAT_POLICY_LEVERAGE, 32, 4},
};

static void test_defaults(void) {
    for (size_t i = 0; i < CHECK_COUNT(evictions); i++) {
        pleat_spec s;
        check_context("%s", evictions[i].name);
        if (!CHECK_STATUS(pleat_spec_parse(evictions[i].name, &s, NULL), PLEAT_OK)) continue;
        CHECK(s.policy == evictions[i].policy && s.window == evictions[i].window && s.sinks == evictions[i].sinks);
        CHECK(budget_is(&s, 0.25, PLEAT_BUDGET_SHARE) && s.reclaim == PLEAT_RECLAIM_REUSE);
        CHECK(s.high.k_bits == 8 && s.high.v_bits == 4 && s.low.k_bits == 0 && s.low.v_bits == 0);
        CHECK(s.ah == 0 && s.al == 0 && s.keep == 0 && s.profile[0] == 0);
        CHECK(s.merge == 0 && s.novel == 0 && s.crush == 0 && s.share == 0 && s.anchor == 0 && s.unit == 0);
    }
}

static void test_fields(void) {
    pleat_spec s;
    CHECK_STATUS(pleat_spec_parse("h2o:budget=30%,reclaim=block,sinks=7+kvcrush", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 0.3, PLEAT_BUDGET_SHARE) && s.reclaim == PLEAT_RECLAIM_BLOCK && s.sinks == 7);
    CHECK(s.crush == 1 && s.share == 0.25f && s.anchor == PLEAT_ANCHOR_MEAN && s.unit == PLEAT_CRUSH_TOKEN);
    CHECK_STATUS(pleat_spec_parse("h2o:budget=512+kvcrush:share=10%,anchor=kmeans,unit=page", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 512, PLEAT_BUDGET_TOKENS) && s.window == 64 && s.sinks == 4);
    CHECK(s.crush == 1 && s.share == 0.1f && s.anchor == PLEAT_ANCHOR_KMEANS && s.unit == PLEAT_CRUSH_PAGE);
    CHECK_STATUS(pleat_spec_parse("random:budget=1.5MiB+kvcrush:anchor=alternate", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 1572864, PLEAT_BUDGET_BYTES) && s.anchor == PLEAT_ANCHOR_ALTERNATE && s.merge == 0);
    CHECK_STATUS(pleat_spec_parse("snapkv:budget=12.5%+merge", &s, NULL), PLEAT_OK);
    CHECK(budget_is(&s, 0.125, PLEAT_BUDGET_SHARE) && s.merge == 1 && s.crush == 0 && s.share == 0);
    CHECK_STATUS(pleat_spec_parse("adakv+novel:share=30%,mean=model", &s, NULL), PLEAT_OK);
    CHECK(s.policy == PLEAT_POLICY_ADAKV && s.novel == 1 && s.share == 0.3f && s.mean == PLEAT_KEY_MEAN_MODEL);
    CHECK(s.merge == 0 && s.crush == 0);
    CHECK_STATUS(pleat_spec_parse("leverage:near=2", &s, NULL), PLEAT_OK);
    CHECK(s.policy == PLEAT_POLICY_LEVERAGE && s.near == 2 && s.fall == 0);
    CHECK_STATUS(pleat_spec_parse("leverage:fall=60%", &s, NULL), PLEAT_OK);
    CHECK(s.fall == 0.6f);
}

static void test_canonical(void) {
    static const text_pair cases[] = {
        {"random", "random:budget=25%"},
        {"recent", "recent:budget=25%"},
        {"streaming", "streaming:budget=25%"},
        {"h2o", "h2o:budget=25%"},
        {"snapkv", "snapkv:budget=25%"},
        {"pyramidkv", "pyramidkv:budget=25%"},
        {"adakv", "adakv:budget=25%"},
        {"novel:window=32,format=k8v4", "novel:budget=25%"},
        {"novel:sinks=0,budget=50%,window=64,reclaim=copy", "novel:budget=50%,window=64,sinks=0,reclaim=copy"},
        {"novel:mean=model,budget=50%,reclaim=copy", "novel:budget=50%,reclaim=copy,mean=model"},
        {"novel:mean=prompt,near=0", "novel:budget=25%"},
        {"novel:near=2,mean=model", "novel:budget=25%,mean=model,near=2"},
        {"expected:window=32,budget=1KiB+merge", "expected:budget=1KiB+merge"},
        {"kvzip:format=k8v4,budget=50%,window=8", "kvzip:budget=50%,window=8"},
        {"dropkv:window=64,budget=1KiB+novel", "dropkv:budget=1KiB+novel:share=50%"},
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
        {"h2o+merge", "h2o:budget=25%+merge"},
        {"snapkv+novel", "snapkv:budget=25%+novel:share=50%"},
        {"recent+novel:mean=prompt,share=1", "recent:budget=25%+novel:share=100%"},
        {"h2o:budget=512+novel:mean=model,share=0", "h2o:budget=512+novel:share=0%,mean=model"},
        {"novel:mean=model+merge", "novel:budget=25%,mean=model+merge"},
        {"recent:format=f16,budget=1MiB+merge", "recent:budget=1MiB,format=f16+merge"},
    };
    check_canonical(cases, CHECK_COUNT(cases));
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

/* Any valid spec that evicts, with kvcrush in half the cases where that may follow, merge in half of the others, and
 * novel in half of what is left. */
static pleat_spec any_eviction(void) {
    const size_t row = check_below(CHECK_COUNT(evictions));
    pleat_spec s = {.high = any_format(), .policy = evictions[row].policy, .window = 1};
    if (evictions[row].window > 1) s.window = (uint32_t)check_between(1, 1u << check_below(25));
    if (evictions[row].sinks > 0) s.sinks = (uint32_t)check_between(0, 1u << check_below(25));
    s.budget = any_budget(s.sinks + s.window);
    s.reclaim = (pleat_reclaim)check_below(4);
    if (s.policy == PLEAT_POLICY_NOVEL) s.mean = (pleat_key_mean)check_below(2);
    if (s.policy == PLEAT_POLICY_NOVEL) s.near = (uint32_t)check_below(pleat__min_u32(s.window / 2, 16) + 1);
    if (s.policy == PLEAT_POLICY_LEVERAGE) s.near = (uint32_t)check_below(17);
    if (s.policy == PLEAT_POLICY_LEVERAGE) s.fall = check_below(3) ? any_number(0.95f) : 0;
    s.crush = s.policy < PLEAT_POLICY_NOVEL && check_below(2);
    s.merge = !s.crush && s.policy < PLEAT_POLICY_DROPKV && check_below(2);
    s.novel =
        (s.policy < PLEAT_POLICY_NOVEL || s.policy == PLEAT_POLICY_DROPKV) && !s.crush && !s.merge && check_below(2);
    if (!s.crush && !s.novel) return s;
    s.share = check_below(8) ? any_number(1) : (float)check_below(2);
    if (s.novel) s.mean = (pleat_key_mean)check_below(2);
    if (s.novel) s.near = (uint32_t)check_below(17);
    if (s.novel) return s;
    s.anchor = (pleat_anchor)check_below(4);
    s.unit = (pleat_crush_unit)check_below(2);
    return s;
}

static void test_any_round_trip(void) { check_round_trips(any_eviction); }

/* ---- what is refused ------------------------------------------------------------------------------------ */

#define BUDGETS "it must be tokens (1 to 16777216), a share (above 0% up to 100%) or bytes (1B to 1048576GiB)"

static void test_budget_errors(void) {
    static const bad_text cases[] = {
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
    };
    check_refused(cases, CHECK_COUNT(cases));
}

static void test_errors(void) {
    static const bad_text cases[] = {
        {"h20", 0, "did you mean 'h2o'"},
        {"pyramid_kv_with_a_name_longer_than_any_word_that_is_allowed", 0,
         "snapkv, pyramidkv, adakv, novel, expected, dropkv, kvzip, leverage, kvcomp, kivi, rd, auto"},
        {"h2o:budgt=1", 4, "unknown key 'budgt' at position 4; did you mean 'budget'?"},
        {"h2o:", 4, "a key is missing at position 4; h2o has: budget, window, sinks, format, reclaim"},
        {"novel:budget=35", 13, "budget=35 is below sinks=4 + window=32: at least 36, at position 13"},
        {"recent:sinks=4", 7, "recent has: budget, format, reclaim"},
        {"recent:window=4", 7, "recent has: budget, format, reclaim"},
        {"streaming:window=4", 10, "streaming has: budget, sinks, format, reclaim"},
        {"h2o:sinks=-1", 10, "sinks '-1' at position 10: it must be a whole number from 0 to 16777216"},
        {"h2o:sinks=16777217", 10, "a whole number from 0 to 16777216"},
        {"h2o:window=0", 11, "a whole number from 1 to 16777216"},
        {"h2o:format=k9v9", 11, "format 'k9v9' at position 11: it must be a format"},
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
        {"leverage:fall=96%", 14, "fall '96%' at position 14: it must be a share from 0 to 0.95"},
        {"novel:near=17", 11, "near '17' at position 11: it must be a whole number from 0 to 16"},
        {"novel:window=3,near=2", 20, "near=2 asks for a window of 4 at least, not of 3"},
        {"novel:mean=token", 11, "mean 'token' at position 11: it must be prompt or model"},
        {"h2o:mean=model", 4, "unknown key 'mean' at position 4"},
        {"novel+kvcrush", 6, "only merge can follow novel; kvcrush can follow random"},
        {"expected+novel", 9, "only merge can follow expected; novel can follow random"},
        {"dropkv+merge", 7, "only novel can follow dropkv; merge can follow random"},
        {"dropkv+kvcrush", 7, "only novel can follow dropkv; kvcrush can follow random"},
        {"kvzip+novel", 6, "nothing can follow kvzip; novel can follow random"},
        {"novel+novel", 6, "only merge can follow novel; novel can follow random"},
        {"k8v4+novel", 5, "'novel' at position 5: nothing can follow k8v4; novel can follow random, recent"},
        {"h2o+novel:budget=5", 10, "unknown key 'budget' at position 10"},
        {"h2o+novel+merge", 10, "nothing can follow +novel; merge can follow random"},
        {"topk+kvcrush", 5, "nothing can follow topk; kvcrush can follow random"},
        {"h2o+", 4, "'' at position 4: only kvcrush, merge or novel can follow h2o"},
        {"h2o:budget=1KiB+", 16, "only kvcrush, merge or novel can follow h2o"},
        {"h2o+f16", 4, "'f16' at position 4: only kvcrush, merge or novel can follow h2o"},
        {"h2o+snapkv", 4, "only kvcrush, merge or novel can follow h2o"},
        {"h2o+kvcrash", 4, "'kvcrash' at position 4: only kvcrush, merge or novel can follow h2o"},
        {"h2o+kvcrush+kvcrush", 12, "'kvcrush' at position 12: nothing can follow +kvcrush"},
        {"h2o+kvcrush:share=1+", 20, "'' at position 20: nothing can follow +kvcrush"},
        {"h2o+kvcrush+f16", 12, "nothing can follow +kvcrush"},
        {"h2o+kvcrush:", 12, "a key is missing at position 12; kvcrush has: share, anchor, unit"},
        {"h2o+kvcrush:budget=1", 12, "unknown key 'budget' at position 12"},
        {"h2o:share=25%", 4, "unknown key 'share'"},
        {"h2o+kvcrush:share=1,share=0", 20, "'share' at position 20 was given already, at position 12"},
        {"h2o+kvcrush:share=-1%", 18, "share '-1%' at position 18: it must be a share from 0 to 1, as 25% or 0.25"},
        {"h2o+kvcrush:share=101%", 18, "a share from 0 to 1"},
        {"h2o+kvcrush:share=nan", 18, "a share from 0 to 1"},
        {"h2o+kvcrush:share=", 18, "share has no value at position 18"},
        {"h2o+kvcrush:anchor=men", 19, "did you mean 'mean'? it must be mean, random, alternate or kmeans"},
        {"merge", 0, "'merge' at position 0 must stand behind one of random, recent, streaming, h2o"},
        {"k8v4+merge", 5, "'merge' at position 5: nothing can follow k8v4; merge can follow random, recent"},
        {"h2o+merge:share=1", 10, "'share' at position 10: merge takes no options"},
        {"h2o+merge+merge", 10, "'merge' at position 10: nothing can follow +merge"},
        {"h2o+kvcrush+merge", 12, "'merge' at position 12: nothing can follow +kvcrush; merge can follow random"},
        {"h2o+merge+kvcrush", 10, "'kvcrush' at position 10: nothing can follow +merge; kvcrush can follow random"},
        {"kvcomp+merge", 7, "'merge' at position 7: only pack or auto can follow kvcomp; merge can follow random"},
        {"h2o+kvcrush:unit=pag", 17, "did you mean 'page'? it must be token or page"},
    };
    check_refused(cases, CHECK_COUNT(cases));
}

/* No message is cut: each ends as its case does. */
static void test_errors_are_whole(void) {
    static const char *const cases[][2] = {
        {"pyramid_kv_with_a_name_longer_than_any_word_that_is_allowed", "auto"},
        {"leankv:profile=a_path_that_is_long_enough_to_move_what_follows_to_a_hundred_and_more_bytes_from_start+"
         "kvcrush",
         "adakv"},
        {"h2o+kvcrush+kvcrush", ": nothing can follow +kvcrush"}, /* which had its place */
        {"kvcomp+pack+pack", ": nothing can follow +pack"},
        {"h2o:budget=1.00000000000000000000000000000000000000000000001KB", "GiB"},
        {"h2o:format=a_word_that_is_longer_than_what_an_error_shows_of_it", "h2v2"},
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

/* Specs filled in by hand: each differs from a valid one in what is named. */
static void test_print_refuses_nonsense(void) {
    pleat_spec h2o, recent, streaming, crush;
    (void)pleat_spec_parse("h2o:budget=512", &h2o, NULL);
    (void)pleat_spec_parse("recent:budget=10%", &recent, NULL);
    (void)pleat_spec_parse("streaming", &streaming, NULL);
    (void)pleat_spec_parse("h2o:budget=1KiB+kvcrush:anchor=kmeans", &crush, NULL);
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
    REFUSED(h2o, compressor, PLEAT_COMPRESSOR_KVCOMP);
    REFUSED(h2o, buffer, 128);
    REFUSED(crush, pack, 1);
    REFUSED(crush, merge, 1);
    REFUSED(crush, novel, 1);
    REFUSED(crush, mean, PLEAT_KEY_MEAN_MODEL);
    REFUSED(h2o, novel, 2);
    REFUSED(h2o, merge, 2);
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
}

static const check_test tests[] = {
    {"defaults", test_defaults},
    {"fields", test_fields},
    {"canonical", test_canonical},
    {"any_round_trip", test_any_round_trip},
    {"budget_errors", test_budget_errors},
    {"errors", test_errors},
    {"stage_errors", test_stage_errors},
    {"errors_are_whole", test_errors_are_whole},
    {"print_refuses_nonsense", test_print_refuses_nonsense},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
