/* SPDX-License-Identifier: MIT
 *
 * engine_device_none.c: an engine on a GPU, in a build without CUDA: there is none.
 */
#include "core/error.h"
#include "engine/internal.h"
#include "pleat/device.h"

static pleat_status no_create(pleat_engine *e, pleat_error *err) {
    uint32_t n_devices;
    (void)e;
    return pleat_device_count(&n_devices, err);
}

static void no_destroy(pleat_engine *e) { (void)e; }

const pleat__engine_ops pleat__engine_on_device = {.create = no_create, .destroy = no_destroy};
