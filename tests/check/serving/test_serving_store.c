/* SPDX-License-Identifier: MIT
 * ctest-labels: slow
 *
 * test_serving_store.c: a prompt whose beginning another computed, in memory, on the disk, on a server, before a restart or in
 * another process, on the other device: greedy tokens are those of a serving that has nothing.  docs/STORE.md has the matrix
 * as a table.
 */
#include <math.h>
#include <sys/wait.h>

#include "../store/gate.h"
#include "../store/redis.h"
#include "serving_rig.h"
#include "store/servers/server.h"

enum { PROMPT = 200, STORED = 192, PREDICT = 24 };
#define LARGE ((uint64_t)1 << 30)

static const char *const kinds[] = {"f16",
                                    "k8v4",
                                    "leankv:ah=1,al=0.02,window=32",
                                    "kvcomp:k=0.2,v=0.2,block=32,buffer=40",
                                    "h2o:budget=96,window=16",
                                    "streaming:budget=96",
                                    "novel:budget=96,window=16,mean=model",
                                    "rd:k=0.15,v=1.1,buffer=40"};

/* Serve the prompt to its end.  What is stored ends where a chunk does, and where the request says. */
static void serve(const rig *r, const char *salt, outcome *out) {
    pleat_request q = request_of(text, PROMPT, PREDICT);
    q.salt = salt;
    q.breakpoint = STORED;
    submit(r->serving, &q, out);
    run_to_end(r->serving, false);
    CHECK(out->finish == PLEAT_FINISH_LENGTH);
}

static bool make(rig *r, const char *spec, pleat_store *store) {
    const pleat_engine_options eo = engine_options(spec);
    pleat_serving_options so = serving_options();
    so.store = store;
    return rig_make(r, &eo, &so, 0);
}

typedef bool maker(rig *r, const char *spec, pleat_store *store);

static pleat_serving_stats stats_of(const rig *r) {
    pleat_serving_stats st;
    pleat_serving_get_stats(r->serving, &st);
    return st;
}

/* The same tokens, and so many hits of the store. */
static void check_hit(const rig *r, const outcome *out, const outcome *alone, uint64_t n_hits) {
    CHECK_EQ_U64(stats_of(r).store_hits, n_hits);
    CHECK_EQ_U64(stats_of(r).store_tokens, n_hits * STORED);
    CHECK_EQ_MEM(out->tokens, alone->tokens, sizeof out->tokens);
    CHECK(pleat_serving_is_valid(r->serving));
}

/* Where images lie: in a folder, or on a server. */
typedef struct place {
    folder f;
    uint16_t port; /* 0: in the folder */
} place;

static pleat_store *place_open(const place *p) {
    char list[64];
    pleat_store_options o;
    pleat_store *s = NULL;
    if (p->port == 0) return store_open(&p->f, LARGE);
    pleat_store_options_default(&o);
    snprintf(list, sizeof list, "redis://127.0.0.1:%u", p->port);
    o.servers = list;
    CHECK_STATUS(pleat_store_open(&o, &s, NULL), PLEAT_OK);
    return s;
}

/* Wait for a child: its exit code. */
static int wait_for(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Another process computes and stores it. */
static void store_elsewhere(const place *p, const char *spec) {
    const pid_t child = fork();
    if (child == 0) {
        rig r;
        outcome out;
        pleat_store *s = place_open(p);
        if (make(&r, spec, s)) serve(&r, NULL, &out);
        rig_free(&r);
        pleat_store_close(&s);
        _exit(check_failures() > 0);
    }
    CHECK_EQ_I64(wait_for(child), 0);
}

/* Another process has stored what NULL salts: from there, from memory, from where it is stored, and after a restart. */
static void try_stored(const place *p, const char *spec, maker *make_it, const outcome *alone) {
    rig r;
    outcome out;
    pleat_store *s = place_open(p);
    if (make_it(&r, spec, s)) {
        serve(&r, NULL, &out); /* from another process */
        CHECK_EQ_U64(out.stats.n_hit, STORED);
        check_hit(&r, &out, alone, 1);
        serve(&r, NULL, &out); /* from memory, where it is kept too */
        CHECK_EQ_U64(out.stats.n_hit, STORED);
        check_hit(&r, &out, alone, 1);
        pleat_serving_forget_prefixes(r.serving);
        serve(&r, NULL, &out); /* from where it is stored */
        check_hit(&r, &out, alone, 2);
        pleat_serving_forget_prefixes(r.serving);
        serve(&r, "another's", &out); /* a salt of its own: it is computed, and stored */
        CHECK_EQ_U64(out.stats.n_hit, 0);
        check_hit(&r, &out, alone, 2);
    }
    rig_free(&r);
    pleat_store_close(&s);
    s = place_open(p);
    if (make_it(&r, spec, s)) serve(&r, "another's", &out); /* after a restart */
    if (r.serving) check_hit(&r, &out, alone, 1);
    rig_free(&r);
    CHECK(pleat_store_is_valid(s));
    pleat_store_close(&s);
}

static void serve_alone(const char *spec, maker *make_it, outcome *out) {
    rig r;
    *out = (outcome){0};
    if (make_it(&r, spec, NULL)) serve(&r, NULL, out);
    rig_free(&r);
}

static void try_kind(const place *p, const char *spec) {
    outcome alone;
    check_context("%s", spec);
    store_elsewhere(p, spec);
    serve_alone(spec, make, &alone);
    try_stored(p, spec, make, &alone);
}

static void test_matrix(void) {
    NEEDS_STORE();
    place p = {0};
    if (!load_once() || !folder_make(&p.f)) return;
    for (size_t i = 0; i < CHECK_COUNT(kinds) && check_failures() == 0; i++) try_kind(&p, kinds[i]);
    folder_remove(&p.f);
}

/* Time as steps and images take it: a step a millisecond, what is stored four. */
static struct {
    uint64_t now_ns;
    uint32_t n_stored;
    pleat__backend on; /* the engine's */
} timed;

static uint64_t timed_ns(void *ctx) {
    (void)ctx;
    return timed.now_ns;
}

static pleat_status timed_run(void *ctx, const pleat_engine_item *items, uint32_t n, pleat_token *likeliest,
                              pleat_error *err) {
    timed.now_ns += 1000000;
    return timed.on.run(ctx, items, n, likeliest, err);
}

static pleat_status timed_save_into(void *ctx, pleat_seq seq, void *data, uint64_t n_bytes) {
    timed.now_ns += 4000000;
    timed.n_stored++;
    return timed.on.save_into(ctx, seq, data, n_bytes);
}

/* What a step stores teaches nothing about prices. */
static void test_prices(void) {
    NEEDS_STORE();
    folder f;
    rig r;
    outcome out;
    if (!load_once() || !folder_make(&f)) return;
    pleat_store *s = store_open(&f, LARGE);
    if (make(&r, "f16", s)) {
        timed.on = r.serving->backend;
        r.serving->backend.clock_ns = timed_ns;
        r.serving->backend.run = timed_run;
        r.serving->backend.save_into = timed_save_into;
        for (uint32_t i = 0; i < 8; i++) {
            const char salt[] = {(char)('a' + i), 0}; /* each is computed, and stored */
            serve(&r, salt, &out);
        }
        const pleat_serving_stats st = stats_of(&r);
        CHECK_EQ_U64(timed.n_stored, 8);
        CHECK_NEAR(st.fixed_ns + st.chunk_ns + CHUNK * st.prompt_ns, 1e6, 5e4);
    }
    rig_free(&r);
    pleat_store_close(&s);
    folder_remove(&f);
}

static void test_matrix_servers(void) {
    redis server;
    if (!pleat__server_exists()) SKIP("this build has no hiredis");
    if (!redis_start(&server, 0)) SKIP("there is no redis-server to start");
    const place p = {.port = server.port};
    if (load_once())
        for (size_t i = 0; i < CHECK_COUNT(kinds) && check_failures() == 0; i++) try_kind(&p, kinds[i]);
    redis_stop(&server);
}

/* ---- a GPU's rows ---------------------------------------------------------------------------------------------------- */

enum { NO_GPU = 77 };

/* Time by the asking: steps and copies take seconds, so that what is stored always pays. */
static uint64_t counted_ns(void *ctx) {
    static uint64_t ns;
    (void)ctx;
    return ns += 1000000000;
}

/* Chunks are those of a GPU on both devices: part of what an image is known by. */
static pleat_engine_options options_on(const char *spec, uint32_t devices) {
    n_devices = 1;
    pleat_engine_options o = engine_options(spec);
    n_devices = 0;
    o.devices = devices;
    return o;
}

static bool make_on(rig *r, const char *spec, pleat_store *store, uint32_t devices) {
    const pleat_engine_options eo = options_on(spec, devices);
    pleat_serving_options so = serving_options();
    so.store = store;
    if (!rig_make(r, &eo, &so, 0)) return false;
    r->serving->backend.clock_ns = counted_ns;
    return true;
}
static bool make_gpu(rig *r, const char *spec, pleat_store *store) { return make_on(r, spec, store, 1); }
static bool make_cpu(rig *r, const char *spec, pleat_store *store) { return make_on(r, spec, store, 0); }

/* Does a GPU serve it?  Said where not: the table of the docs has it so. */
static bool gpu_serves(const char *spec) {
    const pleat_engine_options o = options_on(spec, 1);
    pleat_engine *engine = NULL;
    pleat_error err = {0};
    const pleat_status status = pleat_engine_create(model, &o, &engine, &err);
    pleat_engine_destroy(&engine);
    CHECK(status == PLEAT_OK || status == PLEAT_E_UNSUPPORTED);
    return status == PLEAT_OK;
}

/* Another process computes and stores all that a GPU serves.  This one has touched no GPU yet: it could not fork then. */
static int store_all_elsewhere(const place *p) {
    const pid_t child = fork();
    if (child == 0) {
        uint32_t n;
        if (pleat_device_count(&n, NULL) != PLEAT_OK) _exit(NO_GPU);
        pleat_store *s = place_open(p);
        for (size_t i = 0; i < CHECK_COUNT(kinds) && check_failures() == 0; i++) {
            rig r;
            outcome out;
            if (!gpu_serves(kinds[i])) continue;
            if (make_gpu(&r, kinds[i], s)) serve(&r, NULL, &out);
            rig_free(&r);
        }
        pleat_store_close(&s);
        _exit(check_failures() > 0);
    }
    return wait_for(child);
}

/* How far apart the logits of two tokens are behind the prompt and the first n tokens of `read`, where all is computed. */
static double gap_of(const char *spec, uint32_t devices, const pleat_token *read, uint32_t n, pleat_token a,
                     pleat_token b) {
    const pleat_engine_options eo = options_on(spec, devices);
    pleat_engine *engine = NULL;
    pleat_seq seq;
    pleat_token all[PROMPT + PREDICT];
    pleat_model_info info;
    pleat_model_get_info(model, &info);
    float *logits = malloc(info.n_vocab * sizeof *logits);
    memcpy(all, text, PROMPT * sizeof *all);
    memcpy(all + PROMPT, read, n * sizeof *all);
    CHECK_STATUS(pleat_engine_create(model, &eo, &engine, NULL), PLEAT_OK);
    CHECK_STATUS(pleat_engine_open(engine, MAX_TOKENS, &seq), PLEAT_OK);
    for (uint32_t at = 0, m; at < PROMPT + n && check_failures() == 0; at += m) {
        m = at >= PROMPT ? 1 : at == STORED ? PROMPT - STORED : eo.chunk_tokens < STORED ? eo.chunk_tokens : STORED;
        const pleat_engine_item item = {.seq = seq, .tokens = all + at, .n_tokens = m, .n_logits = 1, .logits = logits};
        CHECK_STATUS(pleat_engine_step(engine, &item, 1, NULL), PLEAT_OK);
    }
    const double gap = fabs((double)logits[a] - logits[b]);
    pleat_engine_destroy(&engine);
    free(logits);
    return gap;
}

/* From the other device's image: the tokens of this one, up to one where two are as near as arithmetic differs. */
static void check_near_tokens(const char *spec, uint32_t devices, const outcome *out, const outcome *alone) {
    const double limit = strcmp(spec, "f16") == 0 ? 0.02 : 0.5;
    uint32_t i = 0;
    while (i < PREDICT && out->tokens[i] == alone->tokens[i]) i++;
    const double gap = i < PREDICT ? gap_of(spec, devices, alone->tokens, i, out->tokens[i], alone->tokens[i]) : 0;
    printf("# %s, the other device's image on the %s: %u of %u tokens, then %.4f apart\n", spec,
           devices ? "GPU" : "CPU", i, PREDICT, gap);
    CHECK(gap <= limit);
}

/* Each device goes on from what the other has stored. */
static void try_other_device(const place *p, const char *spec, const outcome *gpu_alone) {
    outcome cpu_alone, out;
    rig r;
    serve_alone(spec, make_cpu, &cpu_alone);
    pleat_store *s = place_open(p);
    if (make_cpu(&r, spec, s)) {
        serve(&r, NULL, &out);
        CHECK_EQ_U64(out.stats.n_hit, STORED);
        check_near_tokens(spec, 0, &out, &cpu_alone);
        pleat_serving_forget_prefixes(r.serving);
        serve(&r, "the CPU's", &out);
        CHECK_EQ_U64(out.stats.n_hit, 0);
    }
    rig_free(&r);
    pleat_store_flush(s);
    if (make_gpu(&r, spec, s)) {
        serve(&r, "the CPU's", &out);
        CHECK_EQ_U64(out.stats.n_hit, STORED);
        check_near_tokens(spec, 1, &out, gpu_alone);
    }
    rig_free(&r);
    pleat_store_close(&s);
}

static void try_place_on_gpu(const place *p) {
    for (size_t i = 0; i < CHECK_COUNT(kinds) && check_failures() == 0; i++) {
        outcome alone;
        check_context("on a GPU, %s, %s", p->port ? "redis" : "disk", kinds[i]);
        const bool is_served = gpu_serves(kinds[i]);
        printf("# %s: %s on a GPU\n", kinds[i], is_served ? "served" : "refused");
        CHECK(is_served || i > 2);
        if (!is_served) continue;
        serve_alone(kinds[i], make_gpu, &alone);
        try_stored(p, kinds[i], make_gpu, &alone);
        try_other_device(p, kinds[i], &alone);
    }
}

/* First of all tests: it forks before this process has touched a GPU. */
static void test_matrix_gpu(void) {
    NEEDS_STORE();
    place disk = {0};
    redis server = {0};
    if (!load_once() || !folder_make(&disk.f)) return;
    int code = store_all_elsewhere(&disk);
    const bool has_server = code == 0 && pleat__server_exists() && redis_start(&server, 0);
    const place servers = {.port = server.port};
    if (has_server) code = store_all_elsewhere(&servers);
    if (code == NO_GPU) {
        (void)check_device(); /* skipped, or failed where one has to be */
    } else if (CHECK_EQ_I64(code, 0)) {
        try_place_on_gpu(&disk);
        if (has_server)
            try_place_on_gpu(&servers);
        else
            printf("# no redis-server: not tried on a GPU\n");
    }
    if (has_server) redis_stop(&server);
    folder_remove(&disk.f);
}

/* Flip a byte in each file. */
static void damage(const folder *f) {
    DIR *dir = opendir(f->path);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        pleat__store_key key;
        char path[600];
        size_t n;
        if (!pleat__folder_key_of_name(e->d_name, &key)) continue;
        snprintf(path, sizeof path, "%s/%s", f->path, e->d_name);
        unsigned char *bytes = check_read_file(path, &n);
        if (!CHECK(bytes != NULL)) continue;
        bytes[check_below(n)] ^= 4;
        FILE *file = fopen(path, "wb");
        CHECK(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
        free(bytes);
    }
    if (dir) closedir(dir);
}

/* What is damaged is computed, counted and stored again. */
static void test_damage(void) {
    NEEDS_STORE();
    folder f;
    rig r;
    outcome alone, out;
    if (!load_once() || !folder_make(&f)) return;
    pleat_store *s = store_open(&f, LARGE);
    if (make(&r, "k8v4", s)) {
        serve(&r, NULL, &alone);
        for (uint32_t i = 1; i <= 5; i++) {
            pleat_store_stats st;
            pleat_store_flush(s);
            damage(&f);
            pleat_serving_forget_prefixes(r.serving);
            serve(&r, NULL, &out);
            CHECK_EQ_U64(out.stats.n_hit, 0);
            check_hit(&r, &out, &alone, 0);
            pleat_store_get_stats(s, &st);
            CHECK_EQ_U64(st.misses[PLEAT_STORE_DAMAGED] + st.misses[PLEAT_STORE_OTHER], i);
            CHECK_EQ_U64(st.hits, 0);
        }
    }
    rig_free(&r);
    pleat_store_close(&s);
    folder_remove(&f);
}

/* Saves what no cache restores: byte spoilt_at of it is another, and the file's sums are right. */
static pleat_status (*save_whole)(void *ctx, pleat_seq seq, void *data, uint64_t n_bytes);
static uint64_t spoilt_at;
static pleat_status save_spoilt(void *ctx, pleat_seq seq, void *data, uint64_t n_bytes) {
    const pleat_status status = save_whole(ctx, seq, data, n_bytes);
    ((uint8_t *)data)[spoilt_at < n_bytes ? spoilt_at : n_bytes - 1] ^= 4;
    return status;
}

/* A whole file whose body is refused, when it is looked at (its first bytes) or when it is restored (its last): computed,
 * counted, gone, and stored again. */
static void test_refused(void) {
    NEEDS_STORE();
    static const uint64_t places[] = {16, UINT64_MAX};
    folder f;
    if (!load_once() || !folder_make(&f)) return;
    for (size_t i = 0; i < CHECK_COUNT(places) && check_failures() == 0; i++) {
        rig r;
        outcome alone, out;
        pleat_store_stats st;
        pleat_store *s = store_open(&f, LARGE);
        if (make(&r, i ? "f16" : "k8v4", s)) {
            spoilt_at = places[i];
            save_whole = r.serving->backend.save_into;
            r.serving->backend.save_into = save_spoilt;
            serve(&r, NULL, &alone);
            r.serving->backend.save_into = save_whole;
            for (uint64_t n_hits = 0; n_hits < 2; n_hits++) {
                pleat_store_flush(s);
                pleat_serving_forget_prefixes(r.serving);
                serve(&r, NULL, &out);
                check_hit(&r, &out, &alone, n_hits);
                CHECK_EQ_U64(out.stats.n_hit, n_hits * STORED);
                pleat_store_get_stats(s, &st);
                CHECK_EQ_U64(st.hits, n_hits);
                CHECK_EQ_U64(st.misses[PLEAT_STORE_DAMAGED], 1);
            }
        }
        rig_free(&r);
        CHECK(pleat_store_is_valid(s));
        pleat_store_close(&s);
    }
    folder_remove(&f);
}

static uint64_t no_pages(void *ctx, const void *data, uint64_t n_bytes) {
    (void)ctx, (void)data, (void)n_bytes;
    return 0;
}
static pleat_status no_restore(void *ctx, const pleat__image *image, pleat_seq base, pleat_seq *out) {
    (void)ctx, (void)image, (void)base, (void)out;
    return PLEAT_E_FORMAT;
}

/* A whole body that this one cannot restore, as a GPU some of the CPU's: computed, and left to who can. */
static void test_left_to_others(void) {
    NEEDS_STORE();
    folder f;
    rig r;
    outcome alone, out;
    pleat_store_stats st;
    if (!load_once() || !folder_make(&f)) return;
    pleat_store *s = store_open(&f, LARGE);
    if (make(&r, "k8v4", s)) {
        const pleat__backend able = r.serving->backend;
        serve(&r, NULL, &alone);
        for (int way = 0; way < 3; way++) { /* refused when looked at, when restored, not at all */
            if (way == 0) r.serving->backend.image_pages = no_pages;
            if (way == 1) r.serving->backend.restore = no_restore;
            pleat_store_flush(s);
            pleat_serving_forget_prefixes(r.serving);
            serve(&r, NULL, &out);
            check_hit(&r, &out, &alone, way == 2);
            r.serving->backend = able;
        }
        pleat_store_get_stats(s, &st);
        CHECK_EQ_U64(st.misses[PLEAT_STORE_DAMAGED], 0);
    }
    rig_free(&r);
    CHECK(pleat_store_is_valid(s));
    pleat_store_close(&s);
    folder_remove(&f);
}

/* Many at once, in a small pool, preempted now and then, twice over the same folder: the tokens of each alone. */
static void test_company(void) {
    NEEDS_STORE();
    if (!load_once()) return;
    static outcome alone[MAX_REQUESTS], out[MAX_REQUESTS];
    for (uint32_t k = 0; k < 2; k++) {
        const char *spec = kinds[k == 0 ? 1 : 4];
        const set all = some_requests();
        folder f;
        check_context("%s", spec);
        if (!folder_make(&f)) return;
        run_alone(spec, &all, alone);
        for (uint32_t round = 0; round < 3 && check_failures() == 0; round++) {
            rig r;
            pleat_store *s = store_open(&f, LARGE);
            if (make(&r, spec, s)) {
                run_set(r.serving, &all, out, true);
                check_same(out, alone, all.n);
                CHECK((stats_of(&r).store_hits > 0) == (round > 0));
            }
            rig_free(&r);
            pleat_store_close(&s);
        }
        folder_remove(&f);
    }
}

/* A disk that hangs.  Steps of who runs are as many as without it; who waits for it waits no longer than the time-out, and
 * later ones do not wait at all; who is cancelled leaves nothing behind. */
typedef struct hang_rig {
    folder f;
    gate g;
    pleat_store *store;
    rig r;
    outcome alone, other_alone;
    uint64_t steps_alone; /* of the other request */
} hang_rig;

static pleat_request other_request(void) { return request_of(text + 600, 1, 60); }

/* Steps until the request has ended. */
static uint64_t steps_of(pleat_serving *s, const outcome *o) {
    uint64_t n = 0;
    for (; o->finish == PLEAT_FINISH_NOT && check_failures() == 0; n++) {
        CHECK_STATUS(pleat_serving_step(s, NULL), PLEAT_OK);
        take_events(s);
    }
    CHECK(pleat_serving_is_valid(s));
    return n;
}

static bool hang_rig_make(hang_rig *h, uint64_t timeout_ns) {
    *h = (hang_rig){0};
    const pleat_request other = other_request();
    if (!load_once() || !folder_make(&h->f)) return false;
    gate_init(&h->g);
    h->store = gated_open(&h->f, &h->g, timeout_ns);
    if (!make(&h->r, "k8v4", h->store)) return false;
    serve(&h->r, NULL, &h->alone);
    submit(h->r.serving, &other, &h->other_alone);
    h->steps_alone = steps_of(h->r.serving, &h->other_alone);
    pleat_store_flush(h->store);
    pleat_serving_forget_prefixes(h->r.serving);
    gate_set(&h->g, true, false);
    return true;
}

static void hang_rig_free(hang_rig *h) {
    gate_set(&h->g, false, false);
    rig_free(&h->r);
    pleat_store_close(&h->store);
    gate_release(&h->g);
    folder_remove(&h->f);
}

static uint64_t timeouts(const hang_rig *h) {
    pleat_store_stats st;
    pleat_store_get_stats(h->store, &st);
    return st.misses[PLEAT_STORE_TIMEOUT];
}

static void test_hang(void) {
    NEEDS_STORE();
    hang_rig h;
    outcome out, twin, other;
    if (!hang_rig_make(&h, (uint64_t)1 << 62)) return;
    const pleat_request q = request_of(text, PROMPT, PREDICT), o = other_request();
    submit(h.r.serving, &q, &out);
    CHECK_STATUS(pleat_serving_step(h.r.serving, NULL), PLEAT_OK);
    gate_await(&h.g);
    submit(h.r.serving, &q, &twin); /* waits for the same */
    CHECK_STATUS(pleat_serving_step(h.r.serving, NULL), PLEAT_OK);
    CHECK(h.r.serving->tier.stands_still); /* all who are here wait for it, and may sleep */
    submit(h.r.serving, &o, &other);
    CHECK(!h.r.serving->tier.stands_still);
    CHECK_EQ_U64(steps_of(h.r.serving, &other), h.steps_alone);
    CHECK(!h.r.serving->tier.stands_still); /* whoever waited for a page of its, would begin now */
    CHECK_STATUS(pleat_serving_step(h.r.serving, NULL), PLEAT_OK);
    CHECK(h.r.serving->tier.stands_still);
    CHECK_EQ_MEM(other.tokens, h.other_alone.tokens, sizeof other.tokens);
    CHECK_EQ_U64(out.n_tokens + twin.n_tokens, 0);
    CHECK_EQ_U64(h.store->n_fetches, 1);
    gate_set(&h.g, false, false);
    run_to_end(h.r.serving, false);
    check_hit(&h.r, &out, &h.alone, 1);
    CHECK_EQ_MEM(twin.tokens, h.alone.tokens, sizeof twin.tokens);
    CHECK_EQ_U64(twin.stats.n_hit, STORED); /* from memory */
    hang_rig_free(&h);
}

static void test_hang_is_left(void) {
    NEEDS_STORE();
    hang_rig h;
    outcome out, other;
    if (!hang_rig_make(&h, 1000000)) return;
    const pleat_request o = other_request();
    serve(&h.r, NULL, &out);
    check_hit(&h.r, &out, &h.alone, 0);
    CHECK_EQ_U64(timeouts(&h), 1);
    pleat_serving_forget_prefixes(h.r.serving);
    serve(&h.r, NULL, &out);
    check_hit(&h.r, &out, &h.alone, 0);
    CHECK_EQ_U64(timeouts(&h), 2);
    submit(h.r.serving, &o, &other);
    CHECK_EQ_U64(steps_of(h.r.serving, &other), h.steps_alone);
    hang_rig_free(&h);
}

static void test_hang_is_cancelled(void) {
    NEEDS_STORE();
    hang_rig h;
    if (!hang_rig_make(&h, (uint64_t)1 << 62)) return;
    const pleat_request q = request_of(text, PROMPT, PREDICT);
    pleat_request_id ids[3];
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STATUS(pleat_serving_submit(h.r.serving, &q, &ids[i], NULL), PLEAT_OK);
        CHECK_STATUS(pleat_serving_step(h.r.serving, NULL), PLEAT_OK);
        gate_await(&h.g);
    }
    for (uint32_t i = 0; i < 2; i++) CHECK_STATUS(pleat_serving_cancel(h.r.serving, ids[i]), PLEAT_OK);
    CHECK(pleat_serving_is_valid(h.r.serving));
    CHECK_STATUS(pleat_serving_step(h.r.serving, NULL),
                 PLEAT_OK); /* the third asks for itself, and goes with the serving */
    CHECK(pleat_serving_is_valid(h.r.serving) && h.r.serving->tier.fetching != NULL);
    pleat_serving_destroy(&h.r.serving);
    gate_set(&h.g, false, false);
    hang_rig_free(&h);
}

static const check_test tests[] = {{"matrix_gpu", test_matrix_gpu}, /* first: these fork */
                                   {"matrix", test_matrix},
                                   {"prices", test_prices},
                                   {"matrix_servers", test_matrix_servers},
                                   {"damage", test_damage},
                                   {"refused", test_refused},
                                   {"left_to_others", test_left_to_others},
                                   {"company", test_company},
                                   {"hang", test_hang},
                                   {"hang_is_left", test_hang_is_left},
                                   {"hang_is_cancelled", test_hang_is_cancelled}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
