/* SPDX-License-Identifier: MIT
 *
 * replay.c: a main() for a fuzz target without libFuzzer: runs it over every file of a folder, in the order of
 * their names, and over every beginning of the small ones, since a cut file is the commonest damage.
 * Each input lies in memory of exactly its size, so that ASan sees a read beyond.
 *
 *     replay_NAME FOLDER         replay_NAME FILE
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

#define CUT_BELOW 2048u /* files smaller than this are tried at every length */

static void run(const uint8_t *bytes, size_t n) {
    uint8_t *exact = malloc(n ? n : 1);
    EXPECT(exact);
    memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

/* 1 if the file could be read and tried. */
static int replay_file(const char *path) {
    static uint8_t bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t n = fread(bytes, 1, sizeof bytes, f);
    int ok = !ferror(f) && n < sizeof bytes;
    fclose(f);
    if (!ok) return 0;
    printf("%s\n", path); /* first, so that a crash has a name in front of it */
    fflush(stdout);
    run(bytes, n);
    for (size_t cut = 0; n < CUT_BELOW && cut < n; cut++) run(bytes, cut);
    return 1;
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE\n", argv[0]);
        return 2;
    }
    struct dirent **entries;
    unsigned passed = 0, failed = 0;
    int n = scandir(argv[1], &entries, is_visible, alphasort);
    if (n < 0) {
        passed += replay_file(argv[1]) == 1;
        failed += passed == 0;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        free(entries[i]);
        if (replay_file(path)) {
            passed++;
        } else {
            printf("FAIL %s: cannot be read\n", path);
            failed++;
        }
    }
    if (n >= 0) free(entries);
    if (passed + failed == 0) {
        printf("FAIL %s: no files\n", argv[1]);
        failed = 1;
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed ? 1 : 0;
}
