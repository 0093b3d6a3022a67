/* SPDX-License-Identifier: MIT
 *
 * test_chat_ids.c: the token ids of conversations, written by a published model's own template, against the tokenizers
 * package's.
 *
 * chat_ids.txt has a line "CONVERSATION COUNT HASH" for each of tests/check/chat/conversations, HASH being FNV-1a of the
 * ids as 32-bit little-endian words, or "raises" (tests/long/chat_ids.py).  The model stands in build/real, if at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "pleat/pleat.h"

#define MODEL "build/real/SmolLM2-135M-Instruct.Q4_1.gguf"
enum { TEXT_CAP = 1 << 16, NOW = 1767323045 };

static void hash_ids(const pleat_token *ids, uint32_t n, char out[17]) {
    uint64_t h = 0xCBF29CE484222325u;
    for (uint32_t i = 0; i < n; i++)
        for (int shift = 0; shift < 32; shift += 8) h = (h ^ ((uint32_t)ids[i] >> shift & 255)) * 0x100000001B3u;
    (void)snprintf(out, 17, "%016llx", (unsigned long long)h);
}

static void check_conversation(const pleat_model *model, const char *name, uint32_t want_n, const char *want) {
    static char text[TEXT_CAP];
    static pleat_token ids[TEXT_CAP];
    char path[512], got[17] = "raises";
    size_t n_json = 0, n_text = 0;
    uint32_t n = 0;
    pleat_error err = {0};
    pleat_chat_options opt;
    pleat_chat_options_default(&opt);
    opt.now = NOW;
    (void)snprintf(path, sizeof path, "tests/check/chat/conversations/%s.json", name);
    char *json = (char *)check_read_file(path, &n_json);
    if (CHECK(json) &&
        pleat_model_chat_json(model, json, strlen(json), &opt, text, sizeof text, &n_text, &err) == PLEAT_OK) {
        CHECK_STATUS(pleat_model_tokenize(model, text, n_text, PLEAT_TOKENIZE_SPECIAL, ids, TEXT_CAP, &n, &err),
                     PLEAT_OK);
        hash_ids(ids, n, got);
    }
    check_context("%s: %s", name, err.text);
    CHECK_EQ_U64(n, want_n);
    CHECK_EQ_STR(got, want);
    free(json);
}

static void test_ids(void) {
    char name[128], want[32];
    unsigned n = 0;
    int n_seen = 0;
    pleat_model *model = NULL;
    pleat_error err = {0};
    FILE *f = fopen(MODEL, "rb"), *lines = fopen("tests/check/model/chat_ids.txt", "r");
    const int is_there = f != NULL;
    if (f) fclose(f);
    setenv("TZ", "UTC", 1);
    tzset();
    if (CHECK(lines) && is_there && CHECK_STATUS(pleat_model_load(MODEL, NULL, &model, &err), PLEAT_OK))
        for (; fscanf(lines, "%127s %u %31s", name, &n, want) == 3; n_seen++) check_conversation(model, name, n, want);
    pleat_model_destroy(&model);
    if (lines) fclose(lines);
    if (!is_there) SKIP("build/real is not there: tools/real_models.sh fetches it");
    CHECK(n_seen >= 12);
}

static const check_test tests[] = {{"ids", test_ids}};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
