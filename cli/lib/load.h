/* SPDX-License-Identifier: MIT
 *
 * load.h: a model and its team of threads, as every command that computes needs them.
 */
#ifndef PLEAT_CLI_LOAD_H
#define PLEAT_CLI_LOAD_H

#include "hub/hub.h"
#include "options.h"

/* Bits of an activation: 16 or 8. */
typedef enum activation_form { ACTIVATIONS_16, ACTIVATIONS_8 } activation_form;

/* What every command takes that runs a model. */
typedef struct load_options {
    const char *model; /* NULL: not given */
    const void *image; /* [image_bytes] a GGUF in memory in place of that file; NULL: the file */
    size_t image_bytes;
    uint32_t threads;      /* 0: one for each core */
    uint32_t chunk_tokens; /* most prompt tokens in one step */
    int in_parts;          /* prompts are read in such parts on a GPU too: load_for_serving() */
    int free_splits;       /* where one serves on a GPU, bits may depend on what shares a step */
    int fixed_splits;      /* elsewhere on a GPU they do not */
    activation_form activations;
    const char *stats;   /* path of the model's statistics; NULL: beside it */
    spec_list kv;        /* what a profile says in the place of its name, once a model is loaded */
    const char *device;  /* "cpu", "cuda" or "cuda:N"; NULL: the CPU */
    int replays;         /* prompts are read a second time where the spec asks for it (replay.h) */
    int ignores_shipped; /* a bare leankv is its defaults, whatever profile stands beside the model */
    char profiles[SPECS_CAP][PLEAT_PROFILE_CAP]; /* paths of those that were read; "": none */
} load_options;

#define DEFAULT_CHUNK_TOKENS 512
#define DEVICE_CHUNK_TOKENS 2048 /* of a part of a prompt on a GPU */

/* clang-format off */
/* Their rows but for --kv, whose default is the command's own.  `type` has the load_options as `member`. */
#define MODEL_ROW(type, member)                                                                                        \
    {GROUP_MACHINE, "model", "m", "FILE", "GGUF model", KIND_INPUT, .offset = offsetof(type, member)}
#define THREADS_ROW(type, member)                                                                                      \
    {GROUP_MACHINE, "threads", "t", "N", "threads (default: one for each core that it may use)", KIND_U32,                              \
     .offset = offsetof(type, member), 1, 256}
#define LOAD_ROWS(type, member)                                                                                        \
    MODEL_ROW(type, member.model),                                                                                     \
    HUB_ROWS("model"),                                                                                                 \
    THREADS_ROW(type, member.threads),                                                                                 \
    {GROUP_MACHINE, "stats", NULL, "FILE", "the model's statistics, for rd and novel:mean=model (default: MODEL.stats)", KIND_INPUT,   \
     .offset = offsetof(type, member.stats)},                                                                          \
    {GROUP_MACHINE, "batch-size", "b", "N", "most prompt tokens in one step (default 512; where a GPU serves 2048)", KIND_U32,                  \
     .offset = offsetof(type, member.chunk_tokens), 1, 65536},                                                         \
    {GROUP_MACHINE, "activations", NULL, "BITS",                                                                       \
     "bits of an activation in products with quantised weights: 16, or 8, which reads prompts faster and is as far "   \
     "from the model as llama.cpp is: mean KLD 2e-3 to 4e-3 (default 16)",                                             \
     KIND_WORD, .offset = offsetof(type, member.activations), .words = load_activations}
/* Of the commands that can run on a GPU. */
#define LOAD_DEVICE_ROW(type, member)                                                                                  \
    {GROUP_MACHINE, "device", NULL, "DEVICE", "where to run: cpu, cuda or cuda:N, the Nth GPU from 0 (default cpu)",   \
     KIND_TEXT, .offset = offsetof(type, member.device), .words = load_devices}
/* Of those that serve there; `other` names the options that it does not go with. */
#define LOAD_SERVING_ROWS(type, member, other)                                                                         \
    {GROUP_MACHINE, "device", NULL, "DEVICE", "where to run: cpu, cuda or cuda:N, the Nth GPU from 0 (default cpu)",   \
     KIND_TEXT, .offset = offsetof(type, member.device), .words = load_devices, .excludes = (other),                   \
     .because = "a simulation runs no model"},                                                                         \
    {GROUP_MACHINE, "free-splits", NULL, NULL,                                                                         \
     "on a GPU: faster for many texts, but an answer's last bits depend on what shares its steps", KIND_SWITCH,        \
     .offset = offsetof(type, member.free_splits), .needs = "device"}
/* clang-format on */

extern const char *const load_devices[], *const load_activations[];

#define NO_MODEL \
    { "model", "no model: give -m FILE, a GGUF file, or -hf USER/REPO" }

typedef struct loaded {
    uint32_t n_devices; /* GPUs to run on: 0 or 1 */
    uint32_t device;    /* which GPU */
    pleat_model *model;
    pleat_model_info info;
    uint32_t *windows; /* [info.n_layers] the model's; NULL: no layer has one */
    pleat_workers *workers;
    double load_ms;
    char *shipped;      /* path of a profile beside the model, if a bare leankv was asked for; else NULL */
    pleat_stats *stats; /* of the model, if rd was asked for; else NULL */
} loaded;

/* Start the threads that -t asks for.  CLI_OK, or CLI_FAILED after a message. */
int load_workers(uint32_t threads, int is_quiet, pleat_workers **workers);

/* Whether --device names a GPU. */
int load_wants_gpu(const load_options *o);

/* Read --device, and ask whether that GPU is there; without one *n_devices and *device stay.  load_model() does so, and
 * whoever makes something large before.  CLI_OK, or an exit code after a message. */
int load_find_device(const load_options *o, uint32_t *n_devices, uint32_t *device);

/* Prompts are read in parts: of -b tokens, or where it is not given (0) the default of the device. */
void load_for_serving(load_options *o);

/* Load -m, read the profiles that the specs name (the specs and their texts are then what the profiles say), and start
 * the threads.  `--kv leankv` alone names the profile that stands beside the model, if it was made for it.  That no
 * output is that file is checked before anything is loaded.  On a GPU o->chunk_tokens becomes the model's context, unless
 * prompts are read in parts.  CLI_OK, or an exit code after a message; *l then holds
 * nothing. */
int load_model(load_options *o, common_options *common, loaded *l);
void load_release(loaded *l);

/* The model's statistics, if the spec needs them and they are not there yet; text: the spec's.  CLI_OK, or CLI_FAILED after
 * a message. */
int load_stats(const load_options *o, loaded *l, const pleat_spec *spec, const char *text);

/* Where a model's statistics stand if nobody says otherwise: its path with .stats for .gguf.  The caller frees it. */
char *load_stats_path(const char *model);

/* As pleat_engine_options has it. */
uint32_t load_activation_bits(const load_options *o);

/* What load_engine() makes an engine with. */
pleat_engine_options load_engine_options(const load_options *o, const loaded *l, pleat_spec spec, uint32_t max_seqs,
                                         uint32_t max_tokens, uint32_t step_tokens);

/* Make an engine on l's model and threads with o's chunk size; step_tokens 0 means the engine's default.  Sequences may
 * be shorter than the spec's window, the model's context may not.  CLI_OK, or CLI_FAILED after a message. */
int load_engine(const load_options *o, const loaded *l, pleat_spec spec, uint32_t max_seqs, uint32_t max_tokens,
                uint32_t step_tokens, pleat_engine **out);
int load_engine_with(const loaded *l, const pleat_engine_options *opt, pleat_engine **out);

/* The text of the spec that `auto` has become in the engine's cache; NULL where the spec is another. */
const char *load_choice(const pleat_engine *engine, char buf[PLEAT_SPEC_TEXT_CAP]);

/* The cache on the CPU that an engine of these options will have, as far as its bytes and traits ask.  Points into *l. */
pleat_cache_options load_cache_options(const loaded *l, const pleat_engine_options *opt);

/* Bytes of pages for n sequences of opt->max_tokens, every token of the spec's most precise format: at most UINT64_MAX.
 * 0 for a cache that the engine will refuse. */
uint64_t load_pool_bytes(const loaded *l, const pleat_engine_options *opt, uint32_t n);

/* Tokens of a text; *ids is allocated, the caller frees it.  `what` names the text in a message. */
int load_tokens(const loaded *l, const char *what, const char *text, size_t n_bytes, uint32_t flags, pleat_token **ids,
                uint32_t *n_tokens);

/* The messages in the model's chat form, ready for its answer; the caller frees *text.  `what` names them in a message.
 * CLI_OK, or CLI_FAILED after a message. */
int load_form(const loaded *l, const char *what, const pleat_chat_message *messages, uint32_t n_messages, char **text,
              size_t *n);

/* The id of the likeliest token; the lowest among equals, as greedy sampling takes it. */
pleat_token greedy_token(const float *logits, uint32_t n_vocab);

#endif
