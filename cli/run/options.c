/* SPDX-License-Identifier: MIT
 *
 * options.c: what `pleat run` takes.
 */
#include "run.h"

#define GROUP_PROMPT "Prompt"
#define GROUP_GENERATION "Generation"
#define AT(field) .offset = offsetof(run_options, field)

static const char *const cache_types[] = {"f32", "f16", "q8_0", "q4_0", NULL};

/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(run_options, load),
    LOAD_DEVICE_ROW(run_options, load),
    {GROUP_MACHINE, "ctx-size", "c", "N", "context, tokens (default: the model's)", KIND_U32, AT(ctx_size), 1, 16777216},
    CPU_MASK_ROW(run_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept: f32, f16, k8v4, leankv, h2o, kvcomp, ... (default k8v4)",
     KIND_SPECS, AT(load.kv), .max = 1, .words = option_spec_names, .excludes = "cache-type-k cache-type-v",
     .because = "--kv alone is enough"},
    {GROUP_CACHE, "cache-type-k", "ctk", "TYPE", "llama.cpp's name for the keys' format: f32, f16, q8_0, q4_0",
     KIND_TEXT, AT(cache_type_k), .words = cache_types},
    {GROUP_CACHE, "cache-type-v", "ctv", "TYPE", "the same for the values", KIND_TEXT, AT(cache_type_v), .words = cache_types},

    {GROUP_PROMPT, "prompt", "p", "TEXT", "the prompt", KIND_TEXT, AT(prompt), .excludes = "file",
     .because = "give one prompt"},
    {GROUP_PROMPT, "file", "f", "FILE", "read the prompt from FILE (-: stdin); one newline at its end is left out",
     KIND_INPUT, AT(file)},
    {GROUP_PROMPT, "chat", NULL, NULL,
     "ask the prompt as a user's turn, in the model's chat form; without a prompt: hold a conversation", KIND_SWITCH,
     AT(chat)},
    {GROUP_PROMPT, "system", NULL, "TEXT", "what stands in front of all turns", KIND_TEXT, AT(system), .needs = "chat",
     .because = "it is a part of the chat form"},
    {GROUP_PROMPT, "load", NULL, "FILE", "go on with a conversation that /save has written", KIND_INPUT, AT(load_path),
     .needs = "chat", .excludes = "prompt file", .because = "a conversation is read and answered turn by turn"},
    {GROUP_PROMPT, "prompt-cache", NULL, "FILE",
     "keep what the cache holds of the prompt in FILE, and take from it what another run has read", KIND_OUTPUT,
     AT(prompt_cache), .excludes = "n-best beams load", .because = "FILE holds one text"},
    {GROUP_PROMPT, "special", NULL, NULL, "read special tokens that the prompt spells out, and print those generated",
     KIND_SWITCH, AT(special)},

    {GROUP_GENERATION, "n-predict", "n", "N", "most tokens to generate (default -1: until the context is full)",
     KIND_I32, AT(n_predict), -1, 16777216},
    {GROUP_GENERATION, "temp", NULL, "T", "temperature (default 0: greedy)", KIND_F32, AT(temp), 0, 1000},
    {GROUP_GENERATION, "top-k", NULL, "K", "keep the K likeliest tokens (default 40; 0: all)",
     KIND_U32, AT(top_k), 0, UINT32_MAX},
    {GROUP_GENERATION, "top-p", NULL, "P", "keep the likeliest until their probability passes P (default 0.95)",
     KIND_F32, AT(top_p), 1e-6, 1},
    {GROUP_GENERATION, "min-p", NULL, "P", "keep those with P times the likeliest's probability (default 0.05)",
     KIND_F32, AT(min_p), 0, 1},
    {GROUP_GENERATION, "seed", "s", "N", "seed of the sampler (default 1)", KIND_U64, AT(seed)},
    {GROUP_GENERATION, "n-best", NULL, "N", "texts: drawn with N seeds from --seed on, or the N best of --beams (default 1)",
     KIND_U32, AT(n_best), 1, SEARCH_MAX},
    {GROUP_GENERATION, "beams", NULL, "N", "search for the likeliest text with N beams instead of drawing one",
     KIND_U32, AT(n_beams), 1, SEARCH_MAX, .excludes = "temp top-k top-p min-p seed",
     .because = "a search draws nothing"},
    COMMON_ROWS(run_options),
};
/* clang-format on */

static const option_demand demands[] = {
    NO_MODEL,
    {"prompt file chat", "no prompt: give -p TEXT or -f FILE, or --chat alone for a conversation"},
};

static void set_defaults(void *opts) {
    run_options *o = opts;
    pleat_sampler_options sampling;
    pleat_sampler_options_default(&sampling);
    o->load.chunk_tokens = DEFAULT_CHUNK_TOKENS;
    o->n_predict = -1;
    o->top_k = sampling.top_k;
    o->top_p = sampling.top_p;
    o->min_p = sampling.min_p;
    o->seed = sampling.seed;
    o->n_best = 1;
}

const command run_command = {
    .name = "run",
    .help = "generate text from a model on a compressed KV cache",
    .usage = "-m MODEL (-p TEXT | -f FILE | --chat) [-n N] [--kv SPEC]",
    .about = "Reads a prompt and generates what follows it, as text on stdout, with the KV cache kept as --kv says.  A "
             "summary on stderr tells the speed and what the cache held.  With --chat and no prompt it holds a "
             "conversation, and the cache stays between its turns; /help lists what can be done in it.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(run_options),
    .set_defaults = set_defaults,
    .run = run_main,
};
