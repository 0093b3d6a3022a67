/* SPDX-License-Identifier: MIT
 *
 * layers.c: see layers.h.
 */
#include "engine/layers.h"

#include <string.h>

#include "core/error.h"
#include "core/memory.h"

static void carve_layers(const pleat_engine *e, pleat__engine_layers *l, pleat__arena *arena) {
    const uint32_t n_layers = e->info.n_layers;
    if (e->info.window > 0) l->windows = pleat__arena_take(arena, n_layers, sizeof *l->windows);
    if (e->model->layers[0].sinks)
        l->sinks = pleat__arena_take(arena, (uint64_t)n_layers * e->info.n_q_heads, sizeof *l->sinks);
    l->ropes = pleat__arena_take(arena, n_layers, sizeof *l->ropes);
    l->frequencies = pleat__arena_take(arena, 2, e->info.head_dim / 2 * sizeof *l->frequencies);
}

/* Keys are turned as the forward pass does it for sequences of this length. */
static void list_ropes(const pleat_engine *e, pleat__engine_layers *l) {
    for (uint32_t i = 0; i < e->model->n_ropes; i++) {
        const pleat__rope *rope = &e->model->ropes[i];
        double *frequencies = l->frequencies + (size_t)i * (e->info.head_dim / 2);
        pleat__rope_frequencies(rope, e->opt.max_tokens, frequencies);
        l->kinds[i] = (pleat_rope){rope->n_dims, rope->is_halves, rope->magnitude, frequencies};
    }
}

pleat_status pleat__engine_layers_init(const pleat_engine *e, pleat__engine_layers *l, pleat_error *err) {
    const uint32_t n_heads = e->info.n_q_heads;
    pleat__arena arena = {0};
    *l = (pleat__engine_layers){0};
    carve_layers(e, l, &arena);
    l->memory_bytes = arena.used_bytes;
    l->memory = pleat__alloc(&e->al, 1, l->memory_bytes);
    PLEAT_FAIL_IF(!l->memory, err, PLEAT_E_MEMORY, PLEAT_NOWHERE, "engine: out of memory");
    arena = (pleat__arena){.base = l->memory, .cap_bytes = l->memory_bytes};
    carve_layers(e, l, &arena);
    list_ropes(e, l);
    for (uint32_t i = 0; i < e->info.n_layers; i++) {
        const pleat__layer *layer = &e->model->layers[i];
        if (l->windows) l->windows[i] = pleat_model_layer_window(e->model, i);
        if (l->sinks) memcpy(l->sinks + (size_t)i * n_heads, layer->sinks, n_heads * sizeof *l->sinks);
        l->ropes[i] = layer->rope == PLEAT__NO_ROPE ? NULL : &l->kinds[layer->rope];
    }
    return PLEAT_OK;
}

void pleat__engine_layers_free(const pleat_engine *e, pleat__engine_layers *l) {
    pleat__free(&e->al, l->memory, 1, l->memory_bytes);
}
