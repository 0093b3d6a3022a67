/* SPDX-License-Identifier: MIT
 *
 * fuzz_spec.c: any text through the KV spec parser.
 *
 * A text that parses prints to a canonical text, and that one parses to an equal spec.  One that does not says where,
 * inside the text, and why, and leaves the output alone.  A '/' in the input also splits it into the two cache types
 * of llama.cpp's flags.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "pleat/spec.h"

static void expect_round_trip(const pleat_spec *spec) {
    char text[PLEAT_SPEC_TEXT_CAP], again[PLEAT_SPEC_TEXT_CAP];
    pleat_spec parsed;
    EXPECT(pleat_spec_print(spec, text, sizeof text) == PLEAT_OK);
    EXPECT(strlen(text) < sizeof text);
    EXPECT(pleat_spec_parse(text, &parsed, NULL) == PLEAT_OK);
    EXPECT(pleat_spec_print(&parsed, again, sizeof again) == PLEAT_OK);
    EXPECT(strcmp(text, again) == 0);
    EXPECT(pleat_format_token_bytes(spec->high, 64) > 0);
}

/* What a failed parse of `length` bytes has to leave. */
static void expect_error(pleat_status status, const pleat_error *err, size_t length) {
    EXPECT(status < 0);
    EXPECT(err->code == status);
    EXPECT(err->where <= length || err->where == PLEAT_NOWHERE);
    EXPECT(err->text[0] && memchr(err->text, 0, sizeof err->text));
}

static void try_cache_types(char *text) {
    char *slash = strchr(text, '/');
    if (!slash) return;
    *slash = 0;
    pleat_spec spec;
    pleat_error err;
    pleat_status status = pleat_spec_from_cache_types(text, slash + 1, &spec, &err);
    if (status == PLEAT_OK)
        expect_round_trip(&spec);
    else
        expect_error(status, &err, strlen(slash + 1) + strlen(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text) return 0;
    if (size > 0) memcpy(text, data, size);
    text[size] = 0;

    pleat_spec spec, before;
    pleat_error err;
    memset(&spec, 0xA5, sizeof spec);
    memcpy(&before, &spec, sizeof spec);
    pleat_status status = pleat_spec_parse(text, &spec, &err);
    if (status == PLEAT_OK) {
        expect_round_trip(&spec);
    } else {
        expect_error(status, &err, strlen(text));
        EXPECT(memcmp(&spec, &before, sizeof spec) == 0);
    }
    EXPECT(pleat_spec_parse(text, &spec, NULL) == status);
    try_cache_types(text);
    free(text);
    return 0;
}
