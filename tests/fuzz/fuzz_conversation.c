/* SPDX-License-Identifier: MIT
 *
 * fuzz_conversation.c: any bytes as the file of a conversation.
 *
 * What is taken has a system message first or nowhere and valid UTF-8 in every message, and is the same when it is written
 * and read again; what is not says why and leaves nothing.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cli/lib/utf8.h"
#include "cli/run/chat/conversation.h"

static void expect_same(const conversation *a, const conversation *b) {
    EXPECT(a->n == b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        EXPECT(a->messages[i].role == b->messages[i].role);
        EXPECT(strcmp(a->messages[i].content, b->messages[i].content) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    conversation c = {0}, again = {0};
    char why[CONVERSATION_WHY_CAP] = "";
    if (!conversation_parse(&c, (const char *)data, size, why)) {
        EXPECT(why[0] && memchr(why, 0, sizeof why));
        EXPECT(c.n == 0);
        return 0;
    }
    for (uint32_t i = 0; i < c.n; i++) {
        const size_t n = strlen(c.messages[i].content);
        EXPECT(utf8_first_invalid(c.messages[i].content, n) == n);
        EXPECT(i == 0 || strcmp(c.messages[i].role, "system") != 0);
    }
    json_t *root = conversation_json(&c);
    char *text = json_dumps(root, 0);
    EXPECT(text && conversation_parse(&again, text, strlen(text), why));
    expect_same(&c, &again);
    free(text);
    json_decref(root);
    while (conversation_undo(&c)) {}
    conversation_clear(&c);
    EXPECT(c.n <= 1);
    conversation_release(&c);
    conversation_release(&again);
    return 0;
}
