/* SPDX-License-Identifier: MIT
 *
 * options.c: what `pleat serve` takes.
 */
#include "serve.h"

#define GROUP_SERVER "Server"
#define AT(field) .offset = offsetof(server_options, field)

enum {
    DEFAULT_PORT = 8080,
    DEFAULT_PARALLEL = 16,
    DEFAULT_QUEUE = 256,
    DEFAULT_CONNECTIONS = 1024,
    DEFAULT_GRACE_S = 10,
    DEFAULT_EVENTS_BLOCK = 16
};
#define DEFAULT_BODY_BYTES (UINT64_C(8) << 20)

static const char *const log_formats[] = {"none", "text", "json", NULL}; /* of log_format */

/* clang-format off */
static const option_row rows[] = {
    LOAD_ROWS(server_options, load),
    {GROUP_MACHINE, "ctx-size", "c", "N", "context, tokens (default: the model's)", KIND_U32, AT(ctx_size), 1, 16777216},
    LOAD_SERVING_ROWS(server_options, load, NULL),
    CPU_MASK_ROW(server_options),
    {GROUP_CACHE, "kv", NULL, "SPEC", "how the cache is kept: f32, f16, k8v4, leankv, h2o, kvcomp, ...; repeat it, and requests choose (default k8v4)",
     KIND_SPECS, AT(load.kv), .words = option_spec_names},

    {GROUP_SERVER, "config", NULL, "FILE", "options, NAME = VALUE a line; the environment and the command line win over them",
     KIND_CONFIG, AT(config)},
    {GROUP_SERVER, "host", NULL, "ADDRESS", "where to listen (default 127.0.0.1: this machine alone)", KIND_TEXT, AT(host)},
    {GROUP_SERVER, "port", NULL, "N", "its port; 0: any that is free (default 8080)", KIND_U32, AT(port), 0, 65535},
    {GROUP_SERVER, "api-key-file", NULL, "FILE", "ask for a key: those in FILE, one a line", KIND_INPUT, AT(key_file)},
    {GROUP_SERVER, "tls-cert", NULL, "FILE", "HTTPS: the certificate in FILE, PEM, with those that lead to its root",
     KIND_INPUT, AT(tls_cert)},
    {GROUP_SERVER, "tls-key", NULL, "FILE", "and its key, PEM, without a pass phrase", KIND_INPUT, AT(tls_key)},
    {GROUP_SERVER, "alias", "a", "NAME", "the model's name for clients (default: the file's, without .gguf)", KIND_TEXT,
     AT(alias)},
    {GROUP_SERVER, "special", NULL, NULL, "read special tokens that clients spell out; else messages with them are refused",
     KIND_SWITCH, AT(special)},
    {GROUP_SERVER, "queue", NULL, "N", "texts that may wait beside those that run (default 256); then 429", KIND_U32,
     AT(queue), 0, 60000},
    {GROUP_SERVER, "connections", NULL, "N", "connections at once (default 1024)", KIND_U32, AT(connections), 1, 65536},
    {GROUP_SERVER, "body-bytes", NULL, "BYTES", "the longest body of a request (default 8MiB)", KIND_BYTES,
     AT(body_bytes), 1024, 1 << 26},
    {GROUP_SERVER, "grace", NULL, "S", "seconds for what runs when the server is told to stop (default 10)", KIND_U32,
     AT(grace_s), 0, 86400},
    {GROUP_SERVER, "log-format", NULL, "FORMAT", "a line on stderr for each request: none, text or json (default none)",
     KIND_WORD, AT(log_format), .words = log_formats},

    POOL_ROW(server_options, service, "the pool of pages, as 2GiB (default: room for -np contexts, a half of free memory at most)", NULL),
    {GROUP_SERVICE, "parallel", "np", "N", "texts in one step (default 16)", KIND_U32, AT(parallel), 1, 4096},
    SERVICE_ROWS(server_options, service, NULL),
    STORE_ROWS(server_options, store, NULL),
    {GROUP_SERVICE, "events", NULL, "ENDPOINT", "tell routers which prefixes are kept, as vLLM does: tcp://ADDRESS:PORT, or ipc://PATH",
     KIND_TEXT, AT(events)},
    {GROUP_SERVICE, "events-replay", NULL, "ENDPOINT", "where they ask again for what they missed", KIND_TEXT,
     AT(events_replay), .needs = "events"},
    {GROUP_SERVICE, "events-topic", NULL, "TEXT", "the first frame of each message (default: empty)", KIND_TEXT,
     AT(events_topic), .needs = "events"},
    {GROUP_SERVICE, "events-block", NULL, "N", "tokens of a block (default 16)", KIND_U32, AT(events_block), 1, 65536,
     .needs = "events"},
    QUIET_ROWS(server_options),
};
/* clang-format on */

static const option_demand demands[] = {NO_MODEL};

static void set_defaults(void *opts) {
    server_options *o = opts;
    service_defaults(&o->service);
    o->host = "127.0.0.1";
    o->port = DEFAULT_PORT;
    o->parallel = DEFAULT_PARALLEL;
    o->queue = DEFAULT_QUEUE;
    o->connections = DEFAULT_CONNECTIONS;
    o->body_bytes = DEFAULT_BODY_BYTES;
    o->grace_s = DEFAULT_GRACE_S;
    o->events_topic = "";
    o->events_block = DEFAULT_EVENTS_BLOCK;
}

const command serve_command = {
    .name = "serve",
    .help = "answer over HTTP, as OpenAI's API does",
    .usage = "-m MODEL [--host ADDRESS] [--port N] [--kv SPEC]... [--api-key-file FILE]",
    .about =
        "Serves a model to clients of OpenAI's API: chat completions and completions, streamed or whole, many at once "
        "from one pool of pages.  SIGTERM and Ctrl-C end it: what runs is finished or cut off well-formed.",
    ROWS_OF(rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(server_options),
    .set_defaults = set_defaults,
    .run = serve_main_command,
};
