/* SPDX-License-Identifier: MIT
 *
 * archs.c: see archs.h.
 *
 * Numbers as the config.json of the repository named has them, checked 2026-11 against litgpt/config.py of
 * github.com/Lightning-AI/litgpt, meta-llama's against models/sku_list.py and the model cards of
 * github.com/meta-llama/llama-models too, and gpt-oss and DeepSeek-V3 against published copies of theirs.
 * tests/cli/plan.sh compares the parameters that follow from each row with the published counts, and gpt-oss's bytes.
 *
 * Windows.  gemma2: every other layer, the first one too.  gemma3: five of six.  gpt-oss: every other.  phi-3-mini:
 * every layer, 2047 tokens.  mistral-7b is v0.3, which has none (v0.1 had 4096 tokens in every layer).
 */
#include "archs.h"

#include <string.h>

#include "cli/lib/common.h"

/* What every row has; WINDOW() and EXPERTS() stand behind where there are any. */
#define SIZES(layers, q, kv, dim, embd, ff, vocab, ctx, bits)                                          \
    .n_layers = layers, .n_q_heads = q, .n_kv_heads = kv, .head_dim = dim, .n_embd = embd, .n_ff = ff, \
    .n_vocab = vocab, .n_ctx = ctx, .traits = bits
#define WINDOW(tokens, layers) .window = tokens, .n_windowed = layers
#define EXPERTS(n, used) .n_experts = n, .n_experts_used = used

#define GEMMA (TRAIT_TIED | TRAIT_FOUR_NORMS)
#define GPT_OSS (TRAIT_QKV_BIAS | TRAIT_O_BIAS | TRAIT_MLP_BIAS | TRAIT_SINKS | TRAIT_MXFP4)

/* clang-format off */
static const arch archs[] = {
    /*    layers    q  kv  dim   embd     ff   vocab     ctx */
    {"llama3-8b", "meta-llama/Meta-Llama-3-8B", NULL,
     {SIZES(  32,  32,  8, 128,  4096, 14336, 128256,   8192, 0)}},
    {"llama3-70b", "meta-llama/Meta-Llama-3-70B", NULL,
     {SIZES(  80,  64,  8, 128,  8192, 28672, 128256,   8192, 0)}},
    {"llama3.1-8b", "meta-llama/Llama-3.1-8B", NULL,
     {SIZES(  32,  32,  8, 128,  4096, 14336, 128256, 131072, 0)}},
    {"llama3.1-70b", "meta-llama/Llama-3.1-70B", NULL,
     {SIZES(  80,  64,  8, 128,  8192, 28672, 128256, 131072, 0)}},
    {"llama3.1-405b", "meta-llama/Llama-3.1-405B", NULL,
     {SIZES( 126, 128,  8, 128, 16384, 53248, 128256, 131072, 0)}},
    {"llama3.2-1b", "meta-llama/Llama-3.2-1B", NULL,
     {SIZES(  16,  32,  8,  64,  2048,  8192, 128256, 131072, TRAIT_TIED)}},
    {"llama3.2-3b", "meta-llama/Llama-3.2-3B", NULL,
     {SIZES(  28,  24,  8, 128,  3072,  8192, 128256, 131072, TRAIT_TIED)}},
    {"smollm2-135m", "HuggingFaceTB/SmolLM2-135M", NULL,
     {SIZES(  30,   9,  3,  64,   576,  1536,  49152,   8192, TRAIT_TIED)}},
    {"mistral-7b", "mistralai/Mistral-7B-v0.3", NULL,
     {SIZES(  32,  32,  8, 128,  4096, 14336,  32768,  32768, 0)}},
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", NULL,
     {SIZES(  32,  32,  8, 128,  4096, 14336,  32000,  32768, 0), EXPERTS(8, 2)}},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B", NULL,
     {SIZES(  28,  28,  4, 128,  3584, 18944, 152064, 131072, TRAIT_QKV_BIAS)}},
    {"qwen2.5-32b", "Qwen/Qwen2.5-32B", NULL,
     {SIZES(  64,  40,  8, 128,  5120, 27648, 152064, 131072, TRAIT_QKV_BIAS)}},
    {"qwen2.5-72b", "Qwen/Qwen2.5-72B", NULL,
     {SIZES(  80,  64,  8, 128,  8192, 29568, 152064, 131072, TRAIT_QKV_BIAS)}},
    {"qwen3-4b", "Qwen/Qwen3-4B", NULL,
     {SIZES(  36,  32,  8, 128,  2560,  9728, 151936,  40960, TRAIT_QK_NORM | TRAIT_TIED)}},
    {"qwen3-8b", "Qwen/Qwen3-8B", NULL,
     {SIZES(  36,  32,  8, 128,  4096, 12288, 151936,  40960, TRAIT_QK_NORM)}},
    {"qwen3-32b", "Qwen/Qwen3-32B", NULL,
     {SIZES(  64,  64,  8, 128,  5120, 25600, 151936,  40960, TRAIT_QK_NORM)}},
    {"gemma2-9b", "google/gemma-2-9b", NULL,
     {SIZES(  42,  16,  8, 256,  3584, 14336, 256000,   8192, GEMMA), WINDOW(4096, 21)}},
    {"gemma2-27b", "google/gemma-2-27b", NULL,
     {SIZES(  46,  32, 16, 128,  4608, 36864, 256000,   8192, GEMMA), WINDOW(4096, 23)}},
    {"gemma3-27b", "google/gemma-3-27b-it, its text model", NULL,
     {SIZES(  62,  32, 16, 128,  5376, 21504, 262208, 131072, GEMMA | TRAIT_QK_NORM), WINDOW(1024, 52)}},
    {"phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", NULL,
     {SIZES(  32,  32, 32,  96,  3072,  8192,  32064,   4096, 0), WINDOW(2047, 32)}},
    {"phi-4", "microsoft/phi-4", NULL,
     {SIZES(  40,  40, 10, 128,  5120, 17920, 100352,  16384, 0)}},
    {"gpt-oss-20b", "openai/gpt-oss-20b", NULL,
     {SIZES(  24,  64,  8,  64,  2880,  2880, 201088, 131072, GPT_OSS), WINDOW(128, 12), EXPERTS(32, 4)}},
    {"gpt-oss-120b", "openai/gpt-oss-120b", NULL,
     {SIZES(  36,  64,  8,  64,  2880,  2880, 201088, 131072, GPT_OSS), WINDOW(128, 18), EXPERTS(128, 4)}},
    /* kv_lora_rank 512 + qk_rope_head_dim 64, 61 layers; sizes of what MLA has no use for are left out */
    {"deepseek-v3", "deepseek-ai/DeepSeek-V3",
     "keeps one latent of 576 numbers for each token and layer (MLA: 70272 bytes a token in 16 bits), and Pleat's "
     "pages hold keys and values of heads",
     {.n_layers = 61, .n_q_heads = 128, .n_embd = 7168, .n_vocab = 129280, .n_ctx = 163840, EXPERTS(256, 8)}},
};
/* clang-format on */
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

const char *const arch_names[] = {"llama3-8b",   "llama3-70b",  "llama3.1-8b",  "llama3.1-70b", "llama3.1-405b",
                                  "llama3.2-1b", "llama3.2-3b", "smollm2-135m", "mistral-7b",   "mixtral-8x7b",
                                  "qwen2.5-7b",  "qwen2.5-32b", "qwen2.5-72b",  "qwen3-4b",     "qwen3-8b",
                                  "qwen3-32b",   "gemma2-9b",   "gemma2-27b",   "gemma3-27b",   "phi-3-mini",
                                  "phi-4",       "gpt-oss-20b", "gpt-oss-120b", "deepseek-v3",  "list",
                                  NULL};
_Static_assert(sizeof arch_names / sizeof arch_names[0] == N_ARCHS + 2, "a name for each, list and the end");

const arch *archs_all(uint32_t *n) {
    *n = N_ARCHS;
    return archs;
}

const arch *archs_find(const char *name) {
    for (uint32_t i = 0; i < N_ARCHS; i++)
        if (!strcmp(archs[i].name, name)) return &archs[i];
    return NULL;
}

const char *archs_nearest(const char *name) {
    const char *names[N_ARCHS];
    for (uint32_t i = 0; i < N_ARCHS; i++) names[i] = archs[i].name;
    return names[cli_nearest(name, names, N_ARCHS)];
}
