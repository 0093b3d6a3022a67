/* SPDX-License-Identifier: MIT
 *
 * program.c: the teaching decoder as a program:
 *
 *     teach_decode CODEBOOKS PAYLOAD VALUES
 *
 * reads two files of bytes (docs/FORMAT.md, sections 9 and 2) and writes VALUES: the keys by token, then the values, as
 * 32-bit floats.  Exit status 1, and a line that says why, if it cannot.
 */
#include <stdio.h>

#include "decode.h"

#define MAX_FILE (1u << 20) /* bytes; a payload has fewer */
#define MAX_CODES (256u * 512u)

/* The file's bytes; SIZE_MAX: it cannot be read, or is larger than anything here. */
static size_t read_file(const char *path, uint8_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return SIZE_MAX;
    const size_t n = fread(bytes, 1, MAX_FILE, file);
    const int is_good = !ferror(file) && n < MAX_FILE;
    fclose(file);
    return is_good ? n : SIZE_MAX;
}

static const char *write_file(const char *path, const float *k, const float *v, size_t n) {
    FILE *file = fopen(path, "wb");
    if (!file) return "cannot be written";
    const int is_good = fwrite(k, sizeof *k, n, file) == n && fwrite(v, sizeof *v, n, file) == n;
    return fclose(file) == 0 && is_good ? NULL : "cannot be written";
}

static int wrong_with(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what);
    return 1;
}

int main(int argc, char **argv) {
    static uint8_t codebooks[MAX_FILE], payload[MAX_FILE];
    static float k[MAX_CODES], v[MAX_CODES];
    teach_format f;
    if (argc != 4) {
        fprintf(stderr, "usage: %s CODEBOOKS PAYLOAD VALUES\n", argv[0]);
        return 2;
    }
    const size_t n_codebooks = read_file(argv[1], codebooks), n_payload = read_file(argv[2], payload);
    if (n_codebooks == SIZE_MAX) return wrong_with(argv[1], "cannot be read");
    if (n_payload == SIZE_MAX) return wrong_with(argv[2], "cannot be read");
    const char *wrong = teach_codebooks(&f, codebooks, n_codebooks);
    if (wrong) return wrong_with(argv[1], wrong);
    wrong = teach_decode(&f, payload, n_payload, k, v);
    if (wrong) return wrong_with(argv[2], wrong);
    wrong = write_file(argv[3], k, v, (size_t)f.T * f.d);
    return wrong ? wrong_with(argv[3], wrong) : 0;
}
