/* SPDX-License-Identifier: MIT
 *
 * wire.c: see wire.h.
 */
#include "events/wire.h"

#include <string.h>

void pleat__put_seq(int64_t seq, uint8_t out[PLEAT__SEQ_BYTES]) {
    for (uint32_t i = 0; i < PLEAT__SEQ_BYTES; i++) out[i] = (uint8_t)((uint64_t)seq >> (8 * (7 - i)));
}

/* An identity, nothing, the number. */
bool pleat__get_replay(const pleat__frame *frames, uint32_t n, uint64_t *seq) {
    if (n != 3 || frames[1].n != 0 || frames[2].n != PLEAT__SEQ_BYTES) return false;
    uint64_t value = 0;
    for (uint32_t i = 0; i < PLEAT__SEQ_BYTES; i++) value = value << 8 | frames[2].bytes[i];
    *seq = value;
    return true;
}

void pleat__batch_free(const pleat_allocator *al, pleat__batch *batch) {
    if (batch) pleat__free(al, batch, 1, sizeof *batch + batch->cap_bytes);
}

#if PLEAT_MSGPACK

#include <msgpack.h>

enum { NAMES_BYTES = 256, NUMBER_BYTES = 9, TOKEN_BYTES = 5 }; /* what all names, a number and a token take at most */

bool pleat__wire_exists(void) { return true; }

/* msgpack's packer calls it. */
static int append(void *batch, const char *bytes, size_t n) {
    pleat__batch *b = batch;
    if (n > b->cap_bytes - b->n_bytes) return -1;
    memcpy(b->bytes + b->n_bytes, bytes, n);
    b->n_bytes += n;
    return 0;
}

typedef struct packing {
    pleat__batch *batch;
    msgpack_packer to;
} packing;

static void put_text(packing *p, const char *text) {
    const size_t n = strlen(text);
    (void)msgpack_pack_str(&p->to, n);
    (void)msgpack_pack_str_body(&p->to, text, n);
}

static void put_null(packing *p, const char *name) {
    put_text(p, name);
    (void)msgpack_pack_nil(&p->to);
}

static void put_number(packing *p, const char *name, uint64_t value) {
    put_text(p, name);
    (void)msgpack_pack_uint64(&p->to, value);
}

static void put_hashes(packing *p, const uint64_t *hashes, uint32_t n) {
    put_text(p, "block_hashes");
    (void)msgpack_pack_array(&p->to, n);
    for (uint32_t i = 0; i < n; i++) (void)msgpack_pack_uint64(&p->to, hashes[i]);
}

static void put_medium(packing *p) {
    put_text(p, "medium");
    put_text(p, "GPU"); /* vLLM's word for where computing finds it at once, on its CPU backend too */
}

/* [ts, [event], data_parallel_rank], up to the event's type; n_fields follow that.  variable_bytes: what is no name nor small.
 * False: there is no memory. */
static bool begin(packing *p, const pleat_allocator *al, uint64_t variable_bytes, const char *type, double at_s,
                  uint32_t n_fields) {
    const uint64_t cap_bytes = NAMES_BYTES + variable_bytes;
    p->batch = pleat__alloc(al, 1, sizeof *p->batch + cap_bytes);
    if (!p->batch) return false;
    *p->batch = (pleat__batch){.cap_bytes = cap_bytes};
    msgpack_packer_init(&p->to, p->batch, append);
    (void)msgpack_pack_array(&p->to, 3);
    (void)msgpack_pack_double(&p->to, at_s);
    (void)msgpack_pack_array(&p->to, 1);
    (void)msgpack_pack_map(&p->to, 1 + n_fields);
    put_text(p, "type");
    put_text(p, type);
    return true;
}

static pleat__batch *end(packing *p) {
    (void)msgpack_pack_int(&p->to, 0);
    return p->batch;
}

/* What a block's hash has beside tokens, block by block: the first one's salt. */
static void put_salt(packing *p, const pleat__stored *s) {
    put_text(p, "extra_keys");
    (void)msgpack_pack_array(&p->to, s->n);
    (void)msgpack_pack_array(&p->to, 1);
    put_text(p, s->salt);
    for (uint32_t i = 1; i < s->n; i++) (void)msgpack_pack_nil(&p->to);
}

pleat__batch *pleat__pack_stored(const pleat_allocator *al, const pleat__stored *s, double at_s) {
    packing p;
    const bool has_salt = !s->has_before && s->salt && s->salt[0];
    const uint32_t n_tokens = s->n * s->block_tokens;
    const uint64_t n_salt = has_salt ? strlen(s->salt) + s->n : 0;
    const uint64_t n_variable = (uint64_t)s->n * NUMBER_BYTES + (uint64_t)n_tokens * TOKEN_BYTES + n_salt;
    if (!begin(&p, al, n_variable, "BlockStored", at_s, has_salt ? 8 : 7)) return NULL;
    put_hashes(&p, s->hashes, s->n);
    if (s->has_before)
        put_number(&p, "parent_block_hash", s->before);
    else
        put_null(&p, "parent_block_hash");
    put_text(&p, "token_ids");
    (void)msgpack_pack_array(&p.to, n_tokens);
    for (uint32_t i = 0; i < n_tokens; i++) (void)msgpack_pack_int32(&p.to, s->tokens[i]);
    put_number(&p, "block_size", s->block_tokens);
    put_null(&p, "lora_id");
    put_medium(&p);
    put_null(&p, "lora_name");
    if (has_salt) put_salt(&p, s);
    return end(&p);
}

pleat__batch *pleat__pack_removed(const pleat_allocator *al, const uint64_t *hashes, uint32_t n, double at_s) {
    packing p;
    if (!begin(&p, al, (uint64_t)n * NUMBER_BYTES, "BlockRemoved", at_s, 2)) return NULL;
    put_hashes(&p, hashes, n);
    put_medium(&p);
    return end(&p);
}

pleat__batch *pleat__pack_cleared(const pleat_allocator *al, double at_s) {
    packing p;
    return begin(&p, al, 0, "AllBlocksCleared", at_s, 0) ? end(&p) : NULL;
}

#else

bool pleat__wire_exists(void) { return false; }

pleat__batch *pleat__pack_stored(const pleat_allocator *al, const pleat__stored *s, double at_s) {
    (void)s;
    return pleat__pack_cleared(al, at_s);
}

pleat__batch *pleat__pack_removed(const pleat_allocator *al, const uint64_t *hashes, uint32_t n, double at_s) {
    (void)hashes;
    (void)n;
    return pleat__pack_cleared(al, at_s);
}

pleat__batch *pleat__pack_cleared(const pleat_allocator *al, double at_s) {
    (void)al;
    (void)at_s;
    return NULL;
}

#endif
