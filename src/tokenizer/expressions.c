/* SPDX-License-Identifier: MIT
 *
 * expressions.c: see expressions.h.
 *
 * The expressions are those of the models' tokenizer.json, with two changes that alter no word.  White space is written
 * as Unicode's property White_Space, since PCRE2's \s also has U+180E.  And where an expression is tried at each place
 * of a long run, it looks behind first, so that a run costs no square of its length.
 *
 * Names are tokenizer.ggml.pre's, as llama.cpp's converter writes them.  Rows that several models share are those whose
 * expressions and traits are the same.
 */
#include "tokenizer/expressions.h"

#define SPACE "\\t-\\r\\x{85}\\p{Z}" /* in brackets: White_Space */
#define BEFORE_SPACE "(?![^" SPACE "])"

/* GPT-2's words.  A single space before what is no space is left between two matches, and so a word. */
#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+" BEFORE_SPACE

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "[" SPACE "]*[\\r\\n]+|[" SPACE "]+" BEFORE_SPACE "|[" SPACE "]+"

/* Llama 3's and Qwen's: contractions of any case, a sign before a word belongs to it, line ends to what they follow. */
#define MODERN_WORDS(digits) \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES

/* GPT-4o's and Mistral's: a word is capitals and then others, with its contraction if there is one. */
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(ending, digits)                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "*" SMALL "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "+" SMALL "*" ending \
    "|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

/* Letters with a case, as DeepSeek LLM lists them. */
#define CASED_LETTERS                                                                                              \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"                \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}" \
    "\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"     \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}"              \
    "\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"              \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}"      \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"     \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"      \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"                \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"      \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"               \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"              \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"        \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

const pleat__expressions pleat__expressions_table[] = {
    {"gpt-2 phi-2 mpt olmo jais exaone4 gigachat a.x-4.0 mellum trillion granite-docling ", {0}, {GPT2_WORDS}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b ", {0}, {"\\p{N}", GPT2_WORDS}},
    {"qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez solar-open grok-2 ", {0}, {MODERN_WORDS("\\p{N}")}},
    {"qwen35 ",
     {0},
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
     {.add_bos = true, .ignore_merges = true},
     {MODERN_WORDS("\\p{N}{1,3}")}},
    {"dbrx smaug-bpe chatglm-bpe ", {0}, {MODERN_WORDS("\\p{N}{1,3}")}},
    {"glm4 ", {.ignore_merges = true}, {MODERN_WORDS("\\p{N}{1,3}")}},
    {"gpt-4o llama4 kanana2 minimax-m2 ", {0}, {CASED_WORDS(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"tekken ", {.add_bos = true, .ignore_merges = true}, {CASED_WORDS("", "\\p{N}")}},
    {"falcon ", {0}, {"[\\p{P}$+<=>^~|`]+", GPT2_WORDS, "[0-9][0-9][0-9]"}},
    {"deepseek-llm ",
     {0},
     {"[\\r\\n]", "[" SPACE "]?[" CASED_LETTERS "]+",
      "[" SPACE "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
      "(?<![" SPACE "])[" SPACE "]++$", DEEPSEEK_CJK, "\\p{N}+"}},
    {"deepseek-coder ", {0}, {"[\\r\\n]", "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm ",
     {0},
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
      "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES}},
    {"seed-coder ",
     {0},
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"gemma4 ", {.add_bos = true, .no_newline_merge = true}, {"[^\\n]+|\\n+"}},
};
const uint32_t pleat__n_expressions = sizeof pleat__expressions_table / sizeof pleat__expressions_table[0];
