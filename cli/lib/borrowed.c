/* SPDX-License-Identifier: MIT
 *
 * borrowed.c: see borrowed.h.
 *
 * Options are those of llama.cpp, vLLM and Hugging Face's transformers; specs are their cache types, and methods that
 * papers name.
 */
#include "borrowed.h"

#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct borrowed_name {
    const char *name, *here;
} borrowed_name;

static const borrowed_name options[] = {
    {"temperature", "temp"},
    {"max-tokens", "n-predict"},
    {"max-new-tokens", "n-predict"},
    {"max-output-tokens", "n-predict"},
    {"predict", "n-predict"},
    {"model-path", "model"},
    {"prompt-file", "file"},
    {"max-model-len", "ctx-size"},
    {"max-seq-len", "ctx-size"},
    {"context-length", "ctx-size"},
    {"n-ctx", "ctx-size"},
    {"num-beams", "beams"},
    {"beam-width", "beams"},
    {"num-return-sequences", "n-best"},
    {"best-of", "n-best"},
    {"n-threads", "threads"},
    {"num-threads", "threads"},
    {"kv-cache-dtype", "kv"},
    {"kv-cache", "kv"},
    {"cache-type", "kv"},
    {"cache-dtype", "kv"},
    {"kv-spec", "kv"},
    {"max-num-seqs", "max-running"},
    {"max-num-batched-tokens", "batch-size"},
    {"output-file", "output"},
    {"output-format", "format"},
    {"json", "format json"},
    {"csv", "format csv"},
};

#define EIGHT_BITS "k8v8 has 8 bits for keys and values"
#define FOUR_BITS "k4v4 has 4 bits for keys and values"
#define TWO_BITS "k2v2 has 2 bits for keys and values, kivi:bits=2 too"
#define HALF "f16 is the uncompressed cache"
#define TURBOQUANT "its names here are tq4 and tq3; h4v4 to h2v2 have any of 4, 3 and 2 bits"
#define NEAREST_METHOD "it is not built in; kivi:bits=4, kvcomp and k4v4 are near to it"

static const borrowed_name specs[] = {
    {"q8_0", EIGHT_BITS},
    {"q8", EIGHT_BITS},
    {"int8", EIGHT_BITS},
    {"8bit", EIGHT_BITS},
    {"fp8", EIGHT_BITS ", whole numbers with a scale"},
    {"fp8_e4m3", EIGHT_BITS ", whole numbers with a scale"},
    {"fp8_e5m2", EIGHT_BITS ", whole numbers with a scale"},
    {"q4_0", FOUR_BITS},
    {"q4_1", FOUR_BITS},
    {"iq4_nl", FOUR_BITS},
    {"q4", FOUR_BITS},
    {"int4", FOUR_BITS},
    {"4bit", FOUR_BITS},
    {"fp4", FOUR_BITS ", whole numbers with a scale"},
    {"nvfp4", FOUR_BITS ", whole numbers with a scale"},
    {"mxfp4", FOUR_BITS ", whole numbers with a scale"},
    {"q5_0", "formats have 8, 4, 3 or 2 bits: k8v8, k8v4, k4v4, h3v3"},
    {"q5_1", "formats have 8, 4, 3 or 2 bits: k8v8, k8v4, k4v4, h3v3"},
    {"int3", "h3v3 has 3 bits for keys and values"},
    {"int2", TWO_BITS},
    {"q2", TWO_BITS},
    {"2bit", TWO_BITS},
    {"fp16", HALF},
    {"float16", HALF},
    {"half", HALF},
    {"bf16", HALF},
    {"bfloat16", HALF},
    {"none", HALF},
    {"off", HALF},
    {"default", "k8v4 is the default, f16 the uncompressed cache"},
    {"fp32", "f32 is what computes without rounding"},
    {"float32", "f32 is what computes without rounding"},
    {"turboquant", TURBOQUANT},
    {"turbo4", TURBOQUANT},
    {"turbo3", TURBOQUANT},
    {"tbq4_0", TURBOQUANT},
    {"tbq3_0", TURBOQUANT},
    {"tq3_0", TURBOQUANT},
    {"turboquant_4bit_nc", TURBOQUANT},
    {"turboquant_3bit_nc", TURBOQUANT},
    {"kvquant", NEAREST_METHOD},
    {"quarot", NEAREST_METHOD},
    {"gear", NEAREST_METHOD},
    {"hqq", NEAREST_METHOD},
    {"streamingllm", "its name here is streaming, as in streaming:budget=512"},
    {"sliding", "recent and streaming keep the newest tokens, as in streaming:budget=512"},
    {"window", "recent and streaming keep the newest tokens, as in streaming:budget=512"},
    {"quest", "it is not built in; snapkv and topk select tokens by attention, too"},
    {"keydiff", "novel is of its kind, on keys before RoPE"},
    {"compactor", "leverage is the half of it that looks at keys"},
    {"expectedattention", "its name here is expected"},
    {"expected_attention", "its name here is expected"},
    {"pyramid", "its name here is pyramidkv"},
    {"adasnapkv", "its name here is adakv"},
    {"ada-snapkv", "its name here is adakv"},
};

static const borrowed_name values[] = {
    {"gpu", "cuda"},       {"nvidia", "cuda"},   {"host", "cpu"},       {"markdown", "md"},
    {"table", "terminal"}, {"text", "terminal"}, {"plain", "terminal"},
};

static int lower(char c) { return c == '_' ? '-' : tolower((unsigned char)c); }

/* Whether the first n bytes of text are the name. */
static int is_name(const char *name, const char *text, size_t n) {
    if (strlen(name) != n) return 0;
    for (size_t i = 0; i < n; i++)
        if (lower(name[i]) != lower(text[i])) return 0;
    return 1;
}

static const char *find(const borrowed_name *list, size_t n_list, const char *text, size_t n) {
    for (size_t i = 0; i < n_list; i++)
        if (is_name(list[i].name, text, n)) return list[i].here;
    return NULL;
}

const char *borrowed_option(const char *name) {
    return find(options, sizeof options / sizeof options[0], name, strlen(name));
}

const char *borrowed_spec(const char *text) {
    return find(specs, sizeof specs / sizeof specs[0], text, strcspn(text, ":,+"));
}

const char *borrowed_word(const char *text, const char *const *words) {
    const char *here = find(values, sizeof values / sizeof values[0], text, strlen(text));
    for (uint32_t i = 0; here && words[i]; i++)
        if (!strcmp(words[i], here)) return here;
    return NULL;
}
