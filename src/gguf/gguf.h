/* SPDX-License-Identifier: MIT
 *
 * gguf.h: what gguf.c knows about a file, for the loader and the tokenizer.
 *
 *     "GGUF" version n_tensors n_metadata | metadata | tensor infos | padding | tensor data
 *                                         '- values[]  '- tensors[]           '- data_offset
 *
 * Values and tensors point into the file; only tensor names are copied, since they have no NUL there.
 * by_key and by_name are the same records in the order of their names, for binary search.
 */
#ifndef PLEAT_GGUF_GGUF_H
#define PLEAT_GGUF_GGUF_H

#include "core/types.h"
#include "pleat/model.h"

/* Kinds of metadata values; the numbers are the file's. */
typedef enum pleat__gguf_kind {
    PLEAT__GGUF_U8,
    PLEAT__GGUF_I8,
    PLEAT__GGUF_U16,
    PLEAT__GGUF_I16,
    PLEAT__GGUF_U32,
    PLEAT__GGUF_I32,
    PLEAT__GGUF_F32,
    PLEAT__GGUF_BOOL,
    PLEAT__GGUF_STRING,
    PLEAT__GGUF_ARRAY,
    PLEAT__GGUF_U64,
    PLEAT__GGUF_I64,
    PLEAT__GGUF_F64,
    PLEAT__N_GGUF_KINDS
} pleat__gguf_kind;

/* Tensor types that the loader knows; the numbers are the file's.  gguf.c has the names of all. */
#define PLEAT__GGML_F32 0u
#define PLEAT__GGML_F16 1u
#define PLEAT__GGML_Q4_0 2u
#define PLEAT__GGML_Q8_0 8u
#define PLEAT__GGML_BF16 30u

/* A piece of the file, without a NUL. */
typedef struct pleat__str {
    const char *p;
    uint64_t n_bytes;
} pleat__str;

#define PLEAT__STR(literal) ((pleat__str){(literal), sizeof(literal) - 1})

bool pleat__str_eq(pleat__str a, pleat__str b);

typedef struct pleat__gguf_value {
    pleat__str key;        /* 1..65535 bytes of UTF-8 without control characters */
    pleat__gguf_kind kind; /* of the value or, in an array, of its items */
    bool is_array;
    uint64_t n_items; /* 1 unless is_array */
    uint64_t offset;  /* of the first item in the file */
} pleat__gguf_value;

typedef struct pleat__gguf_tensor {
    char name[65]; /* 1..64 bytes of UTF-8 without control characters, and the NUL */
    char type_name[15];
    uint32_t type;
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t n_elements;
    uint64_t n_bytes;     /* 0 where the type is unknown */
    uint64_t offset;      /* of the data in the file */
    uint64_t info_offset; /* of the tensor's entry in the file, for messages */
} pleat__gguf_tensor;

struct pleat_gguf {
    pleat_allocator al;
    uint64_t block_bytes; /* this struct and the arrays below are one block */
    const uint8_t *bytes; /* [info.file_bytes] */
    bool is_mapped;       /* bytes is our mapping */
    uint64_t data_offset;
    pleat_gguf_info info;
    pleat__gguf_value *values;          /* [n_metadata] in file order */
    const pleat__gguf_value **by_key;   /* [n_metadata] */
    pleat__gguf_tensor *tensors;        /* [n_tensors] in file order */
    const pleat__gguf_tensor **by_name; /* [n_tensors] */
};

/* NULL if there is none. */
const pleat__gguf_value *pleat__gguf_find(const pleat_gguf *gguf, const char *key);
const pleat__gguf_tensor *pleat__gguf_find_tensor(const pleat_gguf *gguf, const char *name);

/* Item `i` of a value that is no array of strings, widened; false where it is of another kind.  Booleans are 0 and 1
 * and only pleat__gguf_bool()'s; u64 takes unsigned kinds, i64 every integer kind that fits. */
bool pleat__gguf_u64(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, uint64_t *out);
bool pleat__gguf_i64(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, int64_t *out);
bool pleat__gguf_f64(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, double *out);
bool pleat__gguf_bool(const pleat_gguf *gguf, const pleat__gguf_value *value, uint64_t i, bool *out);

/* The string at *offset, which is moved behind it: a walk over value->n_items strings from value->offset. */
pleat__str pleat__gguf_next_string(const pleat_gguf *gguf, uint64_t *offset);

/* The string under `key`; false if there is none or it is of another kind. */
bool pleat__gguf_string(const pleat_gguf *gguf, const char *key, pleat__str *out);

/* Like pleat__gguf_string(), but PLEAT_E_FORMAT with a message. */
pleat_status pleat__gguf_need_string(const pleat_gguf *gguf, const char *key, pleat__str *out, pleat_error *err);

/* The array of strings under `key`; PLEAT_E_FORMAT if there is none or it is of another kind. */
pleat_status pleat__gguf_need_strings(const pleat_gguf *gguf, const char *key, const pleat__gguf_value **out,
                                      pleat_error *err);

/* Copy for a message: cut to cap - 1 bytes, whatever is not printable ASCII replaced by '?'.  Returns buf. */
const char *pleat__str_show(pleat__str s, char *buf, size_t cap);

#endif
