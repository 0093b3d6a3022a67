/* SPDX-License-Identifier: MIT
 *
 * fuzz_http.c: any bytes as the head of an HTTP request, and what follows it as the body of a completion.
 *
 * A head that is taken ends with the first blank line, and its fields are within their bounds.  Whether it is taken does
 * not depend on what follows it.  A body that is taken as params has numbers that a serving takes and prompts that can be
 * walked; what is refused has a status and words.
 */
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "cli/serve/net/http.h"
#include "cli/serve/params.h"

static void expect_head(const char *bytes, size_t n, int n_head, const http_head *head) {
    http_head again;
    EXPECT((size_t)n_head <= n && n_head >= 4 && memcmp(bytes + n_head - 4, "\r\n\r\n", 4) == 0);
    EXPECT(!memchr(bytes, 0, (size_t)n_head));
    EXPECT(memchr(head->method, 0, sizeof head->method) && memchr(head->path, 0, sizeof head->path));
    EXPECT(memchr(head->key, 0, sizeof head->key) && head->path[0] == '/' && !strchr(head->path, '?'));
    EXPECT(head->content_length < 1000000000000000 && (head->minor == 0 || head->minor == 1));
    EXPECT(http_read_head(bytes, (size_t)n_head, &again) == n_head && memcmp(&again, head, sizeof again) == 0);
    for (int i = 0; i < n_head; i++) EXPECT(http_read_head(bytes, (size_t)i, &again) <= 0);
}

static void expect_prompts(const params *p) {
    refusal why = {0};
    const uint32_t n = params_count_prompts(p->prompt, &why);
    EXPECT(n >= 1 && n <= PARAMS_PROMPTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        pleat_token *ids = NULL;
        uint32_t n_ids = 0;
        json_t *prompt = params_prompt(p->prompt, i);
        if (json_is_string(prompt)) continue;
        if (params_ids(prompt, &ids, &n_ids, &why) == 0)
            EXPECT(n_ids > 0);
        else
            EXPECT(why.status == 400 && why.text[0]);
        for (uint32_t k = 0; k < n_ids; k++) EXPECT(ids[k] >= 0);
        free(ids);
    }
}

static void expect_params(const params *p) {
    const pleat_sampler_options *s = &p->sampling;
    EXPECT(p->n >= 1 && p->n <= PARAMS_CHOICES_MAX && p->n_top <= PLEAT_LOGPROBS_MAX && p->max_tokens >= -1);
    EXPECT(p->n_stops <= PLEAT_STOPS_MAX && p->n_stop_ids <= PARAMS_STOP_IDS_MAX && p->n_biases <= PARAMS_BIASES_MAX);
    EXPECT(s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    EXPECT(fabsf(p->frequency_penalty) <= 2 && fabsf(p->presence_penalty) <= 2 && p->repetition_penalty > 0);
    for (uint32_t i = 0; i < p->n_stops; i++) EXPECT(p->stops[i][0] && strlen(p->stops[i]) <= PLEAT_STOP_BYTES_MAX);
    for (uint32_t i = 0; i < p->n_biases; i++) EXPECT(fabsf(p->biases[i].bias) <= 100 && p->biases[i].token >= 0);
    if (!p->is_chat) expect_prompts(p);
    if (p->is_chat) EXPECT(json_array_size(p->messages) >= 1);
}

static void take_body(const char *body, size_t n, int is_chat) {
    static params p;
    refusal why = {0};
    json_t *object = json_loadb(body, n, JSON_REJECT_DUPLICATES, NULL);
    if (!object) return;
    if (params_read(object, is_chat, &p, &why) == 0)
        expect_params(&p);
    else
        EXPECT(why.status >= 400 && why.status < 600 && why.text[0] && memchr(why.field, 0, sizeof why.field));
    params_release(&p);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    static http_head head;
    const int n_head = http_read_head(bytes, size, &head);
    EXPECT(n_head > -600 && n_head <= HTTP_HEAD_MAX);
    if (n_head < 0) EXPECT(http_reason(-n_head)[0] && strcmp(http_reason(-n_head), "Error") != 0);
    if (n_head > 0) expect_head(bytes, size, n_head, &head);
    const size_t at = n_head > 0 ? (size_t)n_head : 0;
    take_body(bytes + at, size - at, 0);
    take_body(bytes + at, size - at, 1);
    return 0;
}
