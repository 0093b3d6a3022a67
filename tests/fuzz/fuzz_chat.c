/* SPDX-License-Identifier: MIT
 *
 * fuzz_chat.c: any bytes as a chat template, run with one context; or, up to a NUL byte, as a template and behind it as the
 * context's JSON.
 *
 * What compiles renders the same twice, in bounds that are small here, to UTF-8; what does not says why.
 */
#include "fuzz.h"

#include <string.h>

#include "core/utf8.h"
#include "pleat/chat.h"

static const char usual[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"H\\u00e9 "
    "\\ud83d\\ude00\"},"
    "{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"r\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,true]}}}]},{\"role\":\"tool\",\"content\":\"ok\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":"
    "\"array\"}}}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

static void expect_error(pleat_status status, const pleat_error *err) {
    EXPECT(status < 0 && err->code == status);
    EXPECT(err->text[0] && memchr(err->text, 0, sizeof err->text));
}

static void try_render(const pleat_chat_template *made, const char *json, size_t n_json) {
    static char first[1u << 17], second[1u << 17];
    pleat_chat_options opt;
    pleat_error err = {0, 0, ""};
    size_t n = 0, again = 0;
    pleat_chat_options_default(&opt);
    opt.max_steps = 200000;
    opt.max_memory_bytes = 4u << 20;
    opt.max_output_bytes = 1u << 16;
    opt.now = 0;
    const pleat_status status = pleat_chat_template_render(made, json, n_json, &opt, first, sizeof first, &n, &err);
    if (status != PLEAT_OK) {
        expect_error(status, &err);
        return;
    }
    EXPECT(n <= opt.max_output_bytes && pleat__utf8_prefix(first, n) == n);
    EXPECT(pleat_chat_template_render(made, json, n_json, &opt, second, sizeof second, &again, &err) == PLEAT_OK);
    EXPECT(n == again && memcmp(first, second, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *nul = size > 0 ? memchr(text, 0, size) : NULL;
    const size_t n_template = nul ? (size_t)(nul - text) : size;
    pleat_chat_template *made = NULL;
    pleat_error err = {0, 0, ""};
    const pleat_status status = pleat_chat_template_compile(text, n_template, NULL, &made, &err);
    if (status != PLEAT_OK) {
        expect_error(status, &err);
        EXPECT(made == NULL);
        return 0;
    }
    try_render(made, usual, sizeof usual - 1);
    if (nul) try_render(made, nul + 1, size - n_template - 1);
    pleat_chat_template_destroy(&made);
    return 0;
}
