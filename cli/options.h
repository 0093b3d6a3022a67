/* SPDX-License-Identifier: MIT
 *
 * options.h: what the command line says, as one plain struct, and the commands it can name.
 *
 * Every option is one row of the table in options_table.c: its spellings, argument, help, the commands that take it, and
 * where its value goes.  Parsing, --help, environment twins and the nearest valid word all come from that table.
 *
 *     --n-predict 64     -n 64     PLEAT_N_PREDICT=64         the command line wins over the environment
 */
#ifndef PLEAT_CLI_OPTIONS_H
#define PLEAT_CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "pleat/pleat.h"

/* One bit for each command, so that an option says in one word which of them take it. */
enum {
    CMD_RUN = 1,
    CMD_EVAL = 2,
    CMD_BENCH_ATTN = 4,
    CMD_BENCH_PAGES = 8,
    CMD_BENCH_RUN = 16,
    CMD_INSPECT = 32,
    CMD_CALIBRATE = 64,
    CMD_PLAN = 128,
    CMD_BENCH_SERVE = 256,
    CMD_BENCH_CODEC = 512,
    CMD_ALL = 1023,
};

typedef enum out_format { FORMAT_TERMINAL, FORMAT_JSON, FORMAT_CSV, FORMAT_MD } out_format;

#define SPECS_CAP 16
typedef struct spec_list {
    uint32_t n;
    pleat_spec spec[SPECS_CAP];
    char text[SPECS_CAP][PLEAT_SPEC_TEXT_CAP]; /* canonical */
} spec_list;

#define NUMBERS_CAP 16
#define GROUP_MOST 64 /* query heads that can share a KV head */
typedef struct number_list {
    uint32_t n;
    uint32_t v[NUMBERS_CAP];
} number_list;

typedef struct float_list {
    uint32_t n;
    float v[NUMBERS_CAP];
} float_list;

/* Where a benchmark runs. */
typedef enum bench_device_kind { DEVICE_CPU, DEVICE_CUDA } bench_device_kind;

/* What the best of a sweep is. */
typedef enum calibration_goal { GOAL_BYTES, GOAL_ACCURACY } calibration_goal;

/* Share of leankv's tokens that bench attn fills in the low format. */
#define DEFAULT_LOW_SHARE 0.5f

typedef struct options {
    /* model and machine */
    const char *model;     /* NULL: not given */
    uint32_t threads;      /* 0: one for each CPU */
    uint32_t ctx_size;     /* 0: the model's */
    uint32_t chunk_tokens; /* most prompt tokens in one step */
    uint32_t cpu_mask;     /* PLEAT_CPU_* that may be used */

    /* the cache */
    spec_list kv;
    char profiles[SPECS_CAP][PLEAT_PROFILE_CAP]; /* paths of those that were read; "": none */
    const char *cache_type_k, *cache_type_v;     /* NULL: not given */

    /* the prompt */
    const char *prompt; /* NULL: not given */
    const char *file;   /* NULL: not given; "-": stdin; plan: --config, serve: --trace */
    int chat;           /* wrap the prompt as a user's turn */
    int special;        /* read and print special tokens */

    /* generation */
    int32_t n_predict; /* -1: until the context is full */
    float temp, top_p, min_p;
    uint32_t top_k;
    uint64_t seed;
    uint32_t n_best;  /* texts */
    uint32_t n_beams; /* 0: no search */

    /* eval */
    const char *tasks, *text; /* NULL: not given */
    uint32_t samples;         /* of each task; 0: all */
    uint32_t text_windows;    /* 0: all */
    uint32_t ctx_window;      /* tokens in a window of the text */
    uint32_t parallel;        /* sequences in flight; of `bench run`: in one step */
    const char *report;       /* HTML page to write; NULL: none */

    /* calibrate */
    float_list ah, al; /* n 0: the command's own */
    float tolerance;   /* accuracy that may be lost */
    calibration_goal goal;

    /* bench */
    number_list ctx, batch, gqa, head_dim;
    uint32_t heads; /* 0: not given */
    uint32_t kv_heads;
    uint32_t lanes;
    uint32_t reps; /* 0: the benchmark's own default */
    bench_device_kind device;
    uint32_t spread; /* longest lane over the shortest; 1: all are as long */
    float low_share; /* of a leankv lane's tokens, those in the low format */
    number_list n_prompt, n_gen, depth;

    /* inspect */
    int metadata;
    int devices;         /* list GPUs instead */
    const char *operand; /* the word that is no option: inspect's FILE; NULL: none */

    /* plan */
    const char *arch, *weights;                       /* NULL: not given */
    uint32_t seq_tokens, n_seqs;                      /* --ctx, 0: the model's; --batch */
    uint64_t device_bytes, bandwidth, swap_bandwidth; /* bytes, bytes/s; 0: not given */
    float prefill, fraction;                          /* tokens/s; 0: not given */

    /* bench serve */
    const char *synthetic;    /* NULL: not given */
    const char *write_trace;  /* files to write; NULL: none */
    const char *svg, *series; /* likewise */
    const char *tenants;      /* NULL: one, without a name */
    int simulate;
    uint64_t pool_bytes; /* 0: not given */
    uint64_t swap_bytes; /* 0: none */
    uint32_t requests;   /* 0: all of a file, as many as a preset has */
    uint32_t max_running;
    uint32_t prefix_tokens; /* UINT32_MAX: not given */
    uint32_t page_tokens;   /* 0: the cache's choice */
    float rate;             /* requests/s; 0: not given */
    float_list watermarks, prices, fractions;
    pleat_preemption preempt;
    float ah_most, al_most; /* 0: no compression in need */

    /* output */
    out_format format;
    const char *output; /* NULL: stdout */
    int quiet;
    int help;
} options;

/* Fill *o from defaults, then the environment, then argv[first..argc), for the command `command` (a CMD_ bit) whose
 * name is `name`.  CLI_OK, or CLI_USAGE after a message. */
int options_parse(options *o, uint32_t command, const char *name, int argc, char **argv, int first);

/* Print the options that `command` takes, in their groups. */
void options_help(uint32_t command, FILE *f);

/* The one spec of a command that takes one: --kv, or what -ctk and -ctv name, or `fallback`.  Leaves it in o->kv.
 * CLI_OK, or CLI_USAGE after a message. */
int options_one_spec(options *o, const char *fallback);

/* Read "80000000000", "1.5TB" or "80GiB": decimal, with the units k, M, G, T (thousands) and Ki, Mi, Gi, Ti, a B behind
 * or not.  0 if it is none of these, or not in 1..2^62. */
int options_bytes(const char *text, uint64_t *out);

/* Put the specs of `texts` (NULL-terminated) in o->kv if --kv was not given. */
void options_default_specs(options *o, const char *const *texts);

/* CLI_OK if all of --head-dim are dimensions that a page can hold, or CLI_USAGE after a message. */
int options_check_head_dims(const options *o);

#endif
