/* SPDX-License-Identifier: MIT
 *
 * test_gguf.c: the GGUF reader on good files, on files cut anywhere, and on files with any field replaced by extreme
 * values.
 *
 * Bad files are opened in memory that ends at an unreadable page, so a read beyond the file faults.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "gguf_writer.h"
#include "pleat/model.h"

static const char model_path[] = "models/pleat-28m-q8_0.gguf";

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8 };

/* ---- helpers --------------------------------------------------------------------------------------- */

/* Open n bytes that end at an unreadable page.  Whatever opens is read through and closed. */
static pleat_status try_open(const void *bytes, size_t n, pleat_error *err) {
    check_buf buf = check_buf_new(n, 1);
    check_alloc ca;
    pleat_gguf *g = NULL;
    check_alloc_init(&ca, 0, 0);
    if (n > 0) memcpy(buf.p, bytes, n);
    *err = (pleat_error){0};
    const pleat_status st = pleat_gguf_open_memory(buf.p, n, &ca.a, &g, err);
    CHECK(ca.peak_bytes <= 4096 + 8 * n);
    if (st == PLEAT_OK) {
        pleat_gguf_info info;
        pleat_gguf_tensor t;
        char key[40], value[40];
        pleat_gguf_get_info(g, &info);
        for (uint64_t i = 0; i < info.n_metadata; i++) {
            CHECK_STATUS(pleat_gguf_metadata(g, i, key, sizeof key, value, sizeof value), PLEAT_OK);
        }
        for (uint64_t i = 0; i < info.n_tensors; i++) {
            CHECK_STATUS(pleat_gguf_get_tensor(g, i, &t), PLEAT_OK);
            CHECK(strlen(t.name) >= 1 && strlen(t.name) <= 64 && t.n_bytes <= n);
        }
    } else {
        CHECK(g == NULL && err->code == st && err->text[0] != '\0' && !strchr(err->text, '\n'));
        CHECK(err->where <= n || err->where == PLEAT_NOWHERE);
    }
    pleat_gguf_close(&g);
    CHECK_EQ_U64(ca.live, 0);
    check_buf_free(&buf);
    return st;
}

/* A file with a value of every kind, arrays, and three tensors. */
static void write_sample(gguf_writer *w) {
    gw_header(w, 3);
    gw_kv_str(w, "general.name", "sample");
    gw_kv(w, "k.u8", GW_U8, "\xFE", 1);
    gw_kv(w, "k.i8", GW_I8, "\xFE", 1);
    gw_kv(w, "k.u16", GW_U16, "\xFE\xFF", 2);
    gw_kv(w, "k.i16", GW_I16, "\xFE\xFF", 2);
    gw_kv_u32(w, "k.u32", 4000000000u);
    gw_kv(w, "k.i32", GW_I32, "\xFE\xFF\xFF\xFF", 4);
    gw_kv_f32(w, "k.f32", 1e-5f);
    gw_kv_bool(w, "k.bool", 1);
    gw_kv(w, "k.u64", GW_U64, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
    gw_kv(w, "k.i64", GW_I64, "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
    const double tenth = 0.1;
    gw_kv(w, "k.f64", GW_F64, &tenth, 8);
    gw_kv_array(w, "k.few", GW_STRING, 2);
    gw_str(w, "a");
    gw_str(w, "");
    gw_kv_array(w, "k.none", GW_U32, 0);
    gw_kv_array(w, "k.many", GW_BOOL, 9);
    gw_bytes(w, "\0\1\0\1\0\1\0\1\0", 9);
    gw_tensor(w, "a", F32, 1, (uint64_t[]){5}, 20);
    gw_tensor(w, "b.weight", Q8_0, 2, (uint64_t[]){64, 3}, 204);
    gw_tensor(w, "c", F16, 4, (uint64_t[]){2, 1, 2, 2}, 16);
    gw_data(w);
}

static void expect_value(const pleat_gguf *g, uint64_t i, const char *want_key, const char *want_value) {
    char key[64], value[64];
    if (!CHECK_STATUS(pleat_gguf_metadata(g, i, key, sizeof key, value, sizeof value), PLEAT_OK)) return;
    CHECK_EQ_STR(key, want_key);
    CHECK_EQ_STR(value, want_value);
}

/* ---- good files ------------------------------------------------------------------------------------ */

static void test_sample(void) {
    gguf_writer w;
    pleat_gguf *g = NULL;
    pleat_gguf_info info;
    pleat_gguf_tensor t;
    pleat_error err;
    write_sample(&w);
    if (!CHECK_STATUS(pleat_gguf_open_memory(w.p, w.n, NULL, &g, &err), PLEAT_OK)) SKIP(err.text);
    pleat_gguf_get_info(g, &info);
    CHECK_EQ_U64(info.version, 3);
    CHECK_EQ_U64(info.file_bytes, w.n);
    CHECK_EQ_U64(info.n_tensors, 3);
    CHECK_EQ_U64(info.n_params, 5 + 192 + 8);
    static const char *const want[][2] = {
        {"general.name", "sample"},
        {"k.u8", "254"},
        {"k.i8", "-2"},
        {"k.u16", "65534"},
        {"k.i16", "-2"},
        {"k.u32", "4000000000"},
        {"k.i32", "-2"},
        {"k.f32", "1e-05"},
        {"k.bool", "true"},
        {"k.u64", "18446744073709551615"},
        {"k.i64", "-2"},
        {"k.f64", "0.1"},
        {"k.few", "[a, ]"},
        {"k.none", "[]"},
        {"k.many", "[9 booleans]"},
    };
    CHECK_EQ_U64(info.n_metadata, CHECK_COUNT(want));
    for (uint64_t i = 0; i < CHECK_COUNT(want); i++) expect_value(g, i, want[i][0], want[i][1]);

    uint64_t u = 0;
    CHECK_STATUS(pleat_gguf_get_u64(g, "k.u64", &u), PLEAT_OK);
    CHECK_EQ_U64(u, UINT64_MAX);
    CHECK_STATUS(pleat_gguf_get_u64(g, "k.i32", &u), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_get_u64(g, "k.none", &u), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_get_item(g, "k.none", 0, &u), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_get_item(g, "k.u64", 0, &u), PLEAT_E_ARG); /* no array */
    CHECK_STATUS(pleat_gguf_get_item(g, "k.few", 0, &u), PLEAT_E_ARG); /* texts */
    CHECK_STATUS(pleat_gguf_get_item(g, "k.many", 8, &u), PLEAT_OK);
    CHECK_STATUS(pleat_gguf_get_item(g, "k.many", 9, &u), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_get_u64(g, "k.", &u), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_get_u64(g, "k.u32x", &u), PLEAT_E_ARG);

    CHECK_STATUS(pleat_gguf_get_tensor(g, 1, &t), PLEAT_OK);
    CHECK_EQ_STR(t.name, "b.weight");
    CHECK_EQ_STR(t.type_name, "Q8_0");
    CHECK(t.n_dims == 2 && t.dims[0] == 64 && t.dims[1] == 3 && t.dims[2] == 1 && t.dims[3] == 1);
    CHECK_EQ_U64(t.n_bytes, 204); /* 3 rows of 2 blocks of 34 bytes */
    CHECK_STATUS(pleat_gguf_get_tensor(g, 3, &t), PLEAT_E_ARG);
    pleat_gguf_close(&g);
    CHECK(g == NULL);
    gw_free(&w);
}

/* Texts that are longer than the caller's room are cut and end in a NUL inside it. */
static void test_cut_text(void) {
    gguf_writer w;
    pleat_gguf *g = NULL;
    write_sample(&w);
    CHECK_STATUS(pleat_gguf_open_memory(w.p, w.n, NULL, &g, NULL), PLEAT_OK);
    for (size_t cap = 1; cap <= 14; cap++) {
        check_buf key = check_buf_new(cap, 1), value = check_buf_new(cap, 1);
        CHECK_STATUS(pleat_gguf_metadata(g, 0, key.p, cap, value.p, cap), PLEAT_OK);
        CHECK(strncmp(key.p, "general.name", cap - 1) == 0 && strlen(key.p) < cap);
        CHECK(strncmp(value.p, "sample", cap - 1) == 0 && strlen(value.p) < cap);
        CHECK(check_buf_is_intact(&key) && check_buf_is_intact(&value));
        check_buf_free(&key);
        check_buf_free(&value);
    }
    char c[1];
    CHECK_STATUS(pleat_gguf_metadata(g, 0, c, 0, c, 1), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_metadata(g, 15, c, 1, c, 1), PLEAT_E_ARG);
    pleat_gguf_close(&g);
    gw_free(&w);
}

static void test_no_tensors(void) {
    gguf_writer w;
    pleat_error err;
    gw_header(&w, 2);
    gw_data(&w);
    CHECK_STATUS(try_open(w.p, 24, &err), PLEAT_OK);
    gw_free(&w);
}

/* ---- bad files --------------------------------------------------------------------------------------- */

static void test_cut_everywhere(void) {
    gguf_writer w;
    pleat_error err;
    write_sample(&w);
    CHECK_STATUS(try_open(w.p, w.n, &err), PLEAT_OK);
    /* The last tensor has 16 bytes and 16 of padding that the file need not have. */
    CHECK_STATUS(try_open(w.p, w.n - 16, &err), PLEAT_OK);
    for (size_t n = 0; n < w.n - 16; n++) {
        check_context("cut to %zu bytes", n);
        if (!CHECK_STATUS(try_open(w.p, n, &err), PLEAT_E_FORMAT)) break;
    }
    gw_free(&w);
}

static void test_extreme_fields(void) {
    static const uint64_t values[] = {
        0,         1,          2,          7,          UINT32_MAX, 0x7FFFFFFFu, 0x80000000u,     UINT64_MAX,
        INT64_MAX, 1ull << 63, 1ull << 32, 1ull << 40, 12,         255,         UINT64_MAX - 31, UINT64_MAX / 34};
    gguf_writer w;
    pleat_error err;
    write_sample(&w);
    unsigned char *copy = malloc(w.n);
    for (size_t at = 0; at + 8 <= w.n - w.data_bytes; at++) {
        for (size_t i = 0; i < CHECK_COUNT(values); i++) {
            for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
                check_context("%zu bytes at %zu set to %llu", bytes, at, (unsigned long long)values[i]);
                memcpy(copy, w.p, w.n);
                memcpy(copy + at, &values[i], bytes);
                (void)try_open(copy, w.n, &err);
            }
        }
        if (check_failures() > 0) break;
    }
    free(copy);
    gw_free(&w);
}

static void test_random_damage(void) {
    gguf_writer w;
    pleat_error err;
    write_sample(&w);
    unsigned char *copy = malloc(w.n);
    for (uint64_t round = 0; round < check_rounds(20000, 2000) && check_failures() == 0; round++) {
        memcpy(copy, w.p, w.n);
        for (uint64_t n = check_between(1, 4); n > 0; n--) copy[check_below(w.n)] = (unsigned char)check_u64();
        (void)try_open(copy, check_below(4) ? w.n : check_below(w.n + 1), &err);
    }
    free(copy);
    gw_free(&w);
}

/* Finish the file, expect the status and that the message has the word, and free. */
static void refuse(gguf_writer *w, pleat_status want, const char *word) {
    pleat_error err;
    gw_data(w);
    check_context("a file with %s", word);
    CHECK_STATUS(try_open(w->p, w->n, &err), want);
    if (!CHECK(strstr(err.text, word) != NULL)) fprintf(stderr, "  message: %s\n", err.text);
    gw_free(w);
}

static void test_refused(void) {
    gguf_writer w;
    gw_header(&w, 1);
    refuse(&w, PLEAT_E_UNSUPPORTED, "version 1");
    gw_header(&w, 0x03000000);
    refuse(&w, PLEAT_E_UNSUPPORTED, "big-endian");
    gw_header(&w, 3);
    w.p[0] = 'g';
    refuse(&w, PLEAT_E_FORMAT, "not a GGUF");
    gw_header(&w, 3);
    gw_kv_u32(&w, "twice", 1);
    gw_kv_u32(&w, "other", 1);
    gw_kv_u32(&w, "twice", 2);
    refuse(&w, PLEAT_E_FORMAT, "'twice' stands twice");
    gw_header(&w, 3);
    gw_kv_u32(&w, "", 1);
    refuse(&w, PLEAT_E_FORMAT, "a name of 0 bytes");
    gw_header(&w, 3);
    gw_kv_u32(&w, "a\nb", 1);
    refuse(&w, PLEAT_E_FORMAT, "control character");
    gw_header(&w, 3);
    gw_kv_u32(&w, "a\xFF", 1);
    refuse(&w, PLEAT_E_FORMAT, "not UTF-8");
    gw_header(&w, 3);
    gw_kv_bool(&w, "b", 2);
    refuse(&w, PLEAT_E_FORMAT, "a boolean of 2");
    gw_header(&w, 3);
    gw_kv_array(&w, "nested", GW_ARRAY, 0);
    refuse(&w, PLEAT_E_UNSUPPORTED, "an array of arrays");
    gw_header(&w, 3);
    gw_kv_u32(&w, "general.alignment", 48);
    refuse(&w, PLEAT_E_FORMAT, "48 is no power of two");
    gw_header(&w, 3);
    gw_kv_str(&w, "general.alignment", "32");
    refuse(&w, PLEAT_E_FORMAT, "not of kind u32");
}

static void test_refused_tensors(void) {
    gguf_writer w;
    const uint64_t one[5] = {1, 1, 1, 1, 1};
    char name[80];
    memset(name, 'n', sizeof name);
    name[65] = '\0';
    gw_header(&w, 3);
    gw_tensor(&w, name, F32, 1, one, 4);
    refuse(&w, PLEAT_E_FORMAT, "a name of 65 bytes");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 5, one, 4);
    refuse(&w, PLEAT_E_FORMAT, "5 dimensions");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 0, one, 4);
    refuse(&w, PLEAT_E_FORMAT, "0 dimensions");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 2, (uint64_t[]){4, 0}, 4);
    refuse(&w, PLEAT_E_FORMAT, "dimension 1 is 0");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 2, (uint64_t[]){1ull << 33, 1ull << 33}, 4);
    refuse(&w, PLEAT_E_FORMAT, "64 bits");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 1, (uint64_t[]){1ull << 62}, 4);
    refuse(&w, PLEAT_E_FORMAT, "64 bits");
    gw_header(&w, 3);
    gw_tensor(&w, "t", Q8_0, 1, (uint64_t[]){33}, 68);
    refuse(&w, PLEAT_E_FORMAT, "blocks of 32");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 1, (uint64_t[]){9}, 4);
    refuse(&w, PLEAT_E_FORMAT, "pass the file's end");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 1, one, 4);
    gw_tensor(&w, "t", F32, 1, one, 4);
    refuse(&w, PLEAT_E_FORMAT, "'t' stands twice");
    gw_header(&w, 3);
    gw_tensor(&w, "t", F32, 1, (uint64_t[]){9}, 4); /* 36 bytes where 32 are left for it */
    gw_tensor(&w, "u", F32, 1, one, 4);
    refuse(&w, PLEAT_E_FORMAT, "'t' and 'u' share bytes");
    gw_header(&w, 3);
    w.data_bytes = 4;
    gw_tensor(&w, "t", F32, 1, one, 4);
    refuse(&w, PLEAT_E_FORMAT, "no multiple of 32");
}

/* A type of tomorrow opens, and says its number. */
static void test_unknown_type(void) {
    gguf_writer w;
    pleat_gguf *g = NULL;
    pleat_gguf_tensor t;
    gw_header(&w, 3);
    gw_tensor(&w, "t", 99, 1, (uint64_t[]){5}, 7);
    gw_data(&w);
    if (CHECK_STATUS(pleat_gguf_open_memory(w.p, w.n, NULL, &g, NULL), PLEAT_OK)) {
        CHECK_STATUS(pleat_gguf_get_tensor(g, 0, &t), PLEAT_OK);
        CHECK_EQ_STR(t.type_name, "type 99");
        CHECK_EQ_U64(t.n_bytes, 0);
    }
    pleat_gguf_close(&g);
    gw_free(&w);
}

/* ---- files on disk ---------------------------------------------------------------------------------- */

static void test_paths(void) {
    pleat_gguf *g = NULL;
    pleat_error err;
    char path[256];
    CHECK_STATUS(pleat_gguf_open("models/no-such-file.gguf", NULL, &g, &err), PLEAT_E_IO);
    CHECK_STATUS(pleat_gguf_open("models", NULL, &g, &err), PLEAT_E_IO);
    CHECK_STATUS(pleat_gguf_open("/dev/null", NULL, &g, &err), PLEAT_E_IO);
    CHECK_STATUS(pleat_gguf_open(NULL, NULL, &g, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_open("models", NULL, NULL, NULL), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_open_memory(NULL, 1, NULL, &g, &err), PLEAT_E_ARG);
    CHECK_STATUS(pleat_gguf_open_memory(NULL, 0, NULL, &g, &err), PLEAT_E_FORMAT);
    if (CHECK(check_write_temp("", 0, path, sizeof path))) {
        CHECK_STATUS(pleat_gguf_open(path, NULL, &g, &err), PLEAT_E_FORMAT);
        CHECK(strstr(err.text, "is empty") != NULL);
        unlink(path);
        CHECK(mkfifo(path, 0600) == 0);
        CHECK_STATUS(pleat_gguf_open(path, NULL, &g, &err), PLEAT_E_IO); /* at once, without a writer */
        unlink(path);
    }
    if (CHECK(check_write_temp("hello\n", 6, path, sizeof path))) { /* of less than a header: still no GGUF */
        CHECK_STATUS(pleat_gguf_open(path, NULL, &g, &err), PLEAT_E_FORMAT);
        CHECK(strstr(err.text, "not a GGUF file") != NULL);
        unlink(path);
    }
    pleat_gguf_close(&g);
    pleat_gguf_close(NULL);
    CHECK(g == NULL);
}

static void test_real_file(void) {
    pleat_gguf *g = NULL;
    pleat_gguf_info info;
    pleat_error err;
    uint64_t n = 0;
    if (access(model_path, R_OK) != 0) SKIP("no model file");
    if (!CHECK_STATUS(pleat_gguf_open(model_path, NULL, &g, &err), PLEAT_OK)) return;
    pleat_gguf_get_info(g, &info);
    CHECK_EQ_U64(info.n_tensors, 74); /* 9 in each of 8 layers, embeddings and the last norm */
    CHECK_EQ_U64(info.n_metadata, 24);
    CHECK_STATUS(pleat_gguf_get_u64(g, "llama.vocab_size", &n), PLEAT_OK);
    CHECK_EQ_U64(n, 8192);
    pleat_gguf_close(&g);
}

/* Its header, 272 KB, every 97 bytes, the rest every 4 KB. */
static void test_real_file_cut(void) {
    size_t n_bytes = 0;
    unsigned char *bytes = check_read_file(model_path, &n_bytes);
    if (!bytes) SKIP("no model file");
    const size_t step = (size_t)check_rounds(97, 4001);
    for (size_t n = 0; n < n_bytes; n += n < 272000 ? step : 4096) {
        pleat_gguf *g = NULL;
        pleat_error err = {0};
        check_context("cut to %zu bytes", n);
        if (!CHECK_STATUS(pleat_gguf_open_memory(bytes, n, NULL, &g, &err), PLEAT_E_FORMAT)) break;
        if (!CHECK(err.where <= n_bytes && err.text[0])) break;
    }
    free(bytes);
}

static void test_allocation_failures(void) {
    gguf_writer w;
    write_sample(&w);
    for (uint64_t nth = 1;; nth++) {
        check_alloc ca;
        pleat_gguf *g = NULL;
        pleat_error err;
        check_alloc_init(&ca, nth, 0);
        const pleat_status st = pleat_gguf_open_memory(w.p, w.n, &ca.a, &g, &err);
        if (st == PLEAT_OK) {
            CHECK(nth > 1);
            pleat_gguf_close(&g);
            CHECK_EQ_U64(ca.live, 0);
            break;
        }
        if (!CHECK_STATUS(st, PLEAT_E_MEMORY)) break;
        CHECK_EQ_U64(ca.live, 0);
    }
    gw_free(&w);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"sample", test_sample},
        {"cut_text", test_cut_text},
        {"no_tensors", test_no_tensors},
        {"cut_everywhere", test_cut_everywhere},
        {"extreme_fields", test_extreme_fields},
        {"random_damage", test_random_damage},
        {"refused", test_refused},
        {"refused_tensors", test_refused_tensors},
        {"unknown_type", test_unknown_type},
        {"paths", test_paths},
        {"real_file", test_real_file},
        {"real_file_cut", test_real_file_cut},
        {"allocation_failures", test_allocation_failures},
    };
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
