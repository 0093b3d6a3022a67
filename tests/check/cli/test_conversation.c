/* SPDX-License-Identifier: MIT
 *
 * test_conversation.c: what was said and how it is written to files and read; and which tokens the cache keeps on the way
 * from turn to turn, against a slow search through all that it could go back to.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/run/chat/conversation.h"
#include "cli/run/chat/held.h"

static void add(conversation *c, const char *role, const char *text) { conversation_add(c, role, text, strlen(text)); }

/* ---- what was said ----------------------------------------------------------------------------- */

static void test_turns(void) {
    conversation c = {0};
    CHECK(!conversation_undo(&c));
    CHECK(!conversation_is_asked(&c));
    add(&c, "user", "one");
    CHECK(conversation_is_asked(&c));
    add(&c, "assistant", "1");
    CHECK(!conversation_is_asked(&c));
    add(&c, "user", "two");
    CHECK_EQ_U64(conversation_turns(&c), 2);
    CHECK(conversation_undo(&c)); /* without an answer */
    CHECK_EQ_U64(c.n, 2);
    CHECK(conversation_undo(&c)); /* with one */
    CHECK_EQ_U64(c.n, 0);
    conversation_release(&c);
}

static void test_system(void) {
    conversation c = {0};
    CHECK(conversation_system(&c) == NULL);
    conversation_set_system(&c, NULL);
    for (int i = 0; i < 40; i++) add(&c, i % 2 ? "assistant" : "user", "text"); /* beyond the first room */
    conversation_set_system(&c, "be brief");
    CHECK_EQ_U64(c.n, 41);
    CHECK_EQ_STR(c.messages[0].role, "system");
    CHECK_EQ_STR(c.messages[1].role, "user");
    conversation_set_system(&c, conversation_system(&c)); /* by itself */
    CHECK_EQ_STR(conversation_system(&c), "be brief");
    conversation_set_system(&c, "be long");
    CHECK_EQ_U64(c.n, 41);
    conversation_clear(&c);
    CHECK_EQ_U64(c.n, 1);
    CHECK_EQ_STR(conversation_system(&c), "be long");
    CHECK(!conversation_undo(&c));
    conversation_set_system(&c, NULL);
    CHECK_EQ_U64(c.n, 0);
    conversation_release(&c);
}

/* ---- files ------------------------------------------------------------------------------------- */

static int parses(conversation *c, const char *text, char why[CONVERSATION_WHY_CAP]) {
    return conversation_parse(c, text, strlen(text), why);
}

static void test_round_trip(void) {
    static const char *const texts[] = {"", "plain", "a \"quote\", a \\ and\na line", "日本語 é \x01",
                                        "</s><|im_end|>"};
    conversation c = {0}, again = {0};
    char why[CONVERSATION_WHY_CAP];
    conversation_set_system(&c, "sys");
    for (size_t i = 0; i < CHECK_COUNT(texts); i++) add(&c, i % 2 ? "assistant" : "user", texts[i]);
    json_t *root = conversation_json(&c);
    char *text = json_dumps(root, 0);
    if (CHECK(text != NULL) && CHECK(parses(&again, text, why))) {
        CHECK_EQ_U64(again.n, c.n);
        for (uint32_t i = 0; i < c.n && i < again.n; i++) {
            CHECK_EQ_STR(again.messages[i].role, c.messages[i].role);
            CHECK_EQ_STR(again.messages[i].content, c.messages[i].content);
        }
    }
    free(text);
    json_decref(root);
    conversation_release(&c);
    conversation_release(&again);
}

static void test_bad_files(void) {
    static const struct {
        const char *text, *why;
    } files[] = {
        {"", "no JSON"},
        {"{\"messages\": [}", "no JSON: line 1"},
        {"{}", "no array \"messages\""},
        {"3", "no JSON"},
        {"[3]", "message 1: its role"},
        {"[{\"role\": \"tool\", \"content\": \"x\"}]", "message 1: its role is none of"},
        {"[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"user\"}]", "message 2: its content is no text"},
        {"[{\"role\": \"user\", \"content\": [\"x\"]}]", "message 1: its content is no text"},
        {"[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": \"x\"}]",
         "message 2: a system"},
        {"[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]", "no JSON"},
        {"[{\"role\": \"user\", \"content\": \"\xff\"}]", "no JSON"},
    };
    for (size_t i = 0; i < CHECK_COUNT(files); i++) {
        conversation c = {0};
        char why[CONVERSATION_WHY_CAP] = "";
        CHECK(!parses(&c, files[i].text, why));
        if (!CHECK(strstr(why, files[i].why) != NULL)) CHECK_EQ_STR(why, files[i].why);
        CHECK_EQ_U64(c.n, 0);
        conversation_release(&c);
    }
}

/* ---- what the cache keeps ---------------------------------------------------------------------- */

static void test_text(void) {
    const pleat_token ids[] = {1, 2, 3};
    held_tokens h = {0};
    CHECK(held_spell(&h, "abc", 3) == SIZE_MAX); /* nothing is held */
    held_cut(&h, 0);
    held_add(&h, ids, 2);
    CHECK(held_spell(&h, "abc", 3) == SIZE_MAX); /* not known */
    held_set_text(&h, "ab", 2);
    CHECK_EQ_U64(held_spell(&h, "abc", 3), 2);
    held_add(&h, ids + 2, 1);
    for (int i = 0; i < 100; i++) held_add_text(&h, "c", 1);
    CHECK(held_spell(&h, "abc", 3) == SIZE_MAX); /* longer than the text */
    char text[110];
    memset(text, 'c', sizeof text);
    memcpy(text, "ab", 2);
    CHECK_EQ_U64(held_spell(&h, text, sizeof text), 102);
    text[50] = 'x';
    CHECK(held_spell(&h, text, sizeof text) == SIZE_MAX);
    held_cut(&h, 3); /* more is going to be read */
    text[50] = 'c';
    CHECK(held_spell(&h, text, sizeof text) == SIZE_MAX);
    held_release(&h);
}

/* Of all lengths that the cache can be brought to, the greatest that leaves something to read. */
static uint32_t slow_keep(const held_tokens *h, const pleat_token *ids, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 0; i <= h->n_marks; i++) {
        const uint32_t at = i < h->n_marks ? h->marks[i] : h->n;
        if (at < n && at > best && memcmp(h->ids, ids, at * sizeof *ids) == 0) best = at;
    }
    return best;
}

/* Turns of random tokens that repeat most of what is held, on a cache that is only counted. */
static void test_plan(void) {
    held_tokens h = {0};
    uint32_t n_on = 0, n_back = 0;
    for (uint64_t round = 0; round < check_rounds(20000, 2000); round++) {
        pleat_token ids[64];
        const uint32_t n = 1 + (uint32_t)check_below(40);
        const uint32_t n_same = check_below(3) ? h.n : (uint32_t)check_below(h.n + 1);
        for (uint32_t i = 0; i < n; i++) ids[i] = i < n_same && i < h.n ? h.ids[i] : (pleat_token)check_below(3);
        const held_way way = held_plan(&h, ids, n);
        CHECK_EQ_U64(way.n_keep, slow_keep(&h, ids, n));
        CHECK(way.n_keep <= way.n_same && way.n_same < n);
        CHECK_EQ_U64(way.is_back, way.n_keep != h.n || way.n_same < h.n);
        n_on += !way.is_back;
        n_back += way.is_back;
        held_cut(&h, way.n_keep);
        CHECK_EQ_U64(h.n, way.n_keep);
        CHECK(h.n_marks == 0 || h.marks[h.n_marks - 1] <= h.n);
        if (h.n_marks == HELD_MARKS) held_drop_mark(&h);
        if (h.n && (h.n_marks == 0 || h.marks[h.n_marks - 1] < h.n)) held_mark(&h);
        held_add(&h, ids + h.n, n - h.n);
        CHECK_EQ_MEM(h.ids, ids, n * sizeof *ids);
        if (check_below(10) == 0) held_release(&h); /* the conversation is cleared */
    }
    CHECK(n_on > 0 && n_back > 0);
    held_release(&h);
}

static const check_test tests[] = {
    {"turns", test_turns},         {"system", test_system}, {"round_trip", test_round_trip},
    {"bad_files", test_bad_files}, {"text", test_text},     {"plan", test_plan},
};
int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
