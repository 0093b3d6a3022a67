/* SPDX-License-Identifier: MIT
 *
 * image.c: the head of an image file, written and read.  docs/IMAGE.md is law; hosts are little endian.
 *
 *     0    8   magic            "PLEATIMG"                28   4   tokens           44   4   layers
 *     8    4   version          2                         32   4   steps            48   4   query heads
 *     12   4   head's bytes     a multiple of 8           36   2   spec's bytes     52   4   KV heads
 *     16   8   body's bytes                               38   2   salt's bytes     56   4   head dimension
 *     24   4   a piece's bytes                            40   4   zero             60   4   page tokens
 *     64  32   model     96  32   profile, or zeros
 *
 *     128  spec | salt | zeros to a multiple of 8 | tokens 4 each | steps 12 each | zeros to a multiple of 8 |
 *          pieces' sums 8 each | the head's sum 16
 *
 * The fixed part says how long all is.  So a reader believes a count once the head is known to be as long as the counts
 * make it; and its contents once the sum holds, which covers everything before it.
 */
#include "pleat/image.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/error.h"
#include "image/sum.h"

enum { MAX_TOKENS = 1 << 24, PRINT_BYTES = PLEAT_FINGERPRINT_CAP - 1 };
static const char magic[8] = {'P', 'L', 'E', 'A', 'T', 'I', 'M', 'G'};

/* The fixed part, byte for byte. */
typedef struct fixed_part {
    char magic[8];
    uint32_t version, head_bytes;
    uint64_t body_bytes;
    uint32_t piece_bytes, n_tokens, n_steps;
    uint16_t n_spec, n_salt;
    uint32_t zero, n_layers, n_q_heads, n_kv_heads, head_dim, page_tokens;
    char model[PRINT_BYTES], profile[PRINT_BYTES];
} fixed_part;
_Static_assert(sizeof(fixed_part) == 128, "docs/IMAGE.md has its offsets");
_Static_assert(sizeof(pleat_image_step) == 12 && sizeof(pleat_token) == 4, "written as they are");

/* Where the parts behind it stand, from the file's first byte. */
typedef struct head_parts {
    uint64_t texts_at, tokens_at, steps_at, sums_at, sum_at, n_bytes;
} head_parts;

static uint64_t up_to_8(uint64_t n) { return (n + 7) & ~(uint64_t)7; }

uint64_t pleat_image_n_pieces(const pleat_image_head *h) {
    return h && h->piece_bytes ? (h->body_bytes - 1) / h->piece_bytes + 1 : 0;
}

/* Of a head whose fields are within their ranges. */
static head_parts parts_of(const pleat_image_head *h) {
    head_parts p = {.texts_at = sizeof(fixed_part)};
    p.tokens_at = up_to_8(p.texts_at + h->n_spec + h->n_salt);
    p.steps_at = p.tokens_at + (uint64_t)h->n_tokens * sizeof *h->tokens;
    p.sums_at = up_to_8(p.steps_at + (uint64_t)h->n_steps * sizeof *h->steps);
    p.sum_at = p.sums_at + pleat_image_n_pieces(h) * sizeof(uint64_t);
    p.n_bytes = p.sum_at + sizeof(XXH128_canonical_t);
    return p;
}

/* ---- rules --------------------------------------------------------------------------------------------- */

static bool is_print(const char *text) {
    return strspn(text, "0123456789abcdef") == PRINT_BYTES && text[PRINT_BYTES] == 0;
}

/* All that the fixed part says.  A body of 2^48 bytes has at most 2^32 pieces. */
static bool sizes_are_sound(const pleat_image_head *h) {
    const uint32_t piece = h->piece_bytes;
    return h->n_spec >= 1 && h->n_spec < PLEAT_SPEC_TEXT_CAP && h->n_salt <= PLEAT_IMAGE_SALT_MAX && h->n_layers >= 1 &&
           h->n_q_heads >= 1 && h->n_kv_heads >= 1 && h->head_dim >= 1 && h->page_tokens >= 1 && h->n_tokens >= 1 &&
           h->n_tokens <= MAX_TOKENS && h->n_steps <= h->n_tokens / 2 && piece >= PLEAT_IMAGE_PIECE_MIN &&
           piece <= PLEAT_IMAGE_PIECE_MAX && (piece & (piece - 1)) == 0 && h->body_bytes >= 1 &&
           h->body_bytes <= UINT64_C(1) << 48 && parts_of(h).n_bytes <= UINT32_MAX;
}

/* Steps follow each other and end within the tokens. */
static bool steps_are_sound(const pleat_image_head *h) {
    const uint32_t known = PLEAT_ITEM_MORE | PLEAT_ITEM_SEAL | PLEAT_ITEM_SEAL_ALL;
    uint32_t end = 0;
    for (uint32_t i = 0; i < h->n_steps; i++) {
        const pleat_image_step *s = &h->steps[i];
        if (s->first < end || s->first >= h->n_tokens || s->n_tokens < 2 || s->n_tokens > h->n_tokens - s->first ||
            (s->flags & ~known) != 0)
            return false;
        end = s->first + s->n_tokens;
    }
    return true;
}

static bool tokens_are_sound(const pleat_image_head *h) {
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (h->tokens[i] < 0) return false;
    return true;
}

static bool head_is_sound(const pleat_image_head *h) {
    return h && h->size_bytes == sizeof *h && sizes_are_sound(h) && h->spec && (h->salt || h->n_salt == 0) &&
           h->tokens && (h->steps || h->n_steps == 0) && is_print(h->model) &&
           (h->profile[0] == 0 || is_print(h->profile)) && tokens_are_sound(h) && steps_are_sound(h);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

void pleat_image_head_default(pleat_image_head *h) {
    if (h) *h = (pleat_image_head){.size_bytes = sizeof *h, .piece_bytes = PLEAT_IMAGE_PIECE_DEFAULT};
}

uint64_t pleat_image_head_bytes(const pleat_image_head *h) { return head_is_sound(h) ? parts_of(h).n_bytes : 0; }

static uint64_t sum_of_piece(const void *piece, uint64_t n_bytes, uint64_t idx) {
    return pleat__piece_sum_of(pleat_cpu_flags())(piece, n_bytes, idx);
}

static uint64_t piece_bytes_at(const pleat_image_head *h, uint64_t idx) {
    const uint64_t left = h->body_bytes - idx * h->piece_bytes;
    return left < h->piece_bytes ? left : h->piece_bytes;
}

static void put_fixed(const pleat_image_head *h, const head_parts *p, uint8_t *out) {
    fixed_part f = {.version = PLEAT_IMAGE_VERSION,
                    .head_bytes = (uint32_t)p->n_bytes,
                    .body_bytes = h->body_bytes,
                    .piece_bytes = h->piece_bytes,
                    .n_tokens = h->n_tokens,
                    .n_steps = h->n_steps,
                    .n_spec = (uint16_t)h->n_spec,
                    .n_salt = (uint16_t)h->n_salt,
                    .n_layers = h->n_layers,
                    .n_q_heads = h->n_q_heads,
                    .n_kv_heads = h->n_kv_heads,
                    .head_dim = h->head_dim,
                    .page_tokens = h->page_tokens};
    memcpy(f.magic, magic, sizeof magic);
    memcpy(f.model, h->model, sizeof f.model);
    if (h->profile[0]) memcpy(f.profile, h->profile, sizeof f.profile);
    memcpy(out, &f, sizeof f);
}

static XXH128_canonical_t sum_of_head(const uint8_t *head, uint64_t sum_at) {
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(head, sum_at));
    return sum;
}

pleat_status pleat_image_write_head(const pleat_image_head *h, const void *body, void *out_bytes, uint64_t cap) {
    if (!head_is_sound(h) || !body || !out_bytes || cap < parts_of(h).n_bytes) return PLEAT_E_ARG;
    const head_parts p = parts_of(h);
    uint8_t *out = out_bytes;
    memset(out, 0, p.n_bytes);
    put_fixed(h, &p, out);
    memcpy(out + p.texts_at, h->spec, h->n_spec);
    if (h->n_salt) memcpy(out + p.texts_at + h->n_spec, h->salt, h->n_salt);
    memcpy(out + p.tokens_at, h->tokens, h->n_tokens * sizeof *h->tokens);
    if (h->n_steps) memcpy(out + p.steps_at, h->steps, h->n_steps * sizeof *h->steps);
    for (uint64_t i = 0; i < pleat_image_n_pieces(h); i++) {
        const uint64_t sum = sum_of_piece((const uint8_t *)body + i * h->piece_bytes, piece_bytes_at(h, i), i);
        memcpy(out + p.sums_at + i * sizeof sum, &sum, sizeof sum);
    }
    const XXH128_canonical_t sum = sum_of_head(out, p.sum_at);
    memcpy(out + p.sum_at, &sum, sizeof sum);
    return PLEAT_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* The fixed part as a head, without what it does not hold. */
static pleat_image_head head_of(const fixed_part *f) {
    pleat_image_head h;
    pleat_image_head_default(&h);
    memcpy(h.model, f->model, sizeof f->model);
    memcpy(h.profile, f->profile, sizeof f->profile);
    h.n_spec = f->n_spec;
    h.n_salt = f->n_salt;
    h.n_layers = f->n_layers;
    h.n_q_heads = f->n_q_heads;
    h.n_kv_heads = f->n_kv_heads;
    h.head_dim = f->head_dim;
    h.page_tokens = f->page_tokens;
    h.n_tokens = f->n_tokens;
    h.n_steps = f->n_steps;
    h.piece_bytes = f->piece_bytes;
    h.body_bytes = f->body_bytes;
    return h;
}

/* Are there zeros where there have to be? */
static bool is_padded(const uint8_t *bytes, uint64_t from, uint64_t to) {
    for (; from < to; from++)
        if (bytes[from] != 0) return false;
    return true;
}

/* *h says how long its parts are, and *p where; all bytes are there. */
static pleat_status read_parts(const uint8_t *bytes, const head_parts *p, pleat_image_head *h, pleat_error *err) {
    const XXH128_canonical_t sum = sum_of_head(bytes, p->sum_at);
    PLEAT_FAIL_IF(memcmp(&sum, bytes + p->sum_at, sizeof sum) != 0, err, PLEAT_E_FORMAT, p->sum_at,
                  "image: the head is damaged: its sum does not hold");
    h->spec = (const char *)bytes + p->texts_at;
    h->salt = h->spec + h->n_spec;
    h->tokens = (const pleat_token *)(const void *)(bytes + p->tokens_at);
    h->steps = (const pleat_image_step *)(const void *)(bytes + p->steps_at);
    const uint64_t texts_end = p->texts_at + h->n_spec + h->n_salt;
    const uint64_t steps_end = p->steps_at + (uint64_t)h->n_steps * sizeof *h->steps;
    const uint64_t profile_at = offsetof(fixed_part, profile), no_profile = h->profile[0] ? 0 : PRINT_BYTES;
    PLEAT_FAIL_IF(!head_is_sound(h) || !is_padded(bytes, profile_at, profile_at + no_profile) ||
                      !is_padded(bytes, texts_end, p->tokens_at) || !is_padded(bytes, steps_end, p->sums_at),
                  err, PLEAT_E_FORMAT, p->texts_at, "image: the head's sum holds, but what it says cannot be");
    return PLEAT_OK;
}

static pleat_status check_start(const fixed_part *f, pleat_error *err) {
    PLEAT_FAIL_IF(memcmp(f->magic, magic, sizeof magic) != 0, err, PLEAT_E_FORMAT, 0,
                  "image: this is no image of Pleat's");
    PLEAT_FAIL_IF(f->version != PLEAT_IMAGE_VERSION, err, PLEAT_E_UNSUPPORTED, offsetof(fixed_part, version),
                  "image: this is version %u, and version %u can be read", f->version, PLEAT_IMAGE_VERSION);
    PLEAT_FAIL_IF(f->head_bytes < sizeof *f, err, PLEAT_E_FORMAT, offsetof(fixed_part, head_bytes),
                  "image: a head of %u bytes has no room for what every head holds", f->head_bytes);
    return PLEAT_OK;
}

pleat_status pleat_image_read_head(const void *bytes, uint64_t n_bytes, pleat_image_head *out, uint64_t *head_bytes,
                                   pleat_error *err) {
    if (!bytes || !out || (uintptr_t)bytes % 8 != 0) return PLEAT_E_ARG;
    fixed_part f = {.zero = 0};
    if (n_bytes < offsetof(fixed_part, body_bytes)) return PLEAT_AGAIN;
    memcpy(&f, bytes, n_bytes < sizeof f ? n_bytes : sizeof f);
    PLEAT_TRY(check_start(&f, err));
    if (head_bytes) *head_bytes = f.head_bytes;
    if (n_bytes < f.head_bytes) return PLEAT_AGAIN;
    pleat_image_head h = head_of(&f);
    PLEAT_FAIL_IF(!sizes_are_sound(&h) || f.zero != 0 || parts_of(&h).n_bytes != f.head_bytes, err, PLEAT_E_FORMAT,
                  offsetof(fixed_part, body_bytes), "image: the head is damaged: its counts do not make its length");
    const head_parts p = parts_of(&h);
    PLEAT_TRY(read_parts(bytes, &p, &h, err));
    *out = h;
    return PLEAT_OK;
}

/* The sum of a piece that the head has. */
static uint64_t sum_in_head(const void *bytes, const pleat_image_head *h, uint64_t idx) {
    uint64_t sum;
    memcpy(&sum, (const uint8_t *)bytes + parts_of(h).sums_at + idx * sizeof sum, sizeof sum);
    return sum;
}

pleat_status pleat_image_check_piece(const void *bytes, uint64_t n_bytes, uint64_t idx, const void *piece) {
    pleat_image_head h;
    if (!piece || pleat_image_read_head(bytes, n_bytes, &h, NULL, NULL) != PLEAT_OK || idx >= pleat_image_n_pieces(&h))
        return PLEAT_E_ARG;
    return sum_of_piece(piece, piece_bytes_at(&h, idx), idx) == sum_in_head(bytes, &h, idx) ? PLEAT_OK : PLEAT_E_FORMAT;
}

pleat_status pleat_image_check(const void *bytes, uint64_t n_bytes, pleat_image_head *out, const void **body,
                               pleat_error *err) {
    uint64_t n_head = 0;
    pleat_image_head h;
    if (!out) return PLEAT_E_ARG;
    const pleat_status status = pleat_image_read_head(bytes, n_bytes, &h, &n_head, err);
    PLEAT_FAIL_IF(status == PLEAT_AGAIN, err, PLEAT_E_FORMAT, n_bytes, "image: the file ends within its head");
    PLEAT_TRY(status);
    PLEAT_FAIL_IF(n_bytes - n_head != h.body_bytes, err, PLEAT_E_FORMAT, n_bytes,
                  "image: the body has %llu bytes, and the head says %llu", (unsigned long long)(n_bytes - n_head),
                  (unsigned long long)h.body_bytes);
    const uint8_t *at = (const uint8_t *)bytes + n_head;
    for (uint64_t i = 0; i < pleat_image_n_pieces(&h); i++) {
        const uint64_t n = piece_bytes_at(&h, i), offset = i * h.piece_bytes;
        PLEAT_FAIL_IF(sum_of_piece(at + offset, n, i) != sum_in_head(bytes, &h, i), err, PLEAT_E_FORMAT,
                      n_head + offset, "image: piece %llu of %llu is damaged", (unsigned long long)i + 1,
                      (unsigned long long)pleat_image_n_pieces(&h));
    }
    if (body) *body = at;
    *out = h;
    return PLEAT_OK;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

/* "f16" and "k8v4" of two texts that are not NUL-terminated. */
static bool is_same(const char *a, uint32_t n_a, const char *b, uint32_t n_b) {
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a) == 0);
}

pleat_status pleat_image_compare(const pleat_image_head *h, const pleat_image_head *w, pleat_error *err) {
    if (!h || !w || h->size_bytes != sizeof *h || w->size_bytes != sizeof *w || !h->spec || !w->spec)
        return PLEAT_E_ARG;
    const struct {
        const char *what;
        uint32_t there, wanted;
    } numbers[] = {
        {"layers", h->n_layers, w->n_layers},
        {"query heads", h->n_q_heads, w->n_q_heads},
        {"KV heads", h->n_kv_heads, w->n_kv_heads},
        {"dimensions of a head", h->head_dim, w->head_dim},
        {"tokens a page", h->page_tokens, w->page_tokens},
    };
    PLEAT_FAIL_IF(strcmp(h->model, w->model) != 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "image: it is of another model: fingerprint %s, not %s", h->model, w->model);
    PLEAT_FAIL_IF(!is_same(h->spec, h->n_spec, w->spec, w->n_spec), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "image: its KV spec is %.*s, not %.*s", (int)h->n_spec, h->spec, (int)w->n_spec, w->spec);
    PLEAT_FAIL_IF(strcmp(h->profile, w->profile) != 0, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "image: its profile is %s, not %s", h->profile[0] ? h->profile : "none",
                  w->profile[0] ? w->profile : "none");
    PLEAT_FAIL_IF(!is_same(h->salt, h->n_salt, w->salt, w->n_salt), err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "image: its salt is another");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        PLEAT_FAIL_IF(numbers[i].there != numbers[i].wanted, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                      "image: it has %u %s, not %u", numbers[i].there, numbers[i].what, numbers[i].wanted);
    return PLEAT_OK;
}
