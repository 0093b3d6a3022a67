/* SPDX-License-Identifier: MIT
 *
 * stats.c: statistics held, and as a file.  Hosts are little endian.
 *
 *     0    8   magic "PLEATSTA"          16   8   bytes of the file      28   4   KV heads
 *     8    4   version                   24   4   layers                 32   4   head dimension
 *     12   4   classes                   36   4   positions that bases serve; before version 4 zero
 *     40  32   the model's fingerprint
 *     72       has_layer u8 [layers], and zeros to a multiple of 4
 *              of each layer that there is, f32: the scales of k and v, and
 *              [KV heads][mean, energy, spread, v_rms][head dimension]; from version 3 on of each KV head
 *              the rows of keys' basis and of values', f16, and the deviations of both sides' components, f32
 *              codebooks: keys' classes, then values': 0, or 1 and the codebook (docs/FORMAT.md, section 6)
 *              zeros to a multiple of 8, then XXH3 of 128 bits of all before it
 */
#include "stats/stats.h"

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/bytes.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/half.h"
#include "stats/basis.h"

enum { VERSION = 4, HEAD_BYTES = 72, SUM_BYTES = 16, PRINT_BYTES = PLEAT_FINGERPRINT_CAP - 1 };
static const char magic[8] = {'P', 'L', 'E', 'A', 'T', 'S', 'T', 'A'};

/* ---- held ---------------------------------------------------------------------------------------------- */

static uint64_t lanes_of(const pleat_stats *s) { return (uint64_t)s->n_known * s->n_kv_heads; }

static void carve(pleat_stats *s, pleat__arena *arena) {
    s->has_layer = pleat__arena_take(arena, s->n_layers, 1);
    s->place = pleat__arena_take(arena, s->n_layers, sizeof *s->place);
    s->scale = pleat__arena_take(arena, s->n_layers, sizeof *s->scale);
    s->fields = pleat__arena_take(arena, lanes_of(s), (uint64_t)PLEAT__STATS_FIELDS * s->head_dim * sizeof *s->fields);
    if (s->has_bases)
        s->bases = pleat__arena_take(arena, lanes_of(s), pleat__stats_bases_stride(s->head_dim) * sizeof *s->bases);
}

static uint32_t count_known(const uint8_t *has_layer, uint32_t n_layers) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_layers; i++) n += has_layer[i] != 0;
    return n;
}

pleat_status pleat__stats_create(const pleat__stats_shape *shape, const pleat_allocator *allocator, pleat_stats **out) {
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat_stats *s = pleat__alloc_zero(&al, 1, sizeof *s);
    if (!s) return PLEAT_E_MEMORY;
    *s = (pleat_stats){.al = al,
                       .n_layers = shape->n_layers,
                       .n_kv_heads = shape->n_kv_heads,
                       .head_dim = shape->head_dim,
                       .has_bases = shape->has_bases,
                       .n_positions = shape->n_positions,
                       .n_known = count_known(shape->has_layer, shape->n_layers)};
    pleat__arena arena = {0};
    carve(s, &arena);
    s->block_bytes = arena.used_bytes;
    s->block = arena.overflow ? NULL : pleat__alloc_zero(&al, 1, s->block_bytes);
    if (!s->block) {
        pleat_stats_destroy(&s);
        return PLEAT_E_MEMORY;
    }
    arena = (pleat__arena){.base = s->block, .cap_bytes = s->block_bytes};
    carve(s, &arena);
    for (uint32_t i = 0, n = 0; i < s->n_layers; i++) {
        s->has_layer[i] = shape->has_layer[i] != 0;
        s->place[i] = n;
        s->scale[i] = (pleat_stats_scale){1, 1};
        n += s->has_layer[i];
    }
    *out = s;
    return PLEAT_OK;
}

void pleat_stats_destroy(pleat_stats **stats) {
    if (!stats || !*stats) return;
    pleat_stats *s = *stats;
    const pleat_allocator al = s->al;
    pleat__free(&al, s->block, 1, s->block_bytes);
    pleat__free(&al, s, 1, sizeof *s);
    *stats = NULL;
}

/* ---- scales -------------------------------------------------------------------------------------------- */

uint32_t pleat_stats_n_layers(const pleat_stats *s) { return s ? s->n_layers : 0; }

pleat_stats_scale pleat_stats_get_scale(const pleat_stats *s, uint32_t layer) {
    return s && layer < s->n_layers && s->has_layer[layer] ? s->scale[layer] : (pleat_stats_scale){0, 0};
}

static bool scale_is_sound(float x) { return x >= 1 / PLEAT_STATS_SCALE_MAX && x <= PLEAT_STATS_SCALE_MAX; }

pleat_status pleat_stats_rescale(const pleat_stats *s, const pleat_stats_scale *scales,
                                 const pleat_allocator *allocator, pleat_stats **out) {
    pleat_stats *own = NULL;
    if (!s || !scales || !out) return PLEAT_E_ARG;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->has_layer[i] && !(scale_is_sound(scales[i].k) && scale_is_sound(scales[i].v))) return PLEAT_E_RANGE;
    const pleat__stats_shape shape = {s->n_layers,  s->n_kv_heads,  s->head_dim,
                                      s->has_bases, s->n_positions, s->has_layer};
    PLEAT_TRY(pleat__stats_create(&shape, allocator, &own));
    memcpy(own->model, s->model, sizeof own->model);
    memcpy(own->block, s->block, s->block_bytes);
    own->books = s->books;
    for (uint32_t i = 0; i < s->n_layers; i++)
        if (s->has_layer[i]) own->scale[i] = scales[i];
    const pleat_status status = pleat__stats_seal(own);
    if (status != PLEAT_OK) pleat_stats_destroy(&own);
    *out = own;
    return status;
}

const char *pleat_stats_model(const pleat_stats *s) { return s ? s->model : ""; }
const char *pleat_stats_fingerprint(const pleat_stats *s) { return s ? s->fingerprint : ""; }
uint32_t pleat_stats_n_positions(const pleat_stats *s) { return s ? s->n_positions : 0; }

/* ---- written ------------------------------------------------------------------------------------------- */

static uint64_t up_to(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static uint64_t fields_of_layer(const pleat_stats *s) {
    return (uint64_t)s->n_kv_heads * PLEAT__STATS_FIELDS * s->head_dim;
}

/* Bases are f16, deviations f32. */
static uint64_t bases_bytes(const pleat_stats *s) {
    const uint64_t d = s->head_dim;
    return s->has_bases ? 2 * d * d * sizeof(uint16_t) + 2 * d * sizeof(float) : 0;
}

static uint64_t layer_bytes(const pleat_stats *s) {
    return sizeof(pleat_stats_scale) + fields_of_layer(s) * sizeof(float) + s->n_kv_heads * bases_bytes(s);
}

/* Both sides' codebooks, one behind the other. */
static const pleat__codebook *book_at(const pleat__rd_books *b, uint32_t i) {
    return i < PLEAT__RD_CLASSES ? &b->k[i] : &b->v[i - PLEAT__RD_CLASSES];
}

/* 4 with positions, 3 with bases; 1 if all codebooks are plain, which is all that the oldest libraries read. */
static uint32_t version_of(const pleat_stats *s) {
    if (s->has_bases) return s->n_positions > 0 ? 4 : 3;
    for (uint32_t i = 0; i < 2 * PLEAT__RD_CLASSES; i++)
        if (!pleat__codebook_is_plain(book_at(&s->books, i))) return 2;
    return 1;
}

static size_t write_books(const pleat__rd_books *books, uint8_t *out) {
    size_t n = 0;
    for (uint32_t i = 0; i < 2 * PLEAT__RD_CLASSES; i++) {
        const pleat__codebook *book = book_at(books, i);
        uint8_t bytes[PLEAT__CODEBOOK_HEAD_BYTES + PLEAT__CODEBOOK_SYMBOLS];
        const size_t n_book = book->n_levels ? pleat__codebook_write(book, bytes) : 0;
        if (out) out[n] = book->n_levels != 0;
        if (out) memcpy(out + n + 1, bytes, n_book);
        n += 1 + n_book;
    }
    return n;
}

uint64_t pleat_stats_bytes(const pleat_stats *s) {
    if (!s) return 0;
    const uint64_t fields_at = up_to(HEAD_BYTES + s->n_layers, 4);
    const uint64_t books_at = fields_at + s->n_known * layer_bytes(s);
    return up_to(books_at + write_books(&s->books, NULL), 8) + SUM_BYTES;
}

/* A file has a component's row, memory its column. */
static float *basis_at(const pleat__stats_lane *l, uint32_t d, uint32_t row, uint32_t i) {
    return (row < d ? l->k_to : l->v_to) + (size_t)i * d + row % d;
}

static uint8_t *write_bases(const pleat__stats_lane *l, uint32_t d, uint8_t *at) {
    for (uint32_t row = 0; row < 2 * d; row++)
        for (uint32_t i = 0; i < d; i++, at += 2) {
            const uint16_t half = pleat__f32_to_f16(*basis_at(l, d, row, i));
            memcpy(at, &half, sizeof half);
        }
    memcpy(at, l->k_spread, 2 * d * sizeof(float));
    return at + 2 * d * sizeof(float);
}

static void read_bases(const pleat__stats_lane *l, uint32_t d, const uint8_t *at) {
    for (uint32_t row = 0; row < 2 * d; row++)
        for (uint32_t i = 0; i < d; i++, at += 2) *basis_at(l, d, row, i) = pleat__f16_at(at);
    memcpy(l->k_spread, at, 2 * d * sizeof(float));
}

static void put_u32(uint8_t *at, uint32_t x) { memcpy(at, &x, sizeof x); }

pleat_status pleat_stats_write(const pleat_stats *s, void *out_bytes, uint64_t cap) {
    const uint64_t n_bytes = pleat_stats_bytes(s);
    if (!s || !out_bytes || cap < n_bytes) return PLEAT_E_ARG;
    uint8_t *out = out_bytes, *at = out + up_to(HEAD_BYTES + s->n_layers, 4);
    const uint32_t numbers[] = {version_of(s), PLEAT__RD_CLASSES};
    memset(out, 0, n_bytes);
    memcpy(out, magic, sizeof magic);
    memcpy(out + 8, numbers, sizeof numbers);
    memcpy(out + 16, &n_bytes, sizeof n_bytes);
    put_u32(out + 24, s->n_layers);
    put_u32(out + 28, s->n_kv_heads);
    put_u32(out + 32, s->head_dim);
    put_u32(out + 36, s->n_positions);
    memcpy(out + 40, s->model, PRINT_BYTES);
    memcpy(out + HEAD_BYTES, s->has_layer, s->n_layers);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (!s->has_layer[i]) continue;
        memcpy(at, &s->scale[i], sizeof s->scale[i]);
        memcpy(at + sizeof s->scale[i], pleat__stats_field(s, i, 0, 0), fields_of_layer(s) * sizeof(float));
        at += sizeof s->scale[i] + fields_of_layer(s) * sizeof(float);
        for (uint32_t head = 0; s->has_bases && head < s->n_kv_heads; head++) {
            const pleat__stats_lane lane = pleat__stats_lane_of(s, i, head);
            at = write_bases(&lane, s->head_dim, at);
        }
    }
    write_books(&s->books, at);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(out, n_bytes - SUM_BYTES));
    memcpy(out + n_bytes - SUM_BYTES, &sum, SUM_BYTES);
    return PLEAT_OK;
}

static pleat_status undo_bases(pleat_stats *s) {
    const uint64_t n = pleat__basis_scratch(s->head_dim);
    double *scratch = pleat__alloc_zero(&s->al, n, sizeof *scratch);
    if (!scratch) return PLEAT_E_MEMORY;
    bool are_bases = true;
    for (uint32_t i = 0; i < s->n_layers * s->n_kv_heads; i++) {
        if (!s->has_layer[i / s->n_kv_heads]) continue;
        const pleat__stats_lane l = pleat__stats_lane_of(s, i / s->n_kv_heads, i % s->n_kv_heads);
        are_bases = are_bases && pleat__basis_undo(l.k_to, s->head_dim, scratch, l.k_from, l.k_query) &&
                    pleat__basis_undo(l.v_to, s->head_dim, scratch, l.v_from, NULL);
    }
    pleat__free(&s->al, scratch, n, sizeof *scratch);
    return are_bases ? PLEAT_OK : PLEAT_E_FORMAT;
}

/* The fingerprint is of all but the model's and the number of positions, which decodes nothing. */
pleat_status pleat__stats_seal(pleat_stats *s) {
    if (s->has_bases) PLEAT_TRY(undo_bases(s));
    uint8_t books[2 * PLEAT__RD_CLASSES * (1 + PLEAT__CODEBOOK_HEAD_BYTES + PLEAT__CODEBOOK_SYMBOLS)];
    const size_t n = write_books(&s->books, books);
    s->books.sum = XXH32(books, n, 0);
    pleat__rd_books_centre(&s->books);
    XXH3_state_t state;
    XXH128_canonical_t digest;
    (void)XXH3_128bits_reset(&state);
    (void)XXH3_128bits_update(&state, s->has_layer, s->n_layers);
    (void)XXH3_128bits_update(&state, s->scale, s->n_layers * sizeof *s->scale);
    (void)XXH3_128bits_update(&state, s->fields, s->n_known * fields_of_layer(s) * sizeof *s->fields);
    const uint64_t stride = pleat__stats_bases_stride(s->head_dim);
    for (uint32_t i = 0; s->has_bases && i < lanes_of(s); i++)
        (void)XXH3_128bits_update(&state, s->bases + i * stride,
                                  pleat__stats_basis_numbers(s->head_dim) * sizeof *s->bases);
    (void)XXH3_128bits_update(&state, books, n);
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    pleat__put_hex(digest.digest, sizeof digest.digest, s->fingerprint);
    return PLEAT_OK;
}

/* ---- read ---------------------------------------------------------------------------------------------- */

static uint32_t get_u32(const uint8_t *at) {
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

#define REQUIRE(cond, at, ...) PLEAT_FAIL_IF(!(cond), err, PLEAT_E_FORMAT, (at), __VA_ARGS__)

/* The head, and a sum that holds.  What follows is then as it was written, by whomever. */
static pleat_status check_file(const uint8_t *bytes, uint64_t n_bytes, pleat_error *err) {
    uint64_t said;
    REQUIRE(n_bytes >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0, 0,
            "statistics: this is no file of statistics");
    REQUIRE(n_bytes >= HEAD_BYTES + SUM_BYTES, n_bytes, "statistics: the file ends after %llu bytes, in its head",
            (unsigned long long)n_bytes);
    PLEAT_FAIL_IF(get_u32(bytes + 8) < 1 || get_u32(bytes + 8) > VERSION || get_u32(bytes + 12) != PLEAT__RD_CLASSES,
                  err, PLEAT_E_UNSUPPORTED, 8,
                  "statistics: version %u with %u classes; versions 1 to %d with %u can be read", get_u32(bytes + 8),
                  get_u32(bytes + 12), VERSION, PLEAT__RD_CLASSES);
    memcpy(&said, bytes + 16, sizeof said);
    REQUIRE(said == n_bytes, 16, "statistics: the file has %llu bytes, and says %llu", (unsigned long long)n_bytes,
            (unsigned long long)said);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, n_bytes - SUM_BYTES));
    REQUIRE(memcmp(&sum, bytes + n_bytes - SUM_BYTES, SUM_BYTES) == 0, n_bytes - SUM_BYTES,
            "statistics: the file is damaged, its sum does not hold: make it anew with pleat stats, or fetch it");
    return PLEAT_OK;
}

/* Is there enough of what takes memory? */
static pleat_status check_layers(const uint8_t *bytes, uint64_t n_bytes, pleat_error *err) {
    const pleat_stats shape = {.n_layers = get_u32(bytes + 24),
                               .n_kv_heads = get_u32(bytes + 28),
                               .head_dim = get_u32(bytes + 32),
                               .has_bases = get_u32(bytes + 8) >= 3};
    const uint64_t n_known = count_known(bytes + HEAD_BYTES, shape.n_layers);
    REQUIRE(n_known > 0 && n_known * layer_bytes(&shape) <= n_bytes, HEAD_BYTES,
            "statistics: %llu bytes with %llu of %u layers are too few", (unsigned long long)n_bytes,
            (unsigned long long)n_known, shape.n_layers);
    return PLEAT_OK;
}

static pleat_status check_shape(const uint8_t *bytes, uint64_t n_bytes, pleat_error *err) {
    const uint32_t n_layers = get_u32(bytes + 24), n_heads = get_u32(bytes + 28), d = get_u32(bytes + 32);
    REQUIRE(n_layers >= 1 && n_layers <= 1024 && n_heads >= 1 && n_heads <= 1024 && d >= 16 &&
                d <= PLEAT__MAX_HEAD_DIM && d % 16 == 0 && (get_u32(bytes + 36) != 0) == (get_u32(bytes + 8) >= 4) &&
                HEAD_BYTES + n_layers + SUM_BYTES <= n_bytes,
            24, "statistics: no model has %u layers of %u KV heads of %u dimensions", n_layers, n_heads, d);
    for (uint32_t i = 0; i < PRINT_BYTES; i++)
        REQUIRE(bytes[40 + i] && strchr("0123456789abcdef", bytes[40 + i]), 40 + i,
                "statistics: the model's fingerprint is none");
    return check_layers(bytes, n_bytes, err);
}

/* Finite, and what is a square's root or mean not below 0. */
static bool layer_is_sound(const pleat_stats *s, uint32_t layer) {
    if (!scale_is_sound(s->scale[layer].k) || !scale_is_sound(s->scale[layer].v)) return false;
    for (uint32_t head = 0; head < s->n_kv_heads; head++)
        for (uint32_t f = 0; f < PLEAT__STATS_FIELDS; f++)
            for (uint32_t i = 0; i < s->head_dim; i++) {
                const float x = pleat__stats_field(s, layer, head, f)[i];
                if (!(fabsf(x) < 0x1p48f) || (f > 0 && !(x >= 0))) return false;
            }
    for (uint32_t head = 0; s->has_bases && head < s->n_kv_heads; head++) {
        const pleat__stats_lane l = pleat__stats_lane_of(s, layer, head);
        for (uint32_t i = 0; i < pleat__stats_basis_numbers(s->head_dim); i++)
            if (!(fabsf(l.k_to[i]) < 0x1p48f) || (l.k_to + i >= l.k_spread && !(l.k_to[i] >= 0))) return false;
    }
    return true;
}

static bool book_is_ours(const pleat__codebook *b) {
    if (b->n_levels % 2 != 0 || b->n_levels < 4) return false;
    return b->kind == PLEAT__CODEBOOK_NARROW || (b->kind == PLEAT__CODEBOOK_PAIRS && pleat__rd_pairs_are_sound(b));
}

/* Returns the bytes; 0: there are no such codebooks. */
static size_t read_books(const uint8_t *bytes, size_t n_bytes, pleat__rd_books *books) {
    size_t at = 0;
    for (uint32_t i = 0; i < 2 * PLEAT__RD_CLASSES; i++) {
        pleat__codebook *book = i < PLEAT__RD_CLASSES ? &books->k[i] : &books->v[i - PLEAT__RD_CLASSES];
        if (at >= n_bytes || bytes[at] > 1) return 0;
        if (bytes[at++] == 0) continue;
        const size_t n = pleat__codebook_read(book, bytes + at, n_bytes - at);
        if (n == 0 || !book_is_ours(book)) return 0;
        at += n;
    }
    return at;
}

static bool are_zeros(const uint8_t *bytes, uint64_t from, uint64_t to) {
    for (; from < to; from++)
        if (bytes[from] != 0) return false;
    return true;
}

/* All behind the head, into empty statistics of that shape. */
static pleat_status read_body(const uint8_t *bytes, uint64_t n_bytes, pleat_stats *s, pleat_error *err) {
    const uint64_t end = n_bytes - SUM_BYTES;
    uint64_t at = up_to(HEAD_BYTES + s->n_layers, 4);
    REQUIRE(at <= end && are_zeros(bytes, HEAD_BYTES + s->n_layers, at), HEAD_BYTES + s->n_layers,
            "statistics: something stands where zeros belong");
    for (uint32_t i = 0; i < s->n_layers; i++) {
        REQUIRE(bytes[HEAD_BYTES + i] <= 1, HEAD_BYTES + i, "statistics: layer %u is neither there nor not", i);
        if (!s->has_layer[i]) continue;
        REQUIRE(at + layer_bytes(s) <= end, at, "statistics: the file ends within layer %u", i);
        memcpy(&s->scale[i], bytes + at, sizeof s->scale[i]);
        memcpy(pleat__stats_field(s, i, 0, 0), bytes + at + sizeof s->scale[i], fields_of_layer(s) * sizeof(float));
        const uint8_t *bases = bytes + at + sizeof s->scale[i] + fields_of_layer(s) * sizeof(float);
        for (uint32_t head = 0; s->has_bases && head < s->n_kv_heads; head++, bases += bases_bytes(s)) {
            const pleat__stats_lane lane = pleat__stats_lane_of(s, i, head);
            read_bases(&lane, s->head_dim, bases);
        }
        REQUIRE(layer_is_sound(s, i), at, "statistics: layer %u has numbers that nothing can have", i);
        at += layer_bytes(s);
    }
    const size_t n_books = at < end ? read_books(bytes + at, (size_t)(end - at), &s->books) : 0;
    REQUIRE(n_books > 0 && up_to(at + n_books, 8) == end && are_zeros(bytes, at + n_books, end), at,
            "statistics: its codebooks are none");
    REQUIRE(get_u32(bytes + 8) == version_of(s), 8, "statistics: its codebooks are not of version %u",
            get_u32(bytes + 8));
    return PLEAT_OK;
}

pleat_status pleat_stats_read(const void *bytes, uint64_t n_bytes, const pleat_allocator *allocator, pleat_stats **out,
                              pleat_error *err) {
    pleat_stats *s = NULL;
    if (!bytes || !out) return PLEAT_E_ARG;
    PLEAT_TRY(check_file(bytes, n_bytes, err));
    PLEAT_TRY(check_shape(bytes, n_bytes, err));
    const uint8_t *b = bytes;
    const pleat__stats_shape shape = {.n_layers = get_u32(b + 24),
                                      .n_kv_heads = get_u32(b + 28),
                                      .head_dim = get_u32(b + 32),
                                      .has_bases = get_u32(b + 8) >= 3,
                                      .n_positions = get_u32(b + 36),
                                      .has_layer = b + HEAD_BYTES};
    PLEAT_FAIL_IF(pleat__stats_create(&shape, allocator, &s) != PLEAT_OK, err, PLEAT_E_MEMORY, PLEAT_NOWHERE,
                  "statistics: out of memory");
    memcpy(s->model, b + 40, PRINT_BYTES);
    pleat_status status = read_body(bytes, n_bytes, s, err);
    if (status == PLEAT_OK) {
        status = pleat__stats_seal(s);
        if (status != PLEAT_OK) pleat__error_set(err, status, PLEAT_NOWHERE, "statistics: a basis is none");
    }
    if (status != PLEAT_OK) pleat_stats_destroy(&s);
    *out = s;
    return status;
}

pleat_status pleat__stats_check(const pleat_stats *s, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim,
                                const char *why, pleat_error *err) {
    PLEAT_FAIL_IF(!s, err, PLEAT_E_ARG, PLEAT_NOWHERE, "cache: %s, and options.stats has none", why);
    PLEAT_FAIL_IF(
        s->n_layers != n_layers || s->n_kv_heads != n_kv_heads || s->head_dim != head_dim, err, PLEAT_E_ARG,
        PLEAT_NOWHERE,
        "cache: the statistics are of %u layers of %u KV heads of %u dimensions, the cache is of %u, %u and %u",
        s->n_layers, s->n_kv_heads, s->head_dim, n_layers, n_kv_heads, head_dim);
    return PLEAT_OK;
}
