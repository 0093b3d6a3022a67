/* SPDX-License-Identifier: MIT
 *
 * load.c: see load.h.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "measure.h"
#include "output.h"
#include "profile.h"

const char *const load_devices[] = {"cpu", "cuda", NULL};
const char *const load_activations[] = {"16", "8", NULL};
_Static_assert(sizeof(activation_form) == sizeof(uint32_t), "KIND_WORD writes a uint32_t");

int load_wants_gpu(const load_options *o) { return o->device && strcmp(o->device, "cpu") != 0; }

void load_for_serving(load_options *o) {
    o->in_parts = 1;
    if (!o->chunk_tokens) o->chunk_tokens = load_wants_gpu(o) ? DEVICE_CHUNK_TOKENS : DEFAULT_CHUNK_TOKENS;
}

int load_find_device(const load_options *o, uint32_t *n_devices, uint32_t *device) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_device_info info;
    const char *number = "0";
    char *end = NULL;
    if (!load_wants_gpu(o)) return CLI_OK;
    const int is_numbered = !strncmp(o->device, "cuda:", 5);
    if (is_numbered) number = o->device + 5;
    const unsigned long idx = strtoul(number, &end, 10);
    if ((!is_numbered && strcmp(o->device, "cuda")) || *number < '0' || *number > '9' || *end || idx > UINT16_MAX) {
        cli_error("--device '%s': it is cpu, cuda or cuda:N, the Nth GPU from 0", o->device);
        return CLI_USAGE;
    }
    if (!o->in_parts && o->chunk_tokens != DEFAULT_CHUNK_TOKENS) {
        cli_error("--batch-size: with --device cuda prompts are read whole");
        return CLI_USAGE;
    }
    if (o->activations == ACTIVATIONS_8) {
        cli_error("--activations 8: it is for the CPU; with --device cuda products are of halves");
        return CLI_USAGE;
    }
    const pleat_status status = pleat_device_get_info((uint32_t)idx, &info, &err);
    if (status != PLEAT_OK) return cli_fail("--device cuda", status, &err);
    *n_devices = 1;
    *device = (uint32_t)idx;
    return CLI_OK;
}

int load_workers(uint32_t threads, int is_quiet, pleat_workers **workers) {
    const uint32_t n_cores = pleat_cpu_cores();
    if (threads > n_cores && !is_quiet)
        cli_note("--threads %u is more than the %u cores here: threads will share cores", threads, n_cores);
    const pleat_status status = pleat_workers_create(threads, NULL, workers);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot start the threads", status, NULL);
}

/* Replace every spec that names a profile by what the profile says. */
static int resolve_profiles(load_options *o, common_options *common, const loaded *l) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++) {
        memcpy(o->profiles[i], o->kv.spec[i].profile, sizeof o->profiles[i]);
        options_add_input(common, o->profiles[i]);
        code = profile_resolve(l->model, l->info.name, &o->kv.spec[i]);
        if (code == CLI_OK) pleat_spec_print(&o->kv.spec[i], o->kv.text[i], PLEAT_SPEC_TEXT_CAP);
    }
    return code;
}

/* Whether spec i is a leankv without a key, which takes the profile beside the model. */
static int is_shipped(const load_options *o, uint32_t i) {
    return !o->ignores_shipped && o->kv.is_bare[i] && o->kv.spec[i].policy == PLEAT_POLICY_LEANKV;
}

/* Before anything is loaded: the profile beside the model, where one is going to be read, is a file more that no output
 * may be. */
static int note_shipped(const load_options *o, common_options *common, loaded *l) {
    for (uint32_t i = 0; i < o->kv.n && !l->shipped; i++)
        if (is_shipped(o, i)) l->shipped = profile_path_beside(o->model);
    if (!l->shipped || access(l->shipped, F_OK) != 0) return CLI_OK;
    options_add_input(common, l->shipped);
    return output_check_names(common);
}

/* Replace every leankv without a key by what the profile beside the model says, if there is one for it. */
static int take_shipped(load_options *o, const common_options *common, const loaded *l) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++) {
        pleat_spec *spec = &o->kv.spec[i];
        if (is_shipped(o, i) && profile_take_shipped(l->shipped, l->model, common->quiet, spec, &code))
            pleat_spec_print(spec, o->kv.text[i], PLEAT_SPEC_TEXT_CAP);
    }
    return code;
}

char *load_stats_path(const char *model) { return cli_path_beside(model, ".stats"); }

int load_stats(const load_options *o, loaded *l, const pleat_spec *spec, const char *text) {
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (l->stats || !pleat_spec_takes_stats(spec)) return CLI_OK;
    char *beside = o->stats || !o->model ? NULL : load_stats_path(o->model);
    const char *path = o->stats ? o->stats : beside;
    int code = CLI_OK;
    if (!path || access(path, R_OK) != 0) {
        cli_error("--kv %s: there are no statistics of the model at %s; `pleat stats -m %s --text FILE` makes them",
                  text, path ? path : "--stats", o->model ? o->model : "MODEL");
        code = CLI_FAILED;
    }
    if (code == CLI_OK && pleat_stats_load(path, NULL, &l->stats, &err) != PLEAT_OK)
        code = cli_fail(path, err.code, &err);
    if (code == CLI_OK && (pleat_model_fingerprint(l->model, fingerprint) != PLEAT_OK ||
                           strcmp(fingerprint, pleat_stats_model(l->stats)) != 0)) {
        cli_error("%s is of another model: fingerprint %s, not %s", path, pleat_stats_model(l->stats), fingerprint);
        code = CLI_FAILED;
    }
    free(beside);
    return code;
}

/* Without a second reading of prompts kvzip would keep every token. */
static int check_replays(const load_options *o) {
    for (uint32_t i = 0; i < o->kv.n && !o->replays; i++) {
        if (o->kv.spec[i].policy != PLEAT_POLICY_KVZIP) continue;
        cli_error(
            "--kv %s: kvzip reads a prompt a second time, which `pleat run` with a prompt and `pleat eval` do, and "
            "these not with --prompt-cache, --serve or --report",
            o->kv.text[i]);
        return CLI_USAGE;
    }
    return CLI_OK;
}

/* Statistics that no spec asks for would be left unread.  Where the environment or a file names them, they are there for the
 * specs that do. */
static int check_stats(const load_options *o, const common_options *common) {
    uint32_t n_takers = 0;
    for (uint32_t i = 0; i < o->kv.n; i++) n_takers += pleat_spec_takes_stats(&o->kv.spec[i]) ? 1 : 0;
    if (!o->stats || !o->kv.n || n_takers || !options_on_line(common, "stats")) return CLI_OK;
    cli_error("--stats %s: no --kv asks for statistics of the model: rd, auto and novel:mean=model do", o->stats);
    return CLI_USAGE;
}

static int open_model(const load_options *o, loaded *l) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const double start_s = measure_now_s();
    const pleat_status status = o->image ? pleat_model_load_memory(o->image, o->image_bytes, NULL, &l->model, &err)
                                         : pleat_model_load(o->model, NULL, &l->model, &err);
    if (status != PLEAT_OK) return cli_fail(o->model, status, &err);
    l->load_ms = (measure_now_s() - start_s) * 1e3;
    pleat_model_get_info(l->model, &l->info);
    if (l->info.window) l->windows = cli_alloc(l->info.n_layers, sizeof *l->windows);
    for (uint32_t i = 0; l->windows && i < l->info.n_layers; i++) l->windows[i] = pleat_model_layer_window(l->model, i);
    return CLI_OK;
}

int load_model(load_options *o, common_options *common, loaded *l) {
    memset(l, 0, sizeof *l);
    int code = check_replays(o);
    if (code == CLI_OK) code = check_stats(o, common);
    if (code == CLI_OK) code = load_find_device(o, &l->n_devices, &l->device);
    if (code == CLI_OK) code = note_shipped(o, common, l);
    if (code == CLI_OK) code = open_model(o, l);
    if (code == CLI_OK && l->n_devices && !o->in_parts) o->chunk_tokens = l->info.n_ctx;
    if (code == CLI_OK) code = take_shipped(o, common, l);
    if (code == CLI_OK) code = resolve_profiles(o, common, l);
    for (uint32_t i = 0; i < o->kv.n && code == CLI_OK; i++) code = load_stats(o, l, &o->kv.spec[i], o->kv.text[i]);
    if (code == CLI_OK) code = load_workers(o->threads, common->quiet, &l->workers);
    if (code != CLI_OK) load_release(l);
    return code;
}

void load_release(loaded *l) {
    pleat_workers_destroy(&l->workers);
    free(l->shipped);
    l->shipped = NULL;
    free(l->windows);
    l->windows = NULL;
    pleat_stats_destroy(&l->stats);
    pleat_model_destroy(&l->model);
}

uint32_t load_activation_bits(const load_options *o) { return o->activations == ACTIVATIONS_8 ? 8 : 16; }

/* Say once that sequences may go further than what the statistics serve. */
static void note_reach(const loaded *l, const pleat_spec *spec, uint32_t max_tokens) {
    static int is_said;
    const uint32_t n = pleat_stats_n_positions(l->stats);
    const int is_coded = spec->compressor == PLEAT_COMPRESSOR_RD || spec->compressor == PLEAT_COMPRESSOR_AUTO;
    if (!max_tokens) max_tokens = l->info.n_ctx;
    if (is_said || !is_coded || n == 0 || max_tokens <= n) return;
    is_said = 1;
    cli_note("the statistics serve %u positions, and a sequence may have %u: what stands behind is coded less well; "
             "`pleat stats --positions %u` makes others",
             n, max_tokens, max_tokens);
}

pleat_engine_options load_engine_options(const load_options *o, const loaded *l, pleat_spec spec, uint32_t max_seqs,
                                         uint32_t max_tokens, uint32_t step_tokens) {
    pleat_engine_options opt;
    pleat_engine_options_default(&opt);
    opt.spec = spec;
    opt.max_seqs = max_seqs;
    opt.max_tokens = max_tokens;
    const uint32_t least = pleat_cache_least_tokens(&spec);
    if (max_tokens && max_tokens < least) /* a cache holds what its spec keeps at least, if the model does */
        opt.max_tokens = least < l->info.n_ctx ? least : l->info.n_ctx;
    opt.chunk_tokens = o->chunk_tokens;
    opt.activation_bits = load_activation_bits(o);
    opt.step_tokens = step_tokens;
    opt.workers = l->workers;
    opt.devices = l->n_devices;
    opt.first_device = l->device;
    opt.stats = l->stats;
    note_reach(l, &spec, opt.max_tokens);
    if (!l->n_devices) return opt;
    opt.fixed_splits = o->in_parts ? !o->free_splits : o->fixed_splits;
    if (!o->in_parts) return opt;
    if (!pleat_spec_is_exact(&spec)) /* what follows a prompt would be read token by token */
        opt.chunk_tokens = opt.max_tokens ? opt.max_tokens : l->info.n_ctx;
    return opt;
}

const char *load_choice(const pleat_engine *engine, char buf[PLEAT_SPEC_TEXT_CAP]) {
    pleat_engine_options opt;
    pleat_spec spec;
    pleat_engine_get_options(engine, &opt);
    const pleat_cache *cache = pleat_engine_cache(engine);
    if (opt.spec.compressor != PLEAT_COMPRESSOR_AUTO || pleat_cache_get_choice(cache, &spec) != PLEAT_OK) return NULL;
    return pleat_spec_print(&spec, buf, PLEAT_SPEC_TEXT_CAP) == PLEAT_OK ? buf : NULL;
}

/* Say, once behind each other, where more is held than a budget in bytes. */
static void note_growth(const pleat_engine *engine, const pleat_spec *spec) {
    static char last[PLEAT_SPEC_TEXT_CAP];
    char text[PLEAT_SPEC_TEXT_CAP];
    pleat_cache_traits traits = {.size_bytes = sizeof traits};
    if (!pleat_policy_evicts(spec->policy) || spec->budget.unit != PLEAT_BUDGET_BYTES ||
        pleat_engine_get_traits(engine, &traits) != PLEAT_OK || traits.is_bounded ||
        pleat_spec_print(spec, text, sizeof text) != PLEAT_OK || strcmp(text, last) == 0)
        return;
    strcpy(last, text);
    cli_note("--kv %s: %s", text,
             traits.is_packed ? "bytes are held to when a prompt ends, and what is generated comes on top"
                              : "slots of dropped tokens stay, and come on top of its bytes; reclaim=reuse has none");
}

int load_engine_with(const loaded *l, const pleat_engine_options *opt, pleat_engine **out) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    const pleat_status status = pleat_engine_create(l->model, opt, out, &err);
    if (status == PLEAT_OK) note_growth(*out, &opt->spec);
    return status == PLEAT_OK ? CLI_OK : cli_fail("cannot make the engine", status, &err);
}

int load_engine(const load_options *o, const loaded *l, pleat_spec spec, uint32_t max_seqs, uint32_t max_tokens,
                uint32_t step_tokens, pleat_engine **out) {
    const pleat_engine_options opt = load_engine_options(o, l, spec, max_seqs, max_tokens, step_tokens);
    return load_engine_with(l, &opt, out);
}

pleat_cache_options load_cache_options(const loaded *l, const pleat_engine_options *opt) {
    pleat_cache_options cache;
    pleat_cache_options_default(&cache);
    cache.spec = opt->spec;
    cache.n_layers = l->info.n_layers;
    cache.n_kv_heads = l->info.n_kv_heads;
    cache.n_q_heads = l->info.n_q_heads;
    cache.head_dim = l->info.head_dim;
    cache.page_tokens = opt->page_tokens;
    cache.max_tokens = opt->max_tokens;
    cache.windows = l->windows;
    return cache;
}

uint64_t load_pool_bytes(const loaded *l, const pleat_engine_options *opt, uint32_t n) {
    const pleat_cache_options cache = load_cache_options(l, opt);
    const uint64_t n_bytes = pleat_cache_bytes_for(&cache, opt->max_tokens, opt->max_tokens);
    return n_bytes > UINT64_MAX / n ? UINT64_MAX : n * n_bytes;
}

int load_tokens(const loaded *l, const char *what, const char *text, size_t n_bytes, uint32_t flags, pleat_token **ids,
                uint32_t *n_tokens) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    uint32_t cap = (uint32_t)(n_bytes / 2 + 16); /* a guess: text has about four bytes a token */
    *ids = cli_alloc(cap, sizeof **ids);
    *n_tokens = 0; /* limits other than cap leave it */
    pleat_status status = pleat_model_tokenize(l->model, text, n_bytes, flags, *ids, cap, n_tokens, &err);
    if (status == PLEAT_E_LIMIT) {
        free(*ids);
        cap = *n_tokens;
        *ids = cli_alloc(cap, sizeof **ids);
        status = pleat_model_tokenize(l->model, text, n_bytes, flags, *ids, cap, n_tokens, &err);
    }
    if (status == PLEAT_OK) return CLI_OK;
    free(*ids);
    *ids = NULL;
    return cli_fail(what, status, &err);
}

int load_form(const loaded *l, const char *what, const pleat_chat_message *messages, uint32_t n_messages, char **text,
              size_t *n) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    size_t cap = 4096; /* most turns; else what the first call asks for */
    *text = cli_alloc(cap, 1);
    pleat_status status = pleat_model_chat(l->model, messages, n_messages, *text, cap, n, &err);
    if (status == PLEAT_E_LIMIT && *n >= cap) {
        free(*text);
        cap = *n + 256; /* the next rendering may name another day */
        *text = cli_alloc(cap, 1);
        status = pleat_model_chat(l->model, messages, n_messages, *text, cap, n, &err);
    }
    if (status == PLEAT_OK) return CLI_OK;
    free(*text);
    *text = NULL;
    return cli_fail(what, status, &err);
}

pleat_token greedy_token(const float *logits, uint32_t n_vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (pleat_token)best;
}
