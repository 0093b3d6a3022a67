/* SPDX-License-Identifier: MIT
 *
 * test_events.c: which blocks are told and taken back, against a list that is searched from end to end; a batch's bytes, against
 * bytes written by hand; requests for a replay, whatever stands in them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "events/blocks.h"
#include "events/wire.h"
#include "pleat/events.h"

/* ---- the table ---------------------------------------------------------------------------------------------------- */

enum { HASHES = 300 };

/* Few homes, so that cells collide and gaps are closed around the table's end. */
static void test_blocks(void) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    pleat__blocks b = {0};
    uint64_t users[HASHES] = {0}, n_used = 0;
    CHECK_STATUS(pleat__blocks_reserve(&b, &al, HASHES), PLEAT_OK);
    for (uint32_t round = 0; round < check_rounds(200000, 20000); round++) {
        const uint32_t i = check_below(HASHES);
        const uint64_t hash = (uint64_t)(i % 7 + 1020) + 1024 * (uint64_t)i;
        const bool adds = users[i] == 0 || (users[i] < 3 && check_below(2) == 0);
        const bool is_edge = adds ? users[i]++ == 0 : --users[i] == 0;
        n_used = is_edge ? (adds ? n_used + 1 : n_used - 1) : n_used;
        if (!CHECK(is_edge == (adds ? pleat__blocks_add(&b, hash) : pleat__blocks_drop(&b, hash)))) break;
        if (!CHECK_EQ_U64(b.n_used, n_used)) break;
    }
    pleat__blocks_release(&b, &al);
}

/* A hash has all tokens before it, and the salt. */
static void test_chain(void) {
    pleat_token tokens[64];
    for (int i = 0; i < 64; i++) tokens[i] = i;
    const uint64_t plain = pleat__blocks_start(NULL), salted = pleat__blocks_start("x");
    CHECK(plain == pleat__blocks_start("") && plain != salted);
    const uint64_t a = pleat__blocks_next(plain, tokens, 16), b = pleat__blocks_next(a, tokens + 16, 16);
    CHECK(a != pleat__blocks_next(salted, tokens, 16));
    CHECK(b != pleat__blocks_next(plain, tokens + 16, 16));
    tokens[0] = 1;
    CHECK(b != pleat__blocks_next(pleat__blocks_next(plain, tokens, 16), tokens + 16, 16));
}

/* ---- bytes -------------------------------------------------------------------------------------------------------- */

#define NEEDS_WIRE() \
    if (!pleat__wire_exists()) SKIP("this build has no msgpack")

static void check_batch(pleat__batch *batch, const char *bytes, size_t n) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    if (!CHECK(batch != NULL)) return;
    CHECK_EQ_U64(batch->n_bytes, n);
    if (batch->n_bytes == n) CHECK_EQ_MEM(batch->bytes, bytes, n);
    pleat__batch_free(&al, batch);
}

#define TEXT(...) __VA_ARGS__, sizeof(__VA_ARGS__) - 1
#define HEAD "\x93\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\x91" /* [1.5, [ */

static void test_bytes(void) {
    NEEDS_WIRE();
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    const uint64_t hashes[2] = {5, UINT64_MAX};
    const pleat_token tokens[4] = {1, 200, 70000, 3};
    pleat__stored s = {.hashes = hashes, .n = 2, .tokens = tokens, .block_tokens = 2, .salt = "s"};
    check_batch(pleat__pack_cleared(&al, 1.5), TEXT(HEAD "\x81\xa4type\xb0"
                                                         "AllBlocksCleared\x00"));
    check_batch(pleat__pack_removed(&al, hashes, 2, 1.5),
                TEXT(HEAD "\x83\xa4type\xac"
                          "BlockRemoved\xac"
                          "block_hashes\x92\x05\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa6medium\xa3GPU\x00"));
#define STORED        \
    "\xa4type\xab"    \
    "BlockStored\xac" \
    "block_hashes\x92\x05\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xb1parent_block_hash"
#define BEHIND                                                  \
    "\xa9token_ids\x94\x01\xcc\xc8\xce\x00\x01\x11\x70\x03\xaa" \
    "block_size\x02\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xc0"
    check_batch(pleat__pack_stored(&al, &s, 1.5), TEXT(HEAD "\x89" STORED "\xc0" BEHIND "\xaa"
                                                            "extra_keys\x92\x91\xa1s\xc0\x00"));
    s.has_before = true;
    s.before = 7;
    check_batch(pleat__pack_stored(&al, &s, 1.5), TEXT(HEAD "\x88" STORED "\x07" BEHIND "\x00"));
}

/* The room that is reckoned is enough, however large numbers are. */
static void test_room(void) {
    NEEDS_WIRE();
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    enum { N = 700, BLOCK = 100 };
    static uint64_t hashes[N];
    static pleat_token tokens[N * BLOCK];
    static char salt[4000];
    memset(hashes, 0xff, sizeof hashes);
    memset(salt, 's', sizeof salt - 1);
    for (uint32_t i = 0; i < N * BLOCK; i++) tokens[i] = INT32_MAX;
    const pleat__stored s = {.hashes = hashes, .n = N, .tokens = tokens, .block_tokens = BLOCK, .salt = salt};
    pleat__batch *b = pleat__pack_stored(&al, &s, 1e9);
    if (CHECK(b != NULL)) CHECK(b->n_bytes > N * (9 + 5 * BLOCK) + sizeof salt && b->bytes[b->n_bytes - 1] == 0);
    pleat__batch_free(&al, b);
}

static void test_requests(void) {
    uint8_t bytes[64];
    uint64_t seq = 0;
    pleat__put_seq(-1, bytes);
    CHECK_EQ_MEM(bytes, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    pleat__put_seq(0x0102030405060708, bytes);
    for (uint32_t n = 0; n < 5; n++)
        for (uint32_t n_empty = 0; n_empty < 2; n_empty++)
            for (uint32_t n_from = 0; n_from < 64; n_from++) {
                const pleat__frame frames[5] = {{bytes, 5}, {bytes, n_empty}, {bytes, n_from}, {bytes, 1}, {bytes, 1}};
                const bool is_one = n == 3 && n_empty == 0 && n_from == 8;
                CHECK(pleat__get_replay(frames, n, &seq) == is_one);
            }
    CHECK_EQ_U64(seq, 0x0102030405060708);
}

/* ---- kept and forgotten ------------------------------------------------------------------------------------------- */

enum { BLOCK = 4, KEPT = 24, TOKENS = 60 };

typedef struct kept {
    pleat_events_prefix *told; /* NULL: nothing is kept here */
    uint32_t n_tokens, from;   /* from: index of the one that it goes on from; KEPT: none */
    pleat_token tokens[TOKENS];
    const char *salt;
    uint32_t n_children;
} kept;

/* Blocks of two prefixes that are the same ones. */
static uint32_t n_common(const kept *a, const kept *b) {
    uint32_t n = 0;
    if (strcmp(a->salt, b->salt) != 0) return 0;
    while ((n + 1) * BLOCK <= a->n_tokens && (n + 1) * BLOCK <= b->n_tokens &&
           memcmp(a->tokens + n * BLOCK, b->tokens + n * BLOCK, BLOCK * sizeof(pleat_token)) == 0)
        n++;
    return n;
}

/* Has this prefix a block that none of the others has? */
static bool tells(const kept *all, uint32_t i) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < KEPT; k++)
        if (k != i && all[k].told && n_common(&all[i], &all[k]) > n) n = n_common(&all[i], &all[k]);
    return all[i].n_tokens / BLOCK > n;
}

static void make_tokens(kept *all, uint32_t i) {
    kept *k = &all[i];
    const uint32_t from = check_below(KEPT + 1);
    const bool goes_on = from < KEPT && from != i && all[from].told && all[from].n_tokens < TOKENS;
    *k = (kept){.from = goes_on ? from : KEPT, .salt = check_below(2) ? "s" : ""};
    if (goes_on) memcpy(k->tokens, all[from].tokens, sizeof k->tokens);
    if (goes_on) k->salt = all[from].salt;
    const uint32_t n = goes_on ? all[from].n_tokens : 0;
    k->n_tokens = n + 1 + check_below(TOKENS - n);
    for (uint32_t t = n; t < k->n_tokens; t++) k->tokens[t] = (pleat_token)check_below(2);
    if (goes_on) all[from].n_children++;
}

enum { REPLAY_BYTES = 8192 };

/* Each change sends a batch just where the list says that a block comes or goes. */
static void test_kept(void) {
    char endpoint[64];
    pleat_events_options o;
    pleat_events *e = NULL;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    static kept all[KEPT];
    pleat_events_options_default(&o);
    snprintf(endpoint, sizeof endpoint, "ipc:///tmp/pleat_check_events_%ld", (long)getpid());
    o.endpoint = endpoint;
    o.block_tokens = BLOCK;
    o.replay_batches = 1000;
    o.replay_bytes = REPLAY_BYTES;
    const pleat_status status = pleat_events_open(&o, &e, &err);
    if (status == PLEAT_E_UNSUPPORTED) SKIP("this build has no libzmq or no msgpack");
    if (!CHECK_STATUS(status, PLEAT_OK)) return;
    uint64_t n_batches = 1; /* AllBlocksCleared */
    for (uint32_t round = 0; round < check_rounds(20000, 2000) && check_failures() == 0; round++) {
        pleat_events_stats st;
        const uint32_t i = check_below(KEPT);
        if (!all[i].told) {
            make_tokens(all, i);
            const kept *k = &all[i];
            const pleat_events_prefix *from = k->from < KEPT ? all[k->from].told : NULL;
            n_batches += tells(all, i);
            CHECK_STATUS(pleat_events_keep(e, from, k->salt, k->tokens, k->n_tokens, &all[i].told), PLEAT_OK);
        } else if (all[i].n_children == 0) {
            if (all[i].from < KEPT) all[all[i].from].n_children--;
            n_batches += tells(all, i);
            pleat_events_forget(e, &all[i].told);
            CHECK(all[i].told == NULL);
        }
        pleat_events_get_stats(e, &st);
        CHECK_EQ_U64(st.n_batches, n_batches);
        CHECK_EQ_U64(st.n_lost, 0);
        CHECK(st.replay_bytes <= REPLAY_BYTES);
    }
    for (uint32_t i = 0; i < KEPT; i++) pleat_events_forget(e, &all[i].told);
    pleat_events_close(&e);
    CHECK(e == NULL);
}

static void test_refused(void) {
    pleat_events_options o;
    pleat_events *e = NULL;
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_events_options_default(&o);
    CHECK_STATUS(pleat_events_open(&o, &e, &err), PLEAT_E_ARG); /* no endpoint */
    o.endpoint = "elsewhere";
    o.block_tokens = 0;
    CHECK_STATUS(pleat_events_open(&o, &e, &err), PLEAT_E_ARG);
    o.block_tokens = 16;
    o.size_bytes--;
    CHECK_STATUS(pleat_events_open(&o, &e, &err), PLEAT_E_ARG);
    o.size_bytes++;
    const pleat_status status = pleat_events_open(&o, &e, &err);
    CHECK(e == NULL && (status == PLEAT_E_IO || status == PLEAT_E_UNSUPPORTED));
    if (status == PLEAT_E_IO) CHECK(strstr(err.text, "elsewhere") != NULL);
    pleat_events_forget(NULL, NULL);
    pleat_events_close(NULL);
    pleat_events_close(&e);
}

static const check_test tests[] = {
    {"blocks", test_blocks},     {"chain", test_chain}, {"bytes", test_bytes},     {"room", test_room},
    {"requests", test_requests}, {"kept", test_kept},   {"refused", test_refused},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
