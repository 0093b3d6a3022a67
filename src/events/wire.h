/* SPDX-License-Identifier: MIT
 *
 * wire.h: events as bytes, and the numbers around them: docs/EVENTS.md is law.
 */
#ifndef PLEAT_EVENTS_WIRE_H
#define PLEAT_EVENTS_WIRE_H

#include "core/memory.h"
#include "pleat/model.h"

enum { PLEAT__SEQ_BYTES = 8 };

/* A batch of one event, in bytes. */
typedef struct pleat__batch {
    struct pleat__batch *next; /* in a queue */
    int64_t seq;
    uint64_t cap_bytes, n_bytes;
    uint8_t bytes[]; /* [cap_bytes] */
} pleat__batch;

/* Blocks that are kept now, one behind the other: hashes [n], tokens [n * block_tokens]. */
typedef struct pleat__stored {
    const uint64_t *hashes;
    uint32_t n;
    bool has_before; /* else the first block begins a sequence */
    uint64_t before; /* hash of the block before the first */
    const pleat_token *tokens;
    uint32_t block_tokens;
    const char *salt; /* looked at where they begin a sequence; NULL or "": none */
} pleat__stored;

/* Each makes a batch, which pleat__batch_free() takes.  at_s: seconds since 1970.  NULL: there is no memory, or no msgpack. */
pleat__batch *pleat__pack_stored(const pleat_allocator *al, const pleat__stored *s, double at_s);
pleat__batch *pleat__pack_removed(const pleat_allocator *al, const uint64_t *hashes, uint32_t n, double at_s);
pleat__batch *pleat__pack_cleared(const pleat_allocator *al, double at_s);

/* NULL is fine. */
void pleat__batch_free(const pleat_allocator *al, pleat__batch *batch);

/* Big endian; -1 ends a replay. */
void pleat__put_seq(int64_t seq, uint8_t out[PLEAT__SEQ_BYTES]);

/* A frame of a message. */
typedef struct pleat__frame {
    const uint8_t *bytes;
    uint64_t n;
} pleat__frame;

/* From which number on a replay is asked for, by the n frames of a request.  False: they are none. */
bool pleat__get_replay(const pleat__frame *frames, uint32_t n, uint64_t *seq);

/* False: this build has no msgpack. */
bool pleat__wire_exists(void);

#endif
