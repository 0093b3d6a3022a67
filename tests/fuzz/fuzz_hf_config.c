/* SPDX-License-Identifier: MIT
 *
 * fuzz_hf_config.c: any bytes as a HuggingFace config.json.
 *
 * What is taken has a shape that pages can hold, and parameters that add up; what is not says why and leaves the output
 * alone.  Taking it twice gives the same.
 */
#include "fuzz.h"

#include <string.h>

#include "cli/lib/shape/hf_config.h"

static void expect_shape(const model_shape *s) {
    pleat_error err;
    EXPECT(s->n_layers >= 1 && s->n_layers <= SHAPE_LAYERS_MAX);
    EXPECT(s->n_kv_heads >= 1 && s->n_kv_heads <= SHAPE_KV_HEADS_MAX);
    EXPECT(s->head_dim >= 16 && s->head_dim <= SHAPE_HEAD_DIM_MAX);
    EXPECT(shape_check(s, &err) == PLEAT_OK);
    EXPECT(s->n_windowed <= s->n_layers);
    EXPECT((s->window > 0) == (s->n_windowed > 0));
    EXPECT(s->n_params == 0 || s->n_params > s->n_params_lookup);
    EXPECT(s->n_params == 0 || s->n_params / (s->n_experts ? s->n_experts : 1) >= s->n_params_expert);
    EXPECT(memchr(s->name, 0, sizeof s->name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_shape shape, before;
    pleat_error err = {0, 0, ""};
    memset(&shape, 0xA5, sizeof shape);
    memcpy(&before, &shape, sizeof shape);
    const pleat_status status = hf_config_parse((const char *)data, size, &shape, &err);
    if (status == PLEAT_OK) {
        expect_shape(&shape);
        model_shape again;
        EXPECT(hf_config_parse((const char *)data, size, &again, &err) == PLEAT_OK);
        EXPECT(again.n_params == shape.n_params && again.n_windowed == shape.n_windowed);
    } else {
        EXPECT(status < 0 && err.code == status);
        EXPECT(err.text[0] && memchr(err.text, 0, sizeof err.text));
        EXPECT(memcmp(&shape, &before, sizeof shape) == 0);
    }
    return 0;
}
