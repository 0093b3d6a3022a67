/* SPDX-License-Identifier: MIT
 *
 * image.h: a sequence as a file that another process takes for what it is, or not at all.
 *
 *     | head                                                                        | piece 0 | piece 1 | ... |
 *       what a reader must know, the pieces' sums, and a sum of all that               the body: pleat_cache_save()'s
 *
 * A cache's image says nothing of the model, the tokens or the spec that it is of.  A file's head does.  docs/IMAGE.md
 * says what each byte is.
 *
 *     writing     save the sequence without a base; fill a pleat_image_head; pleat_image_head_bytes();
 *                 pleat_image_write_head(); then the head and the body go to the file, one behind the other
 *     reading     pleat_image_read_head(), which believes nothing; compare model, spec, shape, salt and tokens with
 *                 one's own; pleat_image_check_piece() for each piece, or pleat_image_check() for the whole file;
 *                 then pleat_cache_restore_for() with the body
 *
 * What is compared is the tokens themselves, never a hash alone.
 *
 * These functions keep no state and allocate nothing; from any thread.
 */
#ifndef PLEAT_IMAGE_H
#define PLEAT_IMAGE_H

#include "pleat/cache.h"
#include "pleat/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pieces of the body but the last, bytes: a power of two. */
#define PLEAT_IMAGE_PIECE_MIN 65536u
#define PLEAT_IMAGE_PIECE_MAX 67108864u
#define PLEAT_IMAGE_PIECE_DEFAULT 1048576u

#define PLEAT_IMAGE_SALT_MAX 1024u /* bytes */

/* Of files.  It grows where a byte of a head or of a body gets another meaning. */
#define PLEAT_IMAGE_VERSION 2u

/* A step in which the sequence took two tokens or more.  How a text is cut into steps decides last bits. */
typedef struct pleat_image_step {
    uint32_t first;    /* position of its first token */
    uint32_t n_tokens; /* >= 2 */
    uint32_t flags;    /* PLEAT_ITEM_* of it */
} pleat_image_step;

typedef struct pleat_image_head {
    size_t size_bytes; /* sizeof(pleat_image_head); set by pleat_image_head_default() */

    char model[PLEAT_FINGERPRINT_CAP]; /* pleat_model_fingerprint() */
    const char *spec;                  /* [n_spec] as pleat_spec_print() has it; not NUL-terminated where it was read */
    uint32_t n_spec;                   /* 1..PLEAT_SPEC_TEXT_CAP - 1 */
    char profile[PLEAT_FINGERPRINT_CAP]; /* of the statistics that the spec's formats are made with; "": none */
    const char *salt;                    /* [n_salt] who may share it; may be NULL if n_salt is 0 */
    uint32_t n_salt;                     /* 0..PLEAT_IMAGE_SALT_MAX */
    uint32_t n_layers, n_q_heads, n_kv_heads, head_dim; /* of the cache, as in its options; none is 0 */
    uint32_t page_tokens;                               /* pleat_cache_page_tokens() */
    const pleat_token *tokens;                          /* [n_tokens] that the sequence has stored; none is negative */
    uint32_t n_tokens;                                  /* 1..2^24 */
    const pleat_image_step *steps;                      /* [n_steps] in order; all other tokens came one by one */
    uint32_t n_steps;
    uint32_t piece_bytes; /* PLEAT_IMAGE_PIECE_MIN..MAX, a power of two; default PLEAT_IMAGE_PIECE_DEFAULT */
    uint64_t body_bytes;  /* >= 1; pleat_cache_image_bytes() without a base */
} pleat_image_head;

PLEAT_API void pleat_image_head_default(pleat_image_head *head);

/* Bytes of the head in a file, a multiple of 8; the body follows.  0 for a head that breaks a rule above. */
PLEAT_API uint64_t pleat_image_head_bytes(const pleat_image_head *head);

/* Pieces of the body. */
PLEAT_API uint64_t pleat_image_n_pieces(const pleat_image_head *head);

/* Write the head of a file with this body, [head->body_bytes], to `out`.  cap >= pleat_image_head_bytes(), else
 * PLEAT_E_ARG; so is a head that breaks a rule. */
PLEAT_API pleat_status pleat_image_write_head(const pleat_image_head *head, const void *body, void *out, uint64_t cap);

/* Read the head of a file, whose first n_bytes bytes `bytes` are, at an address that is a multiple of 8.  *out then
 * points into them.  *head_bytes is set where the first 16 bytes are a head's, also when more are needed:
 *     PLEAT_AGAIN           n_bytes is less than *head_bytes, or than 16
 *     PLEAT_E_FORMAT        no image, or a damaged head; err->where is the offset at fault
 *     PLEAT_E_UNSUPPORTED   another version
 * err may be NULL; head_bytes too. */
PLEAT_API pleat_status pleat_image_read_head(const void *bytes, uint64_t n_bytes, pleat_image_head *out,
                                             uint64_t *head_bytes, pleat_error *err);

/* Is this piece idx of the body that the head, read from `bytes`, is of?  `piece` has as many bytes as that one has.
 * PLEAT_OK, PLEAT_E_FORMAT for a damaged one, PLEAT_E_ARG for what is no head or no such piece.  Reads the head's own
 * sum of the piece; costs what hashing the piece costs. */
PLEAT_API pleat_status pleat_image_check_piece(const void *bytes, uint64_t n_bytes, uint64_t idx, const void *piece);

/* The whole file at once: its head, its length, every piece.  *out as from pleat_image_read_head(), and *body points to
 * the body.  PLEAT_E_FORMAT also where bytes are missing or left over.  body may be NULL. */
PLEAT_API pleat_status pleat_image_check(const void *bytes, uint64_t n_bytes, pleat_image_head *out, const void **body,
                                         pleat_error *err);

/* Whether a file's sequence is what the reader wants, but for its tokens: model, spec, profile, salt, shape and page
 * tokens of both are the same.  PLEAT_OK, or PLEAT_E_ARG with the first difference in err, which may be NULL. */
PLEAT_API pleat_status pleat_image_compare(const pleat_image_head *head, const pleat_image_head *wanted,
                                           pleat_error *err);

#ifdef __cplusplus
}
#endif
#endif
