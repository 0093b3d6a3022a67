/* SPDX-License-Identifier: MIT
 *
 * block_run.c: payloads where they stand in pages.
 */
#include "codec/internal.h"
#include "codec/rd.h"

/* Copy n bytes from offset `at` of the run's pages. */
static void copy_out(const pleat__block_run *run, uint64_t at, size_t n, uint8_t *to) {
    while (n > 0) {
        const uint64_t page = at / run->page_bytes, in_page = at % run->page_bytes, left = run->page_bytes - in_page;
        const size_t part = n < left ? n : (size_t)left;
        memcpy(to, run->base + (uint64_t)run->ids[(int64_t)page * run->step].v * run->page_bytes + in_page, part);
        at += part;
        to += part;
        n -= part;
    }
}

/* What the payload's header says, at most `span`. */
static size_t payload_bytes(const pleat__block_format *format, const uint8_t *payload, size_t span) {
    if (format->is_rd) {
        const uint64_t n = span < PLEAT__RD_FIXED_BYTES ? span : pleat__rd_said_bytes(payload, format->head_dim);
        return n < span ? (size_t)n : span;
    }
    if (span < PLEAT__BLOCK_HEADER_BYTES) return span;
    const uint32_t k_word = pleat__load_u32(payload + 4), v_word = pleat__load_u32(payload + 8);
    const uint64_t said = (uint64_t)pleat__block_fixed_bytes(format, k_word, v_word) +
                          pleat__matrix_section_bytes(k_word) + pleat__matrix_section_bytes(v_word);
    return said < span ? (size_t)said : span;
}

pleat__block_about pleat__block_look(const pleat__block_format *format, const uint8_t *payload) {
    return format->is_rd ? pleat__rd_look(payload) : (pleat__block_about){0};
}

const uint8_t *pleat__block_fetch(const pleat__block_run *run, uint32_t block, uint8_t *copy, size_t *n_bytes) {
    const uint64_t at = block == 0 ? 0 : (uint64_t)run->ends[block - 1] * PLEAT__BLOCK_ALIGN;
    const uint64_t end = (uint64_t)run->ends[block] * PLEAT__BLOCK_ALIGN, in_page = at % run->page_bytes;
    const size_t most = pleat__block_bound(run->format) + PLEAT__BLOCK_ALIGN;
    const size_t span = end <= at ? 0 : end - at < most ? (size_t)(end - at) : most;
    const uint8_t *payload;
    if (in_page + span + PLEAT__STREAM_PAD <= run->page_bytes) {
        payload =
            run->base + (uint64_t)run->ids[(int64_t)(at / run->page_bytes) * run->step].v * run->page_bytes + in_page;
    } else {
        copy += pleat__block_units_bytes(run->format);
        copy_out(run, at, span, copy);
        memset(copy + span, 0, PLEAT__STREAM_PAD);
        payload = copy;
    }
    *n_bytes = payload_bytes(run->format, payload, span);
    return payload;
}

pleat_status pleat__block_run_open(const pleat__block_run *run, uint32_t block, uint8_t *copy,
                                   pleat__block_reader *reader) {
    size_t n_bytes;
    const uint8_t *payload = pleat__block_fetch(run, block, copy, &n_bytes);
    if (run->rd) return pleat__rd_open(run->rd, payload, n_bytes, copy, reader);
    return pleat__block_open(run->format, run->codebooks, payload, n_bytes, copy, reader);
}
