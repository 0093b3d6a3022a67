/* SPDX-License-Identifier: MIT
 *
 * codebook.c: counting codes, lengths of words, canonical words and the decoder's table.  See codebook.h.
 */
#include <math.h>
#include <string.h>

#include "entropy/codebook.h"

#define TABLE (1u << PLEAT__CODEBOOK_WIDE_BITS)
/* Items of one list of package-merge: every symbol and a package of any two items of the list below. */
#define MAX_ITEMS (2 * PLEAT__CODEBOOK_SYMBOLS)

/* ---- alphabets -------------------------------------------------------------------------------------- */

static uint32_t kind_levels(pleat__codebook_kind kind) {
    return kind == PLEAT__CODEBOOK_PAIRS    ? PLEAT__CODEBOOK_PAIR_LEVELS_MAX
           : kind == PLEAT__CODEBOOK_NARROW ? PLEAT__CODEBOOK_NARROW_LEVELS
                                            : PLEAT__CODEBOOK_LEVELS;
}

static uint32_t kind_bits(pleat__codebook_kind kind) {
    return kind == PLEAT__CODEBOOK_PAIRS    ? PLEAT__CODEBOOK_PAIR_BITS_MAX
           : kind == PLEAT__CODEBOOK_NARROW ? PLEAT__CODEBOOK_NARROW_BITS
                                            : PLEAT__CODEBOOK_WIDE_BITS;
}

static uint32_t alphabet_size(pleat__codebook_kind kind, uint32_t n_levels) {
    return kind == PLEAT__CODEBOOK_PAIRS ? n_levels * n_levels : n_levels;
}

/* The i-th symbol of an alphabet, ascending. */
static uint32_t symbol_at(pleat__codebook_kind kind, uint32_t n_levels, uint32_t i) {
    return kind == PLEAT__CODEBOOK_PAIRS ? i % n_levels | i / n_levels << 4 : i;
}

static uint64_t count_of(const pleat__code_counts *counts, pleat__codebook_kind kind, uint32_t symbol) {
    return kind == PLEAT__CODEBOOK_PAIRS ? counts->pair[(symbol >> 4) * PLEAT__CODEBOOK_PAIR_LEVELS + (symbol & 15)]
                                         : counts->single[symbol];
}

/* ---- counting --------------------------------------------------------------------------------------- */

/* Four tables each, as a count that was just written is slow to read again. */

static void add_pairs(pleat__code_counts *counts, const uint8_t *codes, uint32_t n_vectors) {
    uint64_t n[4][PLEAT__CODEBOOK_PAIR_LEVELS * PLEAT__CODEBOOK_PAIR_LEVELS] = {0};
    for (uint32_t v = 0; v + 1 < n_vectors; v += 2, codes += 128) {
        for (uint32_t i = 0; i < 64; i++) n[i % 4][(codes[i] | codes[64 + i] << 3) & 63]++;
    }
    for (uint32_t i = 0; i < PLEAT__CODEBOOK_PAIR_LEVELS * PLEAT__CODEBOOK_PAIR_LEVELS; i++) {
        const uint64_t sum = n[0][i] + n[1][i] + n[2][i] + n[3][i];
        counts->pair[i] += sum;
        counts->single[i % PLEAT__CODEBOOK_PAIR_LEVELS] += sum;
        counts->single[i / PLEAT__CODEBOOK_PAIR_LEVELS] += sum;
    }
}

static void add_singles(pleat__code_counts *counts, const uint8_t *codes, uint32_t n_vectors) {
    uint64_t n[4][PLEAT__CODEBOOK_LEVELS] = {0};
    for (uint32_t v = 0; v < n_vectors; v++, codes += 64) {
        for (uint32_t i = 0; i < 64; i++) n[i % 4][codes[i]]++;
    }
    for (uint32_t i = 0; i < PLEAT__CODEBOOK_LEVELS; i++) counts->single[i] += n[0][i] + n[1][i] + n[2][i] + n[3][i];
}

void pleat__code_counts_add(pleat__code_counts *counts, const uint8_t *codes, uint32_t n_vectors, uint32_t n_levels) {
    if (n_levels <= PLEAT__CODEBOOK_PAIR_LEVELS) {
        add_pairs(counts, codes, n_vectors);
    } else {
        add_singles(counts, codes, n_vectors);
    }
}

double pleat__code_entropy(const pleat__code_counts *counts, uint32_t n_levels) {
    double total = 0, bits = 0;
    for (uint32_t i = 0; i < n_levels; i++) total += (double)counts->single[i];
    for (uint32_t i = 0; i < n_levels; i++) {
        const double n = (double)counts->single[i];
        if (n > 0) bits += n / total * log2(total / n);
    }
    return bits;
}

/* ---- lengths ---------------------------------------------------------------------------------------- */

/* Symbols by ascending weight; of equals the higher symbol first, as it gets the longer word. */
static void sort_by_weight(const uint64_t *weights, uint32_t n, uint16_t *order) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && weights[order[at - 1]] >= weights[i]; at--) order[at] = order[at - 1];
        order[at] = (uint16_t)i;
    }
}

/* Merge the sorted symbols with the packages of `below`, pairs of neighbours, into `list`; is_symbol says which an item
 * is.  Returns the length of the list. */
static uint32_t merge(const uint64_t *weights, const uint16_t *order, uint32_t n, const uint64_t *below,
                      uint32_t n_below, uint64_t *list, bool *is_symbol) {
    const uint32_t n_packages = n_below / 2, n_items = n + n_packages;
    uint32_t symbol = 0, package = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        const uint64_t packed = package < n_packages ? below[2 * package] + below[2 * package + 1] : UINT64_MAX;
        is_symbol[i] = symbol < n && weights[order[symbol]] <= packed;
        list[i] = is_symbol[i] ? weights[order[symbol++]] : packed;
        package += !is_symbol[i];
    }
    return n_items;
}

/* A word is as long as there are levels whose chosen items hold its symbol.  Chosen are the 2n - 2 lightest of the top
 * list and, of each list below, the pairs that chosen packages are of: always its lightest. */
void pleat__codebook_lengths(const uint64_t *weights, uint32_t n, uint32_t max_bits, uint8_t *bits) {
    uint16_t order[PLEAT__CODEBOOK_SYMBOLS];
    uint64_t lists[2][MAX_ITEMS];
    bool is_symbol[PLEAT__CODEBOOK_WIDE_BITS][MAX_ITEMS];
    if (n == 1) {
        bits[0] = 1;
        return;
    }
    sort_by_weight(weights, n, order);
    uint32_t n_items = 0;
    for (uint32_t level = 0; level < max_bits; level++) {
        n_items = merge(weights, order, n, lists[(level + 1) % 2], n_items, lists[level % 2], is_symbol[level]);
    }
    memset(bits, 0, n);
    uint32_t n_chosen = 2 * n - 2;
    for (uint32_t level = max_bits; level-- > 0;) {
        uint32_t n_symbols = 0;
        for (uint32_t i = 0; i < n_chosen; i++) n_symbols += is_symbol[level][i];
        for (uint32_t i = 0; i < n_symbols; i++) bits[order[i]]++;
        n_chosen = 2 * (n_chosen - n_symbols);
    }
}

/* ---- words ------------------------------------------------------------------------------------------ */

static uint32_t count_words(const uint8_t *bits) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < PLEAT__CODEBOOK_SYMBOLS; i++) n += bits[i] != 0;
    return n;
}

/* Lengths fill the code space exactly (Kraft), and symbols outside the alphabet have none.  All others have one, but
 * for pairs. */
static bool is_complete(pleat__codebook_kind kind, uint32_t n_levels, const uint8_t *bits) {
    const uint32_t n = alphabet_size(kind, n_levels), longest = kind_bits(kind);
    uint32_t sum = 0, n_words = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t length = bits[symbol_at(kind, n_levels, i)];
        if (length > longest) return false;
        if (length == 0) continue;
        sum += TABLE >> length;
        n_words++;
    }
    if (n_words != count_words(bits) || (n_words != n && kind != PLEAT__CODEBOOK_PAIRS)) return false;
    return sum == (n == 1 ? TABLE / 2 : TABLE);
}

bool pleat__codebook_is_plain(const pleat__codebook *codebook) {
    if (codebook->kind != PLEAT__CODEBOOK_PAIRS) return true;
    return codebook->n_levels <= PLEAT__CODEBOOK_PAIR_LEVELS && codebook->max_bits <= PLEAT__CODEBOOK_PAIR_BITS &&
           count_words(codebook->bits) == alphabet_size(PLEAT__CODEBOOK_PAIRS, codebook->n_levels);
}

static uint32_t reversed(uint32_t word, uint32_t n_bits) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < n_bits; i++) out |= (word >> i & 1) << (n_bits - 1 - i);
    return out;
}

/* Words and the decoder's table, from the lengths of a complete code. */
static void assign_words(pleat__codebook *codebook) {
    uint32_t next = 0;
    for (uint32_t length = 1; length <= PLEAT__CODEBOOK_WIDE_BITS; length++, next <<= 1) {
        for (uint32_t symbol = 0; symbol < PLEAT__CODEBOOK_SYMBOLS; symbol++) {
            if (codebook->bits[symbol] != length) continue;
            codebook->max_bits = (uint8_t)length;
            codebook->words[symbol] = (uint16_t)reversed(next++, length);
            for (uint32_t i = codebook->words[symbol]; i < TABLE; i += 1u << length) {
                codebook->symbol[i] = (uint8_t)symbol;
                codebook->symbol_bits[i] = (uint8_t)length;
            }
        }
    }
}

/* How many ones all words longer than this begin with; max_bits if there are none. */
static uint32_t ones_of_longer(const pleat__codebook *codebook, uint32_t n_bits) {
    uint32_t common = (1u << codebook->max_bits) - 1, n = 0;
    for (uint32_t i = 0; i < 1u << codebook->max_bits; i++)
        if (codebook->symbol_bits[i] > n_bits) common &= i;
    while (common >> n & 1) n++;
    return n;
}

/* The smallest tables that do. */
static void split(pleat__codebook *codebook) {
    for (uint32_t n_bits = 5; n_bits >= 4 && codebook->kind != PLEAT__CODEBOOK_WIDE; n_bits--) {
        const uint32_t ones = ones_of_longer(codebook, n_bits);
        if (codebook->max_bits - ones > (n_bits == 4 ? 4 : PLEAT__CODEBOOK_TAIL_BITS)) continue;
        codebook->short_bits = (uint8_t)n_bits;
        codebook->n_ones = (uint8_t)ones;
    }
    for (uint32_t i = 0; i < 1u << PLEAT__CODEBOOK_TAIL_BITS; i++) {
        const uint32_t at = ((i + 1) << codebook->n_ones) - 1;
        codebook->tail_symbol[i] = codebook->symbol[at % TABLE];
        codebook->tail_bits[i] = codebook->symbol_bits[at % TABLE];
    }
}

bool pleat__codebook_from_bits(pleat__codebook *codebook, pleat__codebook_kind kind, uint32_t n_levels,
                               const uint8_t bits[PLEAT__CODEBOOK_SYMBOLS]) {
    if (kind > PLEAT__CODEBOOK_WIDE || n_levels < 1 || n_levels > kind_levels(kind)) return false;
    if (!is_complete(kind, n_levels, bits)) return false;
    memset(codebook, 0, sizeof *codebook);
    codebook->kind = (uint8_t)kind;
    codebook->n_levels = (uint16_t)n_levels;
    memcpy(codebook->bits, bits, sizeof codebook->bits);
    memset(codebook->symbol_bits, 1, sizeof codebook->symbol_bits); /* an alphabet of one: symbol 0, whatever the bit */
    assign_words(codebook);
    split(codebook);
    return true;
}

void pleat__codebook_rebase(pleat__codebook *codebook, uint8_t base) {
    const uint8_t more = codebook->kind == PLEAT__CODEBOOK_PAIRS ? 0 : (uint8_t)(base - codebook->base);
    for (uint32_t i = 0; i < TABLE; i++) codebook->symbol[i] = (uint8_t)(codebook->symbol[i] + more);
    for (uint32_t i = 0; i < 1u << PLEAT__CODEBOOK_TAIL_BITS; i++)
        codebook->tail_symbol[i] = (uint8_t)(codebook->tail_symbol[i] + more);
    codebook->base = base;
}

/* ---- as bytes --------------------------------------------------------------------------------------- */

uint32_t pleat__codebook_bytes_cap(uint32_t n_levels) {
    const uint32_t n_pairs = n_levels <= PLEAT__CODEBOOK_PAIR_LEVELS ? n_levels * n_levels : 0;
    return PLEAT__CODEBOOK_HEAD_BYTES + (n_pairs > n_levels ? n_pairs : n_levels);
}

size_t pleat__codebook_write(const pleat__codebook *codebook, uint8_t *out) {
    const pleat__codebook_kind kind = (pleat__codebook_kind)codebook->kind;
    const uint32_t n = alphabet_size(kind, codebook->n_levels);
    out[0] = codebook->kind;
    out[1] = (uint8_t)(codebook->n_levels - 1);
    for (uint32_t i = 0; i < n; i++)
        out[PLEAT__CODEBOOK_HEAD_BYTES + i] = codebook->bits[symbol_at(kind, codebook->n_levels, i)];
    return PLEAT__CODEBOOK_HEAD_BYTES + n;
}

size_t pleat__codebook_read(pleat__codebook *codebook, const uint8_t *bytes, size_t n_bytes) {
    uint8_t bits[PLEAT__CODEBOOK_SYMBOLS] = {0};
    if (n_bytes < PLEAT__CODEBOOK_HEAD_BYTES || bytes[0] > PLEAT__CODEBOOK_WIDE) return 0;
    const pleat__codebook_kind kind = (pleat__codebook_kind)bytes[0];
    const uint32_t n_levels = bytes[1] + 1u;
    if (n_levels > kind_levels(kind)) return 0; /* symbols are below 256 */
    const uint32_t n = alphabet_size(kind, n_levels);
    if (n_bytes - PLEAT__CODEBOOK_HEAD_BYTES < n) return 0;
    for (uint32_t i = 0; i < n; i++) bits[symbol_at(kind, n_levels, i)] = bytes[PLEAT__CODEBOOK_HEAD_BYTES + i];
    return pleat__codebook_from_bits(codebook, kind, n_levels, bits) ? PLEAT__CODEBOOK_HEAD_BYTES + n : 0;
}

/* ---- building --------------------------------------------------------------------------------------- */

/* The best of a kind with words of at most max_bits. */
static void build_kind(pleat__codebook *codebook, pleat__codebook_kind kind, uint32_t max_bits,
                       const pleat__code_counts *counts, uint32_t n_levels) {
    const uint32_t n = alphabet_size(kind, n_levels);
    uint64_t weights[PLEAT__CODEBOOK_SYMBOLS] = {0};
    uint8_t lengths[PLEAT__CODEBOOK_SYMBOLS], bits[PLEAT__CODEBOOK_SYMBOLS] = {0};
    for (uint32_t i = 0; i < n; i++) weights[i] = 1 + count_of(counts, kind, symbol_at(kind, n_levels, i));
    pleat__codebook_lengths(weights, n, max_bits, lengths);
    for (uint32_t i = 0; i < n; i++) bits[symbol_at(kind, n_levels, i)] = lengths[i];
    (void)pleat__codebook_from_bits(codebook, kind, n_levels, bits); /* package-merge's lengths are complete */
}

/* Codebooks that the levels allow, the fastest to decode first. */
static const struct {
    uint16_t max_levels;
    uint8_t kind, max_bits;
} choices[] = {
    {5, PLEAT__CODEBOOK_PAIRS, PLEAT__CODEBOOK_PAIR_BITS - 1}, /* of more levels too many pairs would have long words */
    {PLEAT__CODEBOOK_PAIR_LEVELS, PLEAT__CODEBOOK_PAIRS, PLEAT__CODEBOOK_PAIR_BITS},
    {PLEAT__CODEBOOK_NARROW_LEVELS, PLEAT__CODEBOOK_NARROW, PLEAT__CODEBOOK_NARROW_BITS - 1},
    {PLEAT__CODEBOOK_NARROW_LEVELS, PLEAT__CODEBOOK_NARROW, PLEAT__CODEBOOK_NARROW_BITS},
    {PLEAT__CODEBOOK_LEVELS, PLEAT__CODEBOOK_WIDE, PLEAT__CODEBOOK_WIDE_BITS}};

void pleat__codebook_build(pleat__codebook *codebook, const pleat__code_counts *counts, uint32_t n_levels) {
    bool is_first = true;
    for (uint32_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (n_levels > choices[i].max_levels) continue;
        if (choices[i].kind == PLEAT__CODEBOOK_WIDE && !is_first) break;
        pleat__codebook other;
        build_kind(&other, (pleat__codebook_kind)choices[i].kind, choices[i].max_bits, counts, n_levels);
        if (is_first ||
            80 * pleat__codebook_cost_bits(&other, counts) < 79 * pleat__codebook_cost_bits(codebook, counts))
            *codebook = other;
        is_first = false;
    }
}

uint64_t pleat__codebook_cost_bits(const pleat__codebook *codebook, const pleat__code_counts *counts) {
    const pleat__codebook_kind kind = (pleat__codebook_kind)codebook->kind;
    const uint32_t n = alphabet_size(kind, codebook->n_levels);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t symbol = symbol_at(kind, codebook->n_levels, i);
        sum += count_of(counts, kind, symbol) * codebook->bits[symbol];
    }
    return sum;
}
