/* SPDX-License-Identifier: MIT
 *
 * gguf.c: opens a GGUF file and checks all of its structure, once, so that nobody behind it has to.
 *
 *     header    magic u32, version u32, n_tensors u64, n_metadata u64
 *     value     key string, kind u32, value; an array is: item kind u32, n_items u64, items
 *     tensor    name string, n_dims u32, dims u64[n_dims], type u32, offset u64 from data_offset
 *     string    n_bytes u64, bytes
 *
 * What holds of a file that opened:
 * 1. every value lies in the file, array items and string bytes included; no array holds arrays; booleans are 0 or 1;
 * 2. keys are unique, and so are tensor names; both are UTF-8 without control characters;
 * 3. a tensor of a known type lies in the file, at a multiple of the alignment, and shares no byte with another;
 *    one of an unknown type starts in the file;
 * 4. the memory taken is at most a fixed multiple of the file: counts are held against the bytes that are left before
 *    anything is allocated.
 *
 * A mapped file that somebody else changes or cuts while it is open is beyond what can be checked.
 * Metadata values are read and printed by gguf_value.c.
 */
#include "gguf/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and weights are read as they are");

#define DEFAULT_ALIGNMENT 32u

/* The least that an entry can take: a key or name of one byte, and a value of one byte or one dimension. */
#define MIN_VALUE_BYTES (8u + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8u + 1 + 4 + 8 + 4 + 8)

#define MAX_KEY_BYTES 65535u /* the format's limits */
#define MAX_NAME_BYTES 64u

/* Names and sizes of tensor types by number, as ggml has them; gaps are types that were withdrawn. */
static const struct {
    const char *name;
    uint16_t block_elements;
    uint16_t block_bytes;
} types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},      [3] = {"Q4_1", 32, 20},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},
};

static bool type_is_known(uint32_t type) { return type < sizeof types / sizeof types[0] && types[type].name; }

/* Bytes of one value of a kind; 0 for strings and arrays. */
static uint32_t kind_bytes(pleat__gguf_kind kind) {
    static const uint8_t bytes[PLEAT__N_GGUF_KINDS] = {
        [PLEAT__GGUF_U8] = 1,  [PLEAT__GGUF_I8] = 1,  [PLEAT__GGUF_U16] = 2, [PLEAT__GGUF_I16] = 2,
        [PLEAT__GGUF_U32] = 4, [PLEAT__GGUF_I32] = 4, [PLEAT__GGUF_F32] = 4, [PLEAT__GGUF_BOOL] = 1,
        [PLEAT__GGUF_U64] = 8, [PLEAT__GGUF_I64] = 8, [PLEAT__GGUF_F64] = 8,
    };
    return bytes[kind];
}

/* ---- reading the file in order ----------------------------------------------------------------------------------- */

/* `what` and `name` say in messages what is being read: "metadata entry 3" and its key, once that is known. */
typedef struct cursor {
    const uint8_t *bytes;
    uint64_t n_bytes;
    uint64_t at;
    char what[40];
    char name[84];
    pleat_error *err;
} cursor;

#define BAD(c, where, ...) bad((c), PLEAT_E_FORMAT, (where), __VA_ARGS__)

__attribute__((format(printf, 4, 5))) static pleat_status bad(const cursor *c, pleat_status code, uint64_t where,
                                                              const char *fmt, ...) {
    char why[120];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return pleat__error_set(c->err, code, where, "%s%s%s%s: %s", c->what, c->name[0] ? " '" : "", c->name,
                            c->name[0] ? "'" : "", why);
}

static uint64_t left(const cursor *c) { return c->n_bytes - c->at; }

static pleat_status read_raw(cursor *c, void *out, uint64_t n) {
    if (left(c) < n) return BAD(c, c->at, "the file ends at byte %llu", (unsigned long long)c->n_bytes);
    memcpy(out, c->bytes + c->at, n);
    c->at += n;
    return PLEAT_OK;
}

static pleat_status read_u32(cursor *c, uint32_t *out) { return read_raw(c, out, sizeof *out); }
static pleat_status read_u64(cursor *c, uint64_t *out) { return read_raw(c, out, sizeof *out); }

static pleat_status read_string(cursor *c, pleat__str *out) {
    const uint64_t where = c->at;
    uint64_t n = 0;
    PLEAT_TRY(read_u64(c, &n));
    if (left(c) < n) {
        return BAD(c, where, "a string of %llu bytes, but the file ends after %llu", (unsigned long long)n,
                   (unsigned long long)left(c));
    }
    *out = (pleat__str){(const char *)c->bytes + c->at, n};
    c->at += n;
    return PLEAT_OK;
}

/* A key or a tensor's name; becomes the cursor's name. */
static pleat_status read_name(cursor *c, uint64_t max_bytes, pleat__str *out) {
    const uint64_t where = c->at;
    PLEAT_TRY(read_string(c, out));
    pleat__str_show(*out, c->name, sizeof c->name);
    if (out->n_bytes == 0 || out->n_bytes > max_bytes) {
        return BAD(c, where, "a name of %llu bytes, 1 to %llu are allowed", (unsigned long long)out->n_bytes,
                   (unsigned long long)max_bytes);
    }
    for (uint64_t i = 0; i < out->n_bytes; i++) {
        if ((uint8_t)out->p[i] < 0x20 || out->p[i] == 0x7F) return BAD(c, where, "a control character in the name");
    }
    if (pleat__utf8_prefix(out->p, out->n_bytes) != out->n_bytes) return BAD(c, where, "the name is not UTF-8");
    return PLEAT_OK;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static pleat_status read_kind(cursor *c, pleat__gguf_kind *out) {
    const uint64_t where = c->at;
    uint32_t kind = 0;
    PLEAT_TRY(read_u32(c, &kind));
    if (kind >= PLEAT__N_GGUF_KINDS) return BAD(c, where, "unknown kind of value %u", kind);
    *out = (pleat__gguf_kind)kind;
    return PLEAT_OK;
}

/* Walk over v->n_items items of v->kind from c->at. */
static pleat_status skip_items(cursor *c, const pleat__gguf_value *v) {
    if (v->kind == PLEAT__GGUF_STRING) {
        for (uint64_t i = 0; i < v->n_items; i++) {
            pleat__str s;
            PLEAT_TRY(read_string(c, &s));
        }
        return PLEAT_OK;
    }
    uint64_t n;
    if (!pleat__mul_u64(v->n_items, kind_bytes(v->kind), &n) || n > left(c)) {
        return BAD(c, c->at, "%llu items do not fit into the file", (unsigned long long)v->n_items);
    }
    if (v->kind == PLEAT__GGUF_BOOL) {
        for (uint64_t i = 0; i < n; i++) {
            const uint8_t b = c->bytes[c->at + i];
            if (b > 1) return BAD(c, c->at + i, "a boolean of %u", b);
        }
    }
    c->at += n;
    return PLEAT_OK;
}

static pleat_status read_value(cursor *c, pleat__gguf_value *v) {
    PLEAT_TRY(read_name(c, MAX_KEY_BYTES, &v->key));
    PLEAT_TRY(read_kind(c, &v->kind));
    v->is_array = v->kind == PLEAT__GGUF_ARRAY;
    v->n_items = 1;
    if (v->is_array) {
        const uint64_t where = c->at;
        PLEAT_TRY(read_kind(c, &v->kind));
        PLEAT_TRY(read_u64(c, &v->n_items));
        if (v->kind == PLEAT__GGUF_ARRAY) return bad(c, PLEAT_E_UNSUPPORTED, where, "an array of arrays");
    }
    v->offset = c->at;
    return skip_items(c, v);
}

static pleat_status read_values(cursor *c, pleat_gguf *g) {
    for (uint64_t i = 0; i < g->info.n_metadata; i++) {
        snprintf(c->what, sizeof c->what, "metadata entry %llu", (unsigned long long)i);
        c->name[0] = '\0';
        PLEAT_TRY(read_value(c, &g->values[i]));
    }
    return PLEAT_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static pleat_status read_dims(cursor *c, pleat__gguf_tensor *t) {
    const uint64_t where = c->at;
    PLEAT_TRY(read_u32(c, &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > 4) return BAD(c, where, "%u dimensions, 1 to 4 are allowed", t->n_dims);
    t->n_elements = 1;
    for (uint32_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims) continue;
        PLEAT_TRY(read_u64(c, &t->dims[d]));
        if (t->dims[d] == 0) return BAD(c, c->at - 8, "dimension %u is 0", d);
        if (!pleat__mul_u64(t->n_elements, t->dims[d], &t->n_elements)) {
            return BAD(c, c->at - 8, "the dimensions' product does not fit into 64 bits");
        }
    }
    return PLEAT_OK;
}

/* The type and, where it is known, the bytes it gives. */
static pleat_status read_type(cursor *c, pleat__gguf_tensor *t) {
    const uint64_t where = c->at;
    PLEAT_TRY(read_u32(c, &t->type));
    if (!type_is_known(t->type)) {
        snprintf(t->type_name, sizeof t->type_name, "type %u", (unsigned)(t->type % 1000000000u));
        t->n_bytes = 0;
        return PLEAT_OK;
    }
    snprintf(t->type_name, sizeof t->type_name, "%s", types[t->type].name);
    const uint32_t block = types[t->type].block_elements;
    if (t->dims[0] % block != 0) {
        return BAD(c, where, "rows of %llu elements, but %s has blocks of %u", (unsigned long long)t->dims[0],
                   t->type_name, block);
    }
    if (!pleat__mul_u64(t->n_elements / block, types[t->type].block_bytes, &t->n_bytes)) {
        return BAD(c, where, "its size does not fit into 64 bits");
    }
    return PLEAT_OK;
}

/* One tensor's entry.  t->offset stays relative to the data section, whose place is not known yet. */
static pleat_status read_tensor(cursor *c, uint64_t alignment, pleat__gguf_tensor *t) {
    pleat__str name;
    t->info_offset = c->at;
    PLEAT_TRY(read_name(c, MAX_NAME_BYTES, &name));
    memcpy(t->name, name.p, name.n_bytes);
    t->name[name.n_bytes] = '\0';
    PLEAT_TRY(read_dims(c, t));
    PLEAT_TRY(read_type(c, t));
    PLEAT_TRY(read_u64(c, &t->offset));
    if (t->offset % alignment != 0) {
        return BAD(c, c->at - 8, "its data offset %llu is no multiple of %llu", (unsigned long long)t->offset,
                   (unsigned long long)alignment);
    }
    return PLEAT_OK;
}

/* Hold a tensor's place against the file and make its offset absolute. */
static pleat_status place_tensor(cursor *c, pleat_gguf *g, pleat__gguf_tensor *t) {
    uint64_t start, end;
    if (!pleat__add_u64(g->data_offset, t->offset, &start) || !pleat__add_u64(start, t->n_bytes, &end) ||
        end > c->n_bytes) {
        return BAD(c, t->info_offset, "%llu bytes at data offset %llu pass the file's end, byte %llu",
                   (unsigned long long)t->n_bytes, (unsigned long long)t->offset, (unsigned long long)c->n_bytes);
    }
    t->offset = start;
    if (!pleat__add_u64(g->info.n_params, t->n_elements, &g->info.n_params)) {
        return BAD(c, t->info_offset, "the number of parameters does not fit into 64 bits");
    }
    return PLEAT_OK;
}

static pleat_status read_alignment(cursor *c, const pleat_gguf *g, uint64_t *out) {
    *out = DEFAULT_ALIGNMENT;
    const pleat__gguf_value *v = pleat__gguf_find(g, "general.alignment");
    if (!v) return PLEAT_OK;
    snprintf(c->what, sizeof c->what, "metadata");
    pleat__str_show(v->key, c->name, sizeof c->name);
    if (v->is_array || v->kind != PLEAT__GGUF_U32 || !pleat__gguf_u64(g, v, 0, out)) {
        return BAD(c, v->offset, "not of kind u32");
    }
    if (*out == 0 || (*out & (*out - 1)) != 0) {
        return BAD(c, v->offset, "%llu is no power of two", (unsigned long long)*out);
    }
    return PLEAT_OK;
}

static pleat_status read_tensors(cursor *c, pleat_gguf *g) {
    uint64_t alignment;
    PLEAT_TRY(read_alignment(c, g, &alignment));
    for (uint64_t i = 0; i < g->info.n_tensors; i++) {
        snprintf(c->what, sizeof c->what, "tensor %llu", (unsigned long long)i);
        c->name[0] = '\0';
        PLEAT_TRY(read_tensor(c, alignment, &g->tensors[i]));
    }
    if (!pleat__align_u64(c->at, alignment, &g->data_offset)) g->data_offset = UINT64_MAX;
    for (uint64_t i = 0; i < g->info.n_tensors; i++) {
        snprintf(c->what, sizeof c->what, "tensor %llu", (unsigned long long)i);
        snprintf(c->name, sizeof c->name, "%s", g->tensors[i].name);
        PLEAT_TRY(place_tensor(c, g, &g->tensors[i]));
    }
    return PLEAT_OK;
}

/* ---- order, duplicates, overlaps --------------------------------------------------------------------------------- */

static int compare_bytes(const char *a, uint64_t n_a, const char *b, uint64_t n_b) {
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_keys(const void *a, const void *b) {
    const pleat__gguf_value *x = *(const pleat__gguf_value *const *)a, *y = *(const pleat__gguf_value *const *)b;
    return compare_bytes(x->key.p, x->key.n_bytes, y->key.p, y->key.n_bytes);
}

static int compare_names(const void *a, const void *b) {
    const pleat__gguf_tensor *x = *(const pleat__gguf_tensor *const *)a, *y = *(const pleat__gguf_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static int compare_offsets(const void *a, const void *b) {
    const pleat__gguf_tensor *x = *(const pleat__gguf_tensor *const *)a, *y = *(const pleat__gguf_tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* unknown types, of 0 bytes, first */
}

static pleat_status index_keys(pleat_gguf *g, pleat_error *err) {
    const uint64_t n = g->info.n_metadata;
    for (uint64_t i = 0; i < n; i++) g->by_key[i] = &g->values[i];
    if (n > 1) qsort(g->by_key, n, sizeof *g->by_key, compare_keys);
    for (uint64_t i = 1; i < n; i++) {
        if (!pleat__str_eq(g->by_key[i - 1]->key, g->by_key[i]->key)) continue;
        char key[84];
        return pleat__error_set(err, PLEAT_E_FORMAT, g->by_key[i]->offset, "metadata key '%s' stands twice",
                                pleat__str_show(g->by_key[i]->key, key, sizeof key));
    }
    return PLEAT_OK;
}

/* Leaves by_name in the order of offsets; index_tensors() sorts it by name after. */
static pleat_status check_overlaps(pleat_gguf *g, pleat_error *err) {
    const uint64_t n = g->info.n_tensors;
    for (uint64_t i = 0; i < n; i++) g->by_name[i] = &g->tensors[i];
    if (n > 1) qsort(g->by_name, n, sizeof *g->by_name, compare_offsets);
    for (uint64_t i = 1; i < n; i++) {
        const pleat__gguf_tensor *a = g->by_name[i - 1], *b = g->by_name[i];
        PLEAT_FAIL_IF(a->offset + a->n_bytes > b->offset, err, PLEAT_E_FORMAT, b->info_offset,
                      "tensors '%s' and '%s' share bytes", a->name, b->name);
    }
    return PLEAT_OK;
}

static pleat_status index_tensors(pleat_gguf *g, pleat_error *err) {
    PLEAT_TRY(check_overlaps(g, err));
    const uint64_t n = g->info.n_tensors;
    if (n > 1) qsort(g->by_name, n, sizeof *g->by_name, compare_names);
    for (uint64_t i = 1; i < n; i++) {
        const pleat__gguf_tensor *t = g->by_name[i];
        PLEAT_FAIL_IF(strcmp(g->by_name[i - 1]->name, t->name) == 0, err, PLEAT_E_FORMAT, t->info_offset,
                      "tensor '%s' stands twice", t->name);
    }
    return PLEAT_OK;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* The header: counts that are no more than the file can hold. */
static pleat_status read_header(cursor *c, pleat_gguf_info *info) {
    char magic[4];
    snprintf(c->what, sizeof c->what, "header");
    PLEAT_TRY(read_raw(c, magic, sizeof magic));
    if (memcmp(magic, "GGUF", 4) != 0) return BAD(c, 0, "not a GGUF file");
    PLEAT_TRY(read_u32(c, &info->version));
    if (info->version != 2 && info->version != 3) {
        const bool is_swapped = info->version != 0 && (info->version & 0xFFFFu) == 0;
        if (is_swapped) return bad(c, PLEAT_E_UNSUPPORTED, 4, "a big-endian file");
        return bad(c, PLEAT_E_UNSUPPORTED, 4, "version %u, known are 2 and 3", info->version);
    }
    PLEAT_TRY(read_u64(c, &info->n_tensors));
    PLEAT_TRY(read_u64(c, &info->n_metadata));
    if (info->n_tensors > left(c) / MIN_TENSOR_BYTES) {
        return BAD(c, 8, "%llu tensors do not fit into the file", (unsigned long long)info->n_tensors);
    }
    if (info->n_metadata > left(c) / MIN_VALUE_BYTES) {
        return BAD(c, 16, "%llu metadata entries do not fit into the file", (unsigned long long)info->n_metadata);
    }
    info->file_bytes = c->n_bytes;
    return PLEAT_OK;
}

static pleat_gguf *carve(pleat__arena *a, const pleat_gguf_info *info) {
    pleat_gguf *g = pleat__arena_take(a, 1, sizeof *g);
    pleat__gguf_value *values = pleat__arena_take(a, info->n_metadata, sizeof *values);
    const pleat__gguf_value **by_key = pleat__arena_take(a, info->n_metadata, sizeof *by_key);
    pleat__gguf_tensor *tensors = pleat__arena_take(a, info->n_tensors, sizeof *tensors);
    const pleat__gguf_tensor **by_name = pleat__arena_take(a, info->n_tensors, sizeof *by_name);
    if (!g) return NULL;
    *g = (pleat_gguf){.info = *info, .values = values, .by_key = by_key, .tensors = tensors, .by_name = by_name};
    return g;
}

/* Like pleat_gguf_open_memory(), with its arguments checked; a mapping stays the caller's on failure. */
static pleat_status open_bytes(const void *bytes, uint64_t n_bytes, const pleat_allocator *allocator, pleat_gguf **out,
                               pleat_error *err) {
    cursor c = {.bytes = bytes, .n_bytes = n_bytes, .err = err};
    pleat_gguf_info info = {0};
    PLEAT_TRY(read_header(&c, &info));

    const pleat_allocator al = pleat__allocator_or_default(allocator);
    pleat__arena arena = {0};
    carve(&arena, &info);
    const uint64_t block_bytes = arena.used_bytes;
    void *block = arena.overflow ? NULL : pleat__alloc(&al, 1, block_bytes);
    PLEAT_FAIL_IF(!block, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "no memory for %llu metadata entries and %llu tensors",
                  (unsigned long long)info.n_metadata, (unsigned long long)info.n_tensors);
    arena = (pleat__arena){.base = block, .cap_bytes = block_bytes};
    pleat_gguf *g = carve(&arena, &info);
    g->al = al;
    g->block_bytes = block_bytes;
    g->bytes = bytes;

    pleat_status st = read_values(&c, g);
    if (st == PLEAT_OK) st = index_keys(g, err);
    if (st == PLEAT_OK) st = read_tensors(&c, g);
    if (st == PLEAT_OK) st = index_tensors(g, err);
    if (st != PLEAT_OK) {
        pleat__free(&al, g, 1, block_bytes);
        return st;
    }
    *out = g;
    return PLEAT_OK;
}

/* Map all of a regular file; *bytes stays mapped. */
static pleat_status map_file(const char *path, const void **bytes, uint64_t *n_bytes, pleat_error *err) {
    struct stat info;
    /* O_NONBLOCK: a FIFO without a writer is refused below rather than waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    PLEAT_FAIL_IF(fd < 0, err, PLEAT_E_IO, PLEAT_NOWHERE, "cannot open '%.120s': %s", path, strerror(errno));
    pleat_status st = PLEAT_OK;
    void *map = MAP_FAILED;
    if (fstat(fd, &info) != 0) {
        st = pleat__error_set(err, PLEAT_E_IO, PLEAT_NOWHERE, "cannot look at '%.120s': %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = pleat__error_set(err, PLEAT_E_IO, PLEAT_NOWHERE, "'%.120s' is no regular file", path);
    } else if (info.st_size == 0) {
        st = pleat__error_set(err, PLEAT_E_FORMAT, 0, "header: the file is empty");
    } else if ((map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED) {
        st = pleat__error_set(err, PLEAT_E_IO, PLEAT_NOWHERE, "cannot map '%.120s': %s", path, strerror(errno));
    }
    close(fd);
    if (st != PLEAT_OK) return st;
    *bytes = map;
    *n_bytes = (uint64_t)info.st_size;
    return PLEAT_OK;
}

pleat_status pleat_gguf_open(const char *path, const pleat_allocator *allocator, pleat_gguf **out, pleat_error *err) {
    PLEAT_FAIL_IF(!path || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "path and out may not be NULL");
    const void *bytes = NULL;
    uint64_t n_bytes = 0;
    PLEAT_TRY(map_file(path, &bytes, &n_bytes, err));
    const pleat_status st = open_bytes(bytes, n_bytes, allocator, out, err);
    if (st == PLEAT_OK) {
        (*out)->is_mapped = true;
    } else {
        munmap((void *)(uintptr_t)bytes, n_bytes);
    }
    return st;
}

pleat_status pleat_gguf_open_memory(const void *bytes, size_t n_bytes, const pleat_allocator *allocator,
                                    pleat_gguf **out, pleat_error *err) {
    PLEAT_FAIL_IF((!bytes && n_bytes > 0) || !out, err, PLEAT_E_ARG, PLEAT_NOWHERE, "bytes and out may not be NULL");
    return open_bytes(bytes, n_bytes, allocator, out, err);
}

void pleat_gguf_close(pleat_gguf **gguf) {
    if (!gguf || !*gguf) return;
    pleat_gguf *g = *gguf;
    const pleat_allocator al = g->al;
    if (g->is_mapped) munmap((void *)(uintptr_t)g->bytes, g->info.file_bytes);
    pleat__free(&al, g, 1, g->block_bytes);
    *gguf = NULL;
}

void pleat_gguf_get_info(const pleat_gguf *gguf, pleat_gguf_info *out) {
    if (gguf && out) *out = gguf->info;
}

pleat_status pleat_gguf_get_tensor(const pleat_gguf *gguf, uint64_t i, pleat_gguf_tensor *out) {
    if (!gguf || !out || i >= gguf->info.n_tensors) return PLEAT_E_ARG;
    const pleat__gguf_tensor *t = &gguf->tensors[i];
    *out = (pleat_gguf_tensor){.name = t->name,
                               .type_name = t->type_name,
                               .n_dims = t->n_dims,
                               .dims = {t->dims[0], t->dims[1], t->dims[2], t->dims[3]},
                               .n_bytes = t->n_bytes};
    return PLEAT_OK;
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

const pleat__gguf_value *pleat__gguf_find(const pleat_gguf *gguf, const char *key) {
    uint64_t low = 0, high = gguf->info.n_metadata;
    const uint64_t n = strlen(key);
    while (low < high) {
        const uint64_t mid = low + (high - low) / 2;
        const pleat__gguf_value *v = gguf->by_key[mid];
        const int order = compare_bytes(v->key.p, v->key.n_bytes, key, n);
        if (order == 0) return v;
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

const pleat__gguf_tensor *pleat__gguf_find_tensor(const pleat_gguf *gguf, const char *name) {
    uint64_t low = 0, high = gguf->info.n_tensors;
    while (low < high) {
        const uint64_t mid = low + (high - low) / 2;
        const int order = strcmp(gguf->by_name[mid]->name, name);
        if (order == 0) return gguf->by_name[mid];
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}
