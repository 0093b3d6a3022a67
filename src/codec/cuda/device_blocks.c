/* SPDX-License-Identifier: MIT
 *
 * device_blocks.c: payloads are checked and decoded, once, and go to the device as its kernels read them:
 *
 *     units, as they are | keys' codes, as words (entropy/cuda/words.h) | values' codes | sections of keys | sections of
 *     values | tasks | lanes' tasks | tables | parts of outputs
 *
 * in one piece of device memory, planned by carving it twice.  So nothing that a payload says gets to a kernel but codes
 * below its levels, and units.  A section that is RAW is coded with the codebook like others.
 *
 * A lane's blocks are cut in as many tasks as make all lanes' together fill the device just once, two thread blocks on
 * each multiprocessor: every warp then has about the same number of blocks, and none comes late.
 */
#include <string.h>

#include "codec/cuda/blocks.h"
#include "codec/device_blocks.h"
#include "codec/internal.h"
#include "core/error.h"
#include "entropy/cuda/words.h"
#include "hw/cpu.h"

/* What kernels may read behind words (PLEAT__RING_BEHIND in entropy/cuda/words.cuh). */
#define PAD_BYTES 2048u

struct pleat_device_blocks {
    pleat_allocator al;
    pleat__device_shape shape;
    pleat__device_matrices k, v;
    bool is_serial; /* words are rows of bits */
    pleat__device_rows k_rows, v_rows;
    float *partial;
    bool has_partial;
    uint64_t most_tokens; /* of a lane */
    uint64_t block_bytes, other_bytes;
    void *memory;
};

/* Parts of blocks, to be sent. */
typedef struct parts {
    uint8_t *bytes; /* [cap_bytes] */
    uint64_t used_bytes, cap_bytes;
} parts;

/* What is made on the host, and where it goes. */
typedef struct builder {
    const pleat__block_format *format;
    const pleat__block_codebooks *codebooks;
    const pleat__host_blocks *host;
    pleat_device_blocks *b;
    uint64_t n_blocks;
    pleat__codec_dsp dsp;
    uint8_t *codes;   /* of a matrix */
    uint8_t *payload; /* a copy, with its pad */
    parts units;
    struct coding *k, *v;
    pleat__arena arena; /* of the device's memory */
} builder;

/* ---- tasks ------------------------------------------------------------------------------------------- */

/* One block's each for the bit-serial decoder; else rounded down: all lanes' are not more than the device has room for,
 * but for one each. */
static uint32_t lane_tasks(const builder *m, uint32_t lane) {
    const uint64_t room = 2 * (uint64_t)m->b->shape.n_multiprocessors, n = m->host->n_blocks[lane];
    const uint64_t n_tasks = m->b->is_serial ? n : m->n_blocks ? n * room / m->n_blocks : 0;
    return n_tasks < 1 ? 1 : n_tasks > n ? (uint32_t)n : (uint32_t)n_tasks;
}

static uint32_t count_tasks(const builder *m) {
    uint32_t n = 0;
    for (uint32_t lane = 0; lane < m->host->n_lanes; lane++) n += lane_tasks(m, lane);
    return n;
}

/* Tasks of a lane have the same number of blocks, or one more. */
static void make_tasks(const builder *m, pleat__device_task *tasks, uint32_t *firsts) {
    uint32_t n_tasks = 0, first = 0;
    for (uint32_t lane = 0; lane < m->host->n_lanes; lane++) {
        const uint32_t n = lane_tasks(m, lane), n_blocks = m->host->n_blocks[lane];
        firsts[lane] = n_tasks;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t from = (uint32_t)((uint64_t)n_blocks * i / n),
                           to = (uint32_t)((uint64_t)n_blocks * (i + 1) / n);
            tasks[n_tasks++] =
                (pleat__device_task){.lane = lane, .first = first + from, .index = from, .n_blocks = to - from};
        }
        first += n_blocks;
    }
    firsts[m->host->n_lanes] = n_tasks;
}

/* ---- sections ---------------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t n_bytes) {
    return (n_bytes + PLEAT__BLOCK_ALIGN - 1) / PLEAT__BLOCK_ALIGN * PLEAT__BLOCK_ALIGN;
}

/* Room for n_bytes more. */
static bool make_room(const builder *m, parts *p, uint64_t n_bytes) {
    if (p->used_bytes + n_bytes <= p->cap_bytes) return true;
    const uint64_t cap = 2 * (p->used_bytes + n_bytes);
    uint8_t *bytes = pleat__alloc(&m->b->al, 1, cap);
    if (!bytes) return false;
    if (p->used_bytes) memcpy(bytes, p->bytes, p->used_bytes);
    pleat__free(&m->b->al, p->bytes, 1, p->cap_bytes);
    p->bytes = bytes;
    p->cap_bytes = cap;
    return true;
}

/* A matrix of all blocks: what it is coded with here, and there. */
typedef struct coding {
    const pleat__codebook *codebook;
    pleat__codebook words_codebook;
    pleat__bit_tree tree; /* bit-serial */
    parts words, row_bits;
    uint64_t max_words; /* of a block */
    uint32_t rows, columns;
} coding;

/* Codes of a matrix to m->codes. */
static bool decode(builder *m, pleat__section *section, const pleat__codebook *codebook) {
    pleat__sections_decode(&m->dsp, codebook, &section, 1, pleat__block_vectors(m->format), &m->codes);
    return pleat__section_is_done(section);
}

static void add_codes(builder *m, coding *c) {
    uint32_t *out = (uint32_t *)(c->words.bytes + c->words.used_bytes);
    uint64_t n;
    if (m->b->is_serial) {
        uint16_t *row_bits = (uint16_t *)(c->row_bits.bytes + c->row_bits.used_bytes);
        n = pleat__bit_tree_encode(&c->tree, m->codes, c->rows, c->columns, row_bits, out);
        c->row_bits.used_bytes += c->rows * sizeof *row_bits;
    } else {
        n = pleat__words_encode(&c->words_codebook, m->codes, pleat__block_vectors(m->format), out);
    }
    c->words.used_bytes += 4 * n;
    if (n > c->max_words) c->max_words = n;
}

/* Decode a matrix and put it to the others: its units as they are, its codes as words. */
static bool add_section(builder *m, pleat__section *section, coding *c, const uint8_t *units, uint32_t unit_bytes,
                        uint32_t word, pleat__device_section *out) {
    if (!decode(m, section, c->codebook)) return false;
    parts *u = &m->units;
    memcpy(u->bytes + u->used_bytes, units, unit_bytes);
    memset(u->bytes + u->used_bytes + unit_bytes, 0, aligned(unit_bytes) - unit_bytes);
    out->units = (uint32_t)(u->used_bytes / PLEAT__BLOCK_ALIGN);
    out->is_wide = (word & PLEAT__MATRIX_WIDE) != 0;
    u->used_bytes += aligned(unit_bytes);
    add_codes(m, c);
    out[1].words = c->words.used_bytes / 4;
    return true;
}

/* A payload is copied first, as its decoder reads a pad behind it. */
static bool open_payload(builder *m, uint64_t block, pleat__block_reader *r) {
    const uint64_t n_bytes = m->host->n_bytes[block];
    if (!m->host->payloads[block] || n_bytes > pleat__block_bound(m->format) || n_bytes < PLEAT__BLOCK_HEADER_BYTES ||
        !pleat__block_is_intact(m->format, m->codebooks, m->host->payloads[block], n_bytes))
        return false;
    memcpy(m->payload, m->host->payloads[block], n_bytes);
    return pleat__block_open(m->format, m->codebooks, m->payload, n_bytes, NULL, r) == PLEAT_OK;
}

static bool add_payload(builder *m, uint64_t block, pleat__device_section *k, pleat__device_section *v) {
    const uint8_t *units = m->payload + PLEAT__BLOCK_HEADER_BYTES;
    pleat__block_reader r;
    return open_payload(m, block, &r) &&
           add_section(m, &r.k, m->k, units, r.k_unit_bytes, pleat__load_u32(m->payload + 4), k) &&
           add_section(m, &r.v, m->v, units + r.k_unit_bytes, r.v_unit_bytes, pleat__load_u32(m->payload + 8), v);
}

/* Room for what a block adds at most. */
static bool make_block_room(builder *m) {
    const pleat__block_format *f = m->format;
    const uint64_t units = 4 * ((uint64_t)pleat__block_k_units(f) + pleat__block_v_units(f)) + 2 * PLEAT__BLOCK_ALIGN;
    const uint64_t words = 4 * pleat__words_cap(pleat__block_vectors(f));
    return make_room(m, &m->units, units) && make_room(m, &m->k->words, words) && make_room(m, &m->v->words, words) &&
           make_room(m, &m->k->row_bits, 2 * m->k->rows) && make_room(m, &m->v->row_bits, 2 * m->v->rows);
}

/* How often codes occur, and pairs of them. */
typedef struct tally {
    uint64_t single[PLEAT__CODEBOOK_SYMBOLS], pair[PLEAT__CODEBOOK_SYMBOLS];
} tally;

static void count_codes(const builder *m, uint32_t n_levels, tally *t) {
    const uint8_t *at = m->codes;
    for (uint32_t v = 0; v + 1 < pleat__block_vectors(m->format); v += 2, at += 128)
        for (uint32_t i = 0; i < 64; i++) {
            t->single[at[i]]++;
            t->single[at[64 + i]]++;
            if (n_levels <= PLEAT__CODEBOOK_PAIR_LEVELS_MAX) t->pair[at[i] | at[64 + i] << 4]++;
        }
}

/* Codebooks and trees from the codes of the first blocks; those that are damaged are found later. */
#define COUNTED_BLOCKS 64u
static void build_codings(builder *m) {
    const pleat__block_format *f = m->format;
    tally tallies[2] = {0};
    for (uint64_t block = 0; block < m->n_blocks && block < COUNTED_BLOCKS; block++) {
        pleat__block_reader r;
        if (!open_payload(m, block, &r)) continue;
        if (decode(m, &r.k, m->k->codebook)) count_codes(m, f->k_levels, &tallies[0]);
        if (decode(m, &r.v, m->v->codebook)) count_codes(m, f->v_levels, &tallies[1]);
    }
    if (m->b->is_serial) {
        pleat__bit_tree_build(&m->k->tree, tallies[0].single, f->k_levels);
        pleat__bit_tree_build(&m->v->tree, tallies[1].single, f->v_levels);
    }
    pleat__words_codebook(m->k->codebook, tallies[0].pair, &m->k->words_codebook);
    pleat__words_codebook(m->v->codebook, tallies[1].pair, &m->v->words_codebook);
}

/* Sections of all blocks, of keys and then of values, n_blocks + 1 each, and their parts. */
static pleat_status add_payloads(builder *m, pleat__device_section *sections, pleat_error *err) {
    for (uint64_t i = 0; i < m->n_blocks; i++) {
        PLEAT_FAIL_IF(!make_block_room(m), err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device blocks: out of memory");
        PLEAT_FAIL_IF(!add_payload(m, i, &sections[i], &sections[m->n_blocks + 1 + i]), err, PLEAT_E_FORMAT, i,
                      "payload %llu is damaged, or of other codebooks or another format", (unsigned long long)i);
    }
    const uint64_t most = (uint64_t)UINT32_MAX * PLEAT__BLOCK_ALIGN;
    PLEAT_FAIL_IF(m->units.used_bytes > most || m->k->words.used_bytes > most || m->v->words.used_bytes > most, err,
                  PLEAT_E_ARG, PLEAT_NOWHERE, "blocks beyond 64 GiB");
    m->b->block_bytes = m->units.used_bytes + m->k->words.used_bytes + m->v->words.used_bytes +
                        m->k->row_bits.used_bytes + m->v->row_bits.used_bytes;
    return PLEAT_OK;
}

/* ---- the device's memory ----------------------------------------------------------------------------- */

static void *take(builder *m, uint64_t count, uint64_t bytes) {
    return pleat__arena_take(&m->arena, (count * bytes + 255) / 256 * 256, 1);
}

static void carve(builder *m) {
    pleat_device_blocks *b = m->b;
    const uint64_t n = m->n_blocks + 1;
    b->k.units = b->v.units = take(m, m->units.used_bytes + 1, 1);
    b->k.words = take(m, m->k->words.used_bytes + PAD_BYTES, 1);
    b->v.words = take(m, m->v->words.used_bytes + PAD_BYTES, 1);
    b->k_rows.row_bits = take(m, m->k->row_bits.used_bytes + 1, 1);
    b->v_rows.row_bits = take(m, m->v->row_bits.used_bytes + 1, 1);
    b->k_rows.tree = take(m, 1, sizeof m->k->tree.branches);
    b->v_rows.tree = take(m, 1, sizeof m->v->tree.branches);
    b->k.sections = take(m, n, sizeof *b->k.sections);
    b->v.sections = take(m, n, sizeof *b->v.sections);
    b->k.tasks = b->v.tasks = take(m, b->k.n_tasks, sizeof *b->k.tasks);
    b->k.lane_tasks = b->v.lane_tasks = take(m, (uint64_t)m->host->n_lanes + 1, sizeof *b->k.lane_tasks);
    b->k.table = take(m, PLEAT__TABLE_CAP, sizeof *b->k.table);
    b->v.table = take(m, PLEAT__TABLE_CAP, sizeof *b->v.table);
    b->partial =
        b->has_partial ? take(m, (uint64_t)b->k.n_tasks * PLEAT__BLOCK_GROUP_MAX, b->v.rows * sizeof(float)) : NULL;
}

static pleat_status alloc_device(builder *m, pleat_error *err) {
    m->arena = (pleat__arena){0};
    carve(m);
    const uint64_t n_bytes = m->arena.used_bytes;
    PLEAT_TRY(pleat__device_alloc(n_bytes, &m->b->memory, err));
    m->arena = (pleat__arena){.base = m->b->memory, .cap_bytes = n_bytes};
    carve(m);
    m->b->other_bytes = n_bytes - m->b->block_bytes;
    return PLEAT_OK;
}

/* Copy to the device, and wait. */
static pleat_status send(const void *to, const void *from, uint64_t n_bytes, pleat_error *err) {
    const pleat__device_stream stream = {NULL};
    if (n_bytes == 0) return PLEAT_OK;
    PLEAT_TRY(pleat__device_copy((void *)to, from, n_bytes, stream, err));
    return pleat__device_wait(stream, err);
}

/* ---- create ---------------------------------------------------------------------------------------------- */

static void matrix_init(pleat__device_matrices *m, uint32_t n_levels, uint32_t rows, uint32_t columns) {
    m->n_levels = n_levels;
    m->rows = rows;
    m->columns = columns;
    m->one = 1;
}

/* Codes, and what they are decoded with. */
static pleat_status send_coding(pleat__device_matrices *m, pleat__device_rows *rows, const coding *c,
                                pleat_error *err) {
    uint32_t table[PLEAT__TABLE_CAP];
    const uint32_t n = pleat__words_table(&c->words_codebook, table);
    m->codebook_kind = c->words_codebook.kind;
    m->max_bits = c->words_codebook.max_bits;
    rows->n_branches = c->tree.n_branches;
    rows->max_words = (uint32_t)c->max_words;
    PLEAT_TRY(send(m->words, c->words.bytes, c->words.used_bytes, err));
    PLEAT_TRY(send(m->table, table, n * sizeof *table, err));
    PLEAT_TRY(send(rows->row_bits, c->row_bits.bytes, c->row_bits.used_bytes, err));
    return send(rows->tree, c->tree.branches, sizeof c->tree.branches, err);
}

/* The device's memory, with the host's arrays. */
static pleat_status fill_device(builder *m, const pleat__device_section *sections, const pleat__device_task *tasks,
                                const uint32_t *firsts, pleat_error *err) {
    pleat_device_blocks *b = m->b;
    const uint64_t n_bytes = (m->n_blocks + 1) * sizeof *sections;
    PLEAT_TRY(alloc_device(m, err));
    PLEAT_TRY(send(b->k.units, m->units.bytes, m->units.used_bytes, err));
    PLEAT_TRY(send_coding(&b->k, &b->k_rows, m->k, err));
    PLEAT_TRY(send_coding(&b->v, &b->v_rows, m->v, err));
    PLEAT_TRY(send(b->k.sections, sections, n_bytes, err));
    PLEAT_TRY(send(b->v.sections, sections + m->n_blocks + 1, n_bytes, err));
    PLEAT_TRY(send(b->k.tasks, tasks, b->k.n_tasks * sizeof *tasks, err));
    return send(b->k.lane_tasks, firsts, ((uint64_t)m->host->n_lanes + 1) * sizeof *firsts, err);
}

/* Scratch of the host: all that is made there but parts of blocks. */
typedef struct host_arrays {
    pleat__device_section *sections; /* [2 * (n_blocks + 1)] */
    pleat__device_task *tasks;       /* [n_tasks] */
    uint32_t *firsts;                /* [n_lanes + 1] */
} host_arrays;

static void carve_host(builder *m, pleat__arena *arena, host_arrays *a) {
    a->sections = pleat__arena_take(arena, 2 * (m->n_blocks + 1), sizeof *a->sections);
    a->tasks = pleat__arena_take(arena, m->b->k.n_tasks, sizeof *a->tasks);
    a->firsts = pleat__arena_take(arena, (uint64_t)m->host->n_lanes + 1, sizeof *a->firsts);
    m->k = pleat__arena_take(arena, 1, sizeof *m->k);
    m->v = pleat__arena_take(arena, 1, sizeof *m->v);
    m->codes = pleat__arena_take(arena, (uint64_t)m->format->tokens * m->format->head_dim, 1);
    m->payload = pleat__arena_take(arena, pleat__block_bound(m->format) + PLEAT__STREAM_PAD, 1);
}

static void release_parts(const builder *m, parts *p) { pleat__free(&m->b->al, p->bytes, 1, p->cap_bytes); }

static void release_coding(const builder *m, coding *c) {
    release_parts(m, &c->words);
    release_parts(m, &c->row_bits);
}

static pleat_status fill(builder *m, pleat_error *err) {
    host_arrays a;
    pleat__arena arena = {0};
    carve_host(m, &arena, &a);
    const uint64_t n_bytes = arena.used_bytes;
    void *memory = pleat__alloc_zero(&m->b->al, 1, n_bytes);
    PLEAT_FAIL_IF(!memory, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device blocks: out of memory");
    arena = (pleat__arena){.base = memory, .cap_bytes = n_bytes};
    carve_host(m, &arena, &a);
    *m->k = (coding){.codebook = &m->codebooks->k, .rows = m->b->k.rows, .columns = m->b->k.columns};
    *m->v = (coding){.codebook = &m->codebooks->v, .rows = m->b->v.rows, .columns = m->b->v.columns};
    build_codings(m);
    pleat_status status = add_payloads(m, a.sections, err);
    if (status == PLEAT_OK) {
        make_tasks(m, a.tasks, a.firsts);
        status = fill_device(m, a.sections, a.tasks, a.firsts, err);
    }
    release_parts(m, &m->units);
    release_coding(m, m->k);
    release_coding(m, m->v);
    pleat__free(&m->b->al, memory, 1, n_bytes);
    return status;
}

static pleat_status build(builder *m, pleat_error *err) {
    pleat_device_blocks *b = m->b;
    const pleat__block_format *f = m->format;
    PLEAT_TRY(pleat__device_shape_get(&b->shape, err));
    for (uint32_t lane = 0; lane < m->host->n_lanes; lane++) {
        const uint64_t n = m->host->n_blocks[lane];
        m->n_blocks += n;
        if (n * f->tokens > b->most_tokens) b->most_tokens = n * f->tokens;
    }
    PLEAT_FAIL_IF(m->n_blocks + m->host->n_lanes > INT32_MAX, err, PLEAT_E_ARG, PLEAT_NOWHERE,
                  "device blocks: too many blocks and lanes"); /* so that tasks are less than a grid's most */
    pleat__codec_dsp_init(&m->dsp, pleat_cpu_flags());
    matrix_init(&b->k, f->k_levels, f->tokens, f->head_dim);
    matrix_init(&b->v, f->v_levels, f->head_dim, f->tokens);
    b->k.has_column_units = f->by_channel;
    b->v.has_column_units = true;
    b->k.n_lanes = b->v.n_lanes = m->host->n_lanes;
    b->k.n_tasks = b->v.n_tasks = count_tasks(m);
    b->has_partial = b->k.n_tasks > m->host->n_lanes;
    return fill(m, err);
}

pleat_status pleat__device_blocks_create(const pleat__block_format *format, const pleat__block_codebooks *codebooks,
                                         const pleat__host_blocks *host, pleat__device_decoder decoder,
                                         const pleat_allocator *allocator, pleat_device_blocks **out,
                                         pleat_error *err) {
    PLEAT_FAIL_IF(!format || !host || !out || host->n_lanes == 0 || !host->n_blocks || !host->payloads ||
                      !host->n_bytes,
                  err, PLEAT_E_ARG, PLEAT_NOWHERE, "device blocks: no lanes, or no place for the result");
    PLEAT_FAIL_IF(format->coder != PLEAT__CODER_HUFFMAN || format->v_group != format->head_dim, err, PLEAT_E_ARG,
                  PLEAT_NOWHERE, "device blocks: only kvcomp, without +pack, has kernels for GPUs");
    PLEAT_FAIL_IF(!codebooks, err, PLEAT_E_STATE, PLEAT_NOWHERE, "device blocks: the codec has no codebooks yet");
    const pleat_allocator al = pleat__allocator_or_default(allocator);
    builder m = {.format = format, .codebooks = codebooks, .host = host};
    m.b = pleat__alloc_zero(&al, 1, sizeof *m.b);
    PLEAT_FAIL_IF(!m.b, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "device blocks: out of memory");
    m.b->al = al;
    m.b->is_serial = decoder == PLEAT__DECODER_BIT_SERIAL;
    const pleat_status status = build(&m, err);
    if (status != PLEAT_OK) {
        pleat_device_blocks_destroy(&m.b);
        return status;
    }
    *out = m.b;
    return PLEAT_OK;
}

void pleat_device_blocks_destroy(pleat_device_blocks **blocks) {
    if (!blocks || !*blocks) return;
    pleat_device_blocks *b = *blocks;
    const pleat_allocator al = b->al;
    pleat__device_free(b->memory);
    pleat__free(&al, b, 1, sizeof *b);
    *blocks = NULL;
}

void pleat_device_blocks_get_bytes(const pleat_device_blocks *b, uint64_t *block_bytes, uint64_t *other_bytes) {
    *block_bytes = b ? b->block_bytes : 0;
    *other_bytes = b ? b->other_bytes : 0;
}

/* ---- use ------------------------------------------------------------------------------------------------- */

static pleat_status check(const pleat_device_blocks *b, const void *x, const void *out, uint32_t n_group,
                          uint64_t stride, pleat_error *err) {
    PLEAT_FAIL_IF(
        !b || !x || !out || n_group == 0 || n_group > PLEAT__BLOCK_GROUP_MAX || stride < b->most_tokens ||
            stride % 2 != 0 || (uintptr_t)x % 8 != 0,
        err, PLEAT_E_ARG, PLEAT_NOWHERE,
        "device blocks: no array or one not aligned, 0 or more than %u heads, or a stride that is odd or small",
        PLEAT__BLOCK_GROUP_MAX);
    return PLEAT_OK;
}

pleat_status pleat_device_blocks_logits(const pleat_device_blocks *b, const float *q, uint32_t n_group, float *logits,
                                        uint64_t stride, void *stream, pleat_error *err) {
    PLEAT_TRY(check(b, q, logits, n_group, stride, err));
    const pleat__device_product p = {.x = q, .out = logits, .stride = stride, .n_group = n_group};
    if (b->is_serial)
        return pleat__blocks_bit_serial(&b->k, &b->k_rows, &p, false, (pleat__device_stream){stream}, err);
    return pleat__blocks_keys(&b->k, &p, &b->shape, (pleat__device_stream){stream}, err);
}

pleat_status pleat_device_blocks_outputs(const pleat_device_blocks *b, const float *weights, uint32_t n_group,
                                         uint64_t stride, float *out, void *stream, pleat_error *err) {
    PLEAT_TRY(check(b, weights, out, n_group, stride, err));
    const pleat__device_product p = {.x = weights,
                                     .out = out,
                                     .partial = b->partial,
                                     .stride = stride,
                                     .n_group = n_group,
                                     .has_partial = b->has_partial};
    if (b->is_serial) return pleat__blocks_bit_serial(&b->v, &b->v_rows, &p, true, (pleat__device_stream){stream}, err);
    return pleat__blocks_values(&b->v, &p, &b->shape, (pleat__device_stream){stream}, err);
}
