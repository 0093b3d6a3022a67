/* SPDX-License-Identifier: MIT
 *
 * fuzz_events.c: any bytes as frames that come to the ROUTER socket of events, and as tokens of a batch.
 *
 *     frames    | n | n % 65 bytes | n | ...      what is left of the last one is all of it
 *
 * Frames are a request just where they are an identity, nothing, and a number; where the build has libzmq, a publisher with six
 * batches, of which it keeps four, is sent them as well: it answers with these from the number on, and what is no request is
 * followed by an answer to the next that is one.  A batch is one value of msgpack, and ends where its bytes do.
 */
#include "fuzz.h"

#include <string.h>

#include "core/memory.h"
#include "events/publisher.h"
#include "events/wire.h"

#if PLEAT_ZMQ
#include <errno.h>
#include <unistd.h>
#include <zmq.h>
#endif

enum { FRAMES = 16, FRAME_BYTES = 64, TOKENS = 4096, BATCHES = 6, KEPT = 4 };

/* Frames of the input: at most FRAMES, each with at most FRAME_BYTES, as larger ones end their connection. */
static uint32_t cut_frames(const uint8_t *data, size_t size, pleat__frame out[FRAMES]) {
    uint32_t n = 0;
    for (size_t at = 0; at < size && n < FRAMES; n++) {
        const size_t left = size - at - 1, wanted = data[at] % (FRAME_BYTES + 1);
        out[n] = (pleat__frame){data + at + 1, wanted < left ? wanted : left};
        at += 1 + out[n].n;
    }
    return n;
}

static uint64_t number_of(const uint8_t *bytes, uint32_t n_bytes) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < n_bytes; i++) value = value * 256 + bytes[i];
    return value;
}

/* ---- a request ---------------------------------------------------------------------------------------------------- */

static void try_request(const pleat__frame *frames, uint32_t n) {
    uint64_t seq = 12345;
    const bool is_one = n == 3 && frames[1].n == 0 && frames[2].n == 8;
    EXPECT(pleat__get_replay(frames, n, &seq) == is_one);
    EXPECT(seq == (is_one ? number_of(frames[2].bytes, 8) : 12345));
    if (!is_one) return;
    uint8_t again[PLEAT__SEQ_BYTES];
    pleat__put_seq((int64_t)seq, again);
    EXPECT(memcmp(again, frames[2].bytes, sizeof again) == 0);
}

/* ---- a batch ------------------------------------------------------------------------------------------------------ */

typedef struct packed {
    const uint8_t *bytes;
    uint64_t n, at;
} packed;

/* A number of n_bytes bytes, all of which are there. */
static uint64_t take(packed *p, uint32_t n_bytes) {
    EXPECT(p->n - p->at >= n_bytes);
    const uint64_t value = number_of(p->bytes + p->at, n_bytes);
    p->at += n_bytes;
    return value;
}

/* The values of a list, two for each entry of a map; 0: it is none, and has been walked over. */
static uint64_t walk_one(packed *p) {
    const uint8_t kind = (uint8_t)take(p, 1);
    uint64_t n_text = 0;
    if (kind >= 0x80 && kind <= 0x8f) return 2 * (kind & 15u);
    if (kind >= 0x90 && kind <= 0x9f) return kind & 15u;
    if (kind == 0xdc || kind == 0xdd) return take(p, kind == 0xdc ? 2 : 4);
    if (kind >= 0xa0 && kind <= 0xbf) n_text = kind & 31u;
    if (kind >= 0xd9 && kind <= 0xdb) n_text = take(p, 1u << (kind - 0xd9));
    if (kind == 0xcb) (void)take(p, 8);
    if (kind >= 0xcc && kind <= 0xd3) (void)take(p, 1u << ((kind - 0xcc) % 4));
    EXPECT(kind <= 0xc0 || (kind >= 0xcb && kind <= 0xd3) || (kind >= 0xd9 && kind <= 0xdb) || kind >= 0xe0);
    EXPECT(p->n - p->at >= n_text);
    p->at += n_text;
    return 0;
}

static void expect_whole(pleat__batch *b) {
    EXPECT(b);
    packed p = {.bytes = b->bytes, .n = b->n_bytes};
    for (uint64_t n_open = 1; n_open > 0; n_open--) n_open += walk_one(&p);
    EXPECT(p.at == p.n && p.n <= b->cap_bytes);
}

static void try_batches(const uint8_t *data, size_t size) {
    static pleat_token tokens[TOKENS];
    static uint64_t hashes[TOKENS];
    char salt[FRAME_BYTES * 8] = "";
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    if (size < 3 || !pleat__wire_exists()) return;
    pleat__stored s = {
        .hashes = hashes, .has_before = data[0] & 1, .before = data[1], .block_tokens = 1 + data[1] % 32u};
    if (data[0] & 2) memcpy(salt, data, size < sizeof salt ? size : sizeof salt - 1);
    for (uint32_t i = 0; i < TOKENS && i < size / 4; i++)
        tokens[i] = (pleat_token)(number_of(data + 4 * i, 4) & INT32_MAX);
    s.n = (uint32_t)(size / 4 < TOKENS ? size / 4 : TOKENS) / s.block_tokens;
    for (uint32_t i = 0; i < s.n; i++) hashes[i] = number_of(data + i, 4) << (data[i] % 64);
    s.tokens = tokens;
    s.salt = salt;
    pleat__batch *all[] = {s.n ? pleat__pack_stored(&al, &s, data[2]) : pleat__pack_cleared(&al, data[2]),
                           pleat__pack_removed(&al, hashes, s.n, data[2])};
    for (int i = 0; i < 2; i++) {
        expect_whole(all[i]);
        pleat__batch_free(&al, all[i]);
    }
}

/* ---- a socket ----------------------------------------------------------------------------------------------------- */

#if PLEAT_ZMQ

#define TOPIC "kv"

static pleat__publisher *publisher;
static void *context, *dealer;
static uint64_t n_refused; /* messages so far that are no request */

/* Wait for the next frame of an answer, of at most `cap` bytes; whether it is its message's last. */
static size_t hear(uint8_t *out, size_t cap, bool is_last) {
    int more = 0;
    size_t n_more = sizeof more;
    int n;
    do n = zmq_recv(dealer, out, cap, 0);
    while (n < 0 && errno == EINTR); /* libFuzzer's clock */
    EXPECT(n >= 0 && (size_t)n <= cap);
    EXPECT(zmq_getsockopt(dealer, ZMQ_RCVMORE, &more, &n_more) == 0 && (more == 0) == is_last);
    return (size_t)n;
}

/* One message of an answer: the number of its batch, UINT64_MAX at the end. */
static uint64_t hear_batch(void) {
    uint8_t bytes[512];
    EXPECT(hear(bytes, sizeof bytes, false) == 0);
    const size_t n_topic = hear(bytes, sizeof bytes, false);
    EXPECT(n_topic == 0 || (n_topic == strlen(TOPIC) && memcmp(bytes, TOPIC, n_topic) == 0));
    EXPECT(hear(bytes, sizeof bytes, false) == PLEAT__SEQ_BYTES);
    const uint64_t seq = number_of(bytes, PLEAT__SEQ_BYTES);
    const size_t n = hear(bytes, sizeof bytes, true);
    EXPECT((seq == UINT64_MAX) == (n == 0) && (n == 0) == (n_topic == 0));
    return seq;
}

static void say(const pleat__frame *frames, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        int n_sent;
        do n_sent = zmq_send(dealer, frames[i].bytes, frames[i].n, i + 1 < n ? ZMQ_SNDMORE : 0);
        while (n_sent < 0 && errno == EINTR);
        EXPECT(n_sent == (int)frames[i].n);
    }
}

static void say_request(uint64_t from) {
    uint8_t bytes[PLEAT__SEQ_BYTES];
    pleat__put_seq((int64_t)from, bytes);
    say((pleat__frame[]){{bytes, 0}, {bytes, sizeof bytes}}, 2);
}

static void expect_answer(uint64_t from) {
    for (uint64_t seq = from > BATCHES - KEPT ? from : BATCHES - KEPT; seq < BATCHES; seq++)
        EXPECT(hear_batch() == seq);
    EXPECT(hear_batch() == UINT64_MAX);
}

static void close_all(void) {
    (void)zmq_close(dealer);
    (void)zmq_ctx_term(context);
    pleat__publisher_close(publisher);
}

/* Ask until all batches have left their queue. */
static void await_batches(void) {
    for (uint64_t last = 0, seq; last != BATCHES - 1;) {
        say_request(0);
        while ((seq = hear_batch()) != UINT64_MAX) last = seq;
    }
}

static void open_all(void) {
    const pleat_allocator al = pleat__allocator_or_default(NULL);
    const int linger_ms = 0;
    char here[2][64];
    pleat_events_options o;
    pleat_events_options_default(&o);
    for (int i = 0; i < 2; i++)
        snprintf(here[i], sizeof here[i], "ipc:///tmp/pleat_fuzz_events_%ld_%d", (long)getpid(), i);
    o.endpoint = here[0];
    o.replay_endpoint = here[1];
    o.topic = TOPIC;
    o.replay_batches = KEPT;
    EXPECT(pleat__publisher_open(&o, &al, &publisher, NULL) == PLEAT_OK);
    context = zmq_ctx_new();
    dealer = zmq_socket(context, ZMQ_DEALER);
    EXPECT(zmq_setsockopt(dealer, ZMQ_LINGER, &linger_ms, sizeof linger_ms) == 0 && zmq_connect(dealer, here[1]) == 0);
    EXPECT(atexit(close_all) == 0);
    for (int i = 0; i < BATCHES; i++) pleat__publisher_post(publisher, pleat__pack_cleared(&al, i));
    await_batches();
}

static void try_socket(const pleat__frame *frames, uint32_t n) {
    const bool is_one = n == 2 && frames[0].n == 0 && frames[1].n == PLEAT__SEQ_BYTES;
    pleat_events_stats stats;
    if (!pleat__wire_exists()) return; /* there are no batches to send */
    if (!publisher) open_all();
    say(frames, n);
    n_refused += n > 0 && !is_one;
    if (is_one) expect_answer(number_of(frames[1].bytes, PLEAT__SEQ_BYTES));
    say_request(UINT64_MAX);
    expect_answer(UINT64_MAX);
    pleat__publisher_get_stats(publisher, &stats);
    EXPECT(stats.n_refused == n_refused && stats.n_batches == BATCHES && stats.n_lost == 0);
}

#else

static void try_socket(const pleat__frame *frames, uint32_t n) {
    (void)frames;
    (void)n;
}

#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pleat__frame frames[FRAMES];
    const uint32_t n = cut_frames(data, size, frames);
    try_request(frames, n);
    try_batches(data, size);
    try_socket(frames, n);
    return 0;
}
