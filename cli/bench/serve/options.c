/* SPDX-License-Identifier: MIT
 *
 * options.c: what `pleat bench serve` takes.
 */
#include <math.h>

#include "cli/lib/shape/archs.h"
#include "serve.h"

#define GROUP_REQUESTS "Requests"
#define GROUP_SIMULATION "Simulation"
#define AT(field) .offset = offsetof(serve_options, field)

static const char *const synthetic_names[] = {"chat",    "sharegpt",      "sharegpt-vllm", "alpaca",
                                              "longdoc", "shared-prefix", "fixed",         NULL};

/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(serve_options, load),
    {GROUP_MACHINE, "ctx-size", "c", "N", "context, tokens (default: the model's)", KIND_U32, AT(ctx_size), 1, 16777216},
    LOAD_SERVING_ROWS(serve_options, load, "simulate"),
    CPU_MASK_ROW(serve_options),
    {GROUP_MACHINE, "shape", NULL, "NAME", "random weights in place of a file: a known model's (pleat plan --arch list), or a config.json's",
     KIND_TEXT, AT(shape), .words = arch_names, .excludes = "model hf-repo arch", .stands_for = "model", .because = "give one model"},
    {GROUP_MACHINE, "weights", NULL, "TYPE", "type of random weights (default q4_0)", KIND_WORD,
     AT(weights), .words = weight_type_names, .needs = "shape", .because = "a file has its own"},
    {GROUP_MACHINE, "arch", NULL, "NAME", "a known model in place of a file, to simulate (names: pleat plan --arch list)",
     KIND_TEXT, AT(arch), .words = arch_names, .excludes = "model hf-repo", .needs = "simulate prices",
     .because = "it has no weights to run, and what a step costs is not known"},
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept: f16, k8v4, leankv, h2o, kvcomp, ...; repeat to compare (default f16)",
     KIND_SPECS, AT(load.kv), .words = option_spec_names},

    {GROUP_REQUESTS, "trace", NULL, "FILE", "requests, one JSON object a line (-: stdin)", KIND_INPUT, AT(trace),
     .excludes = "synthetic", .because = "give one of them"},
    {GROUP_REQUESTS, "synthetic", NULL, "NAME", "made-up ones: chat, sharegpt[-vllm], alpaca, longdoc, shared-prefix or fixed[:KEY=VALUE,..]",
     KIND_TEXT, AT(synthetic), .words = synthetic_names},
    {GROUP_REQUESTS, "requests", NULL, "N", "at most so many (default: all of FILE, or as NAME has it)",
     KIND_U32, AT(requests), 1, 16777216},
    {GROUP_REQUESTS, "seconds", NULL, "S", "stop after so long, also where requests are under way (default: when all are served)",
     KIND_F32, AT(seconds), 1e-3, 1e9},
    {GROUP_REQUESTS, "warmup", NULL, "S", "measure after so many seconds, from which on --seconds count (default 0)",
     KIND_F32, AT(warmup), 0, 1e9},
    {GROUP_REQUESTS, "steady", NULL, NULL, "all at once, and those that fit at first are midway: as behind hours of such load",
     KIND_SWITCH, AT(steady)},
    {GROUP_REQUESTS, "rate", NULL, "R", "arrivals a second, at random; inf: all at once (default: as FILE has it, or inf)",
     KIND_F32, AT(rate), 1e-6, INFINITY},
    {GROUP_REQUESTS, "text", NULL, "FILE", "take made-up prompts from this text (default: random tokens)",
     KIND_INPUT, AT(text), .needs = "model", .because = "its words become tokens"},
    {GROUP_REQUESTS, "seed", "s", "N", "seed of all that is made up (default 1)", KIND_U64, AT(seed)},
    {GROUP_REQUESTS, "write-trace", NULL, "FILE", "write the requests, as --trace reads them", KIND_OUTPUT, AT(write_trace)},

    POOL_ROW(serve_options, service, "the pool of pages, as 64MiB; the same for every spec", NULL),
    {GROUP_SERVICE, "max-running", NULL, "N", "requests in one step (default 64)", KIND_U32, AT(max_running), 1, 4096},
    {GROUP_SERVICE, "tenants", NULL, "T,..", "whose the pool is: NAME:QUOTA%[:WEIGHT]; the rest can be borrowed",
     KIND_TEXT, AT(tenants)},
    SERVICE_ROWS(serve_options, service, NULL),
    STORE_ROWS(serve_options, store, "simulate"),
    {GROUP_SERVICE, "ah-most", NULL, "X", "leankv: raise ah up to this before anybody is preempted (default: not at all)",
     KIND_F32, AT(ah_most), 0, 1e6, .excludes = "simulate", .because = "nothing is compressed in a simulation"},
    {GROUP_SERVICE, "al-most", NULL, "X", "the same of al",
     KIND_F32, AT(al_most), 0, 1e6, .excludes = "simulate", .because = "nothing is compressed in a simulation"},

    {GROUP_SIMULATION, "simulate", NULL, NULL, "the scheduler alone, in simulated time", KIND_SWITCH, AT(simulate)},
    {GROUP_SIMULATION, "prices", NULL, "X,..", "ns of a step, and in it of a prompt token, a generated one, a KV byte[, a swapped byte[, a prompt's chunk]]",
     KIND_FLOATS, AT(prices), 0, 1e12, .min_n = 4, .max_n = 6, .needs = "simulate"},
    {GROUP_SIMULATION, "fractions", NULL, "X,..", "of its pages that a sequence keeps, one for each spec (default: what the spec does)",
     KIND_FLOATS, AT(fractions), 1e-3, 1, .needs = "simulate"},

    FORMAT_ROW(serve_options),
    OUTPUT_ROW(serve_options, OUTPUT_TEXT),
    {GROUP_OUTPUT, "series", NULL, "FILE", "write requests and pages over time (CSV)", KIND_OUTPUT, AT(series)},
    {GROUP_OUTPUT, "svg", NULL, "FILE", "draw them", KIND_OUTPUT, AT(svg)},
    QUIET_ROWS(serve_options),
};
/* clang-format on */

static const option_demand demands[] = {
    {"model arch trace synthetic", "say who serves what: -m MODEL --synthetic chat --pool-bytes 64MiB, for example"},
    {"trace synthetic", "give --trace FILE or --synthetic NAME, one of them"},
    {"pool-bytes", "give --pool-bytes, the size of the pool: 64MiB, for example"},
    {"model arch", "no model: give -m FILE, a GGUF file, or --simulate --arch NAME --prices .."},
};

static void set_defaults(void *opts) {
    serve_options *o = opts;
    pleat_sampler_options sampling;
    pleat_sampler_options_default(&sampling);
    service_defaults(&o->service);
    o->seed = sampling.seed;
    o->max_running = 64;
}

const command bench_serve_command = {
    .name = "bench serve",
    .help = "many requests from one pool: concurrency, speed, latencies",
    .usage = "-m MODEL (--trace FILE | --synthetic NAME) --pool-bytes B [--rate R] [--simulate] [--kv SPEC]...",
    .about = "Serves one trace of requests under each spec in turn, from a pool of the same bytes, and tells how many "
             "ran at once, how fast tokens came and who was preempted.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(serve_options),
    .set_defaults = set_defaults,
    .run = serve_main,
};
