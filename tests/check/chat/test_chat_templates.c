/* SPDX-License-Identifier: MIT
 *
 * test_chat_templates.c: the chat templates of published models, with the conversations in conversations/, against
 * what transformers makes of them.
 *
 * rendered.txt has a line "TEMPLATE CONVERSATION HASH" for each pair, HASH being FNV-1a of the text or "raises"
 * (tests/long/chat_reference.py).  The templates are others' work and stand in build/real/templates, if at all.
 */
#include <stdio.h>

#include "chat_rig.h"

#define TEMPLATES "build/real/templates"

/* 16 hexadecimal digits. */
static void hash_text(const char *s, size_t n, char out[17]) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
    (void)snprintf(out, 17, "%016llx", (unsigned long long)h);
}

/* 0 where the template is not there. */
static int check_pair(const char *template, const char *conversation, const char *want, char *text) {
    char path[512], got[17] = "raises";
    size_t n_source = 0, n_json = 0, n = 0;
    pleat_error err = {0};
    (void)snprintf(path, sizeof path, TEMPLATES "/%s.jinja", template);
    char *source = (char *)check_read_file(path, &n_source);
    (void)snprintf(path, sizeof path, "tests/check/chat/conversations/%s.json", conversation);
    char *json = (char *)check_read_file(path, &n_json);
    CHECK(json);
    if (source && json && chat_render(source, n_source, json, text, &n, &err) == PLEAT_OK) hash_text(text, n, got);
    check_context("%s of %s: %s", template, conversation, err.text);
    if (source && json) CHECK_EQ_STR(got, want);
    free(source);
    free(json);
    return source != NULL;
}

static void test_templates(void) {
    char template[128], conversation[128], want[32];
    FILE *rendered = fopen("tests/check/chat/rendered.txt", "r");
    char *text = malloc(CHAT_CAP);
    int n_seen = 0, n_missing = 0;
    chat_use_utc();
    if (CHECK(rendered && text)) {
        while (fscanf(rendered, "%127s %127s %31s", template, conversation, want) == 3) {
            const int is_there = check_pair(template, conversation, want, text);
            n_seen += is_there;
            n_missing += !is_there;
        }
        CHECK(n_seen + n_missing > 800);
    }
    if (rendered) fclose(rendered);
    free(text);
    if (n_seen == 0) SKIP(TEMPLATES " is not there: tools/real_models.sh fetches it");
    CHECK_EQ_U64((uint64_t)n_missing, 0);
}

static const check_test tests[] = {{"templates", test_templates}};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
