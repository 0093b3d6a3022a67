/* SPDX-License-Identifier: MIT
 *
 * device_none.c: device.h in a build without CUDA: there is no device.
 */
#include "core/error.h"
#include "hw/device.h"

static pleat_status none(pleat_error *err) {
    return pleat__error_set(err, PLEAT_E_DEVICE, PLEAT_NOWHERE,
                            "this build has no CUDA: build it where nvcc is, with -DPLEAT_CUDA=on, to use a GPU");
}

pleat_status pleat_device_count(uint32_t *n_devices, pleat_error *err) {
    if (n_devices) *n_devices = 0;
    return none(err);
}

pleat_status pleat_device_get_info(uint32_t device, pleat_device_info *info, pleat_error *err) {
    (void)device, (void)info;
    return none(err);
}

pleat_status pleat__device_use(uint32_t device, pleat_error *err) {
    (void)device;
    return none(err);
}

pleat_status pleat__device_alloc(uint64_t bytes, void **p, pleat_error *err) {
    (void)bytes, (void)p;
    return none(err);
}

void pleat__device_free(void *p) { (void)p; }

pleat_status pleat__device_alloc_host(uint64_t bytes, void **p, pleat_error *err) {
    (void)bytes, (void)p;
    return none(err);
}

void pleat__device_free_host(void *p) { (void)p; }

pleat_status pleat__device_copy(void *to, const void *from, uint64_t bytes, pleat__device_stream stream,
                                pleat_error *err) {
    (void)to, (void)from, (void)bytes, (void)stream;
    return none(err);
}

pleat_status pleat__device_fill(void *p, int byte, uint64_t bytes, pleat__device_stream stream, pleat_error *err) {
    (void)p, (void)byte, (void)bytes, (void)stream;
    return none(err);
}

pleat_status pleat__device_stream_create(pleat__device_stream *stream, pleat_error *err) {
    (void)stream;
    return none(err);
}

void pleat__device_stream_destroy(pleat__device_stream *stream) { (void)stream; }

pleat_status pleat__device_wait(pleat__device_stream stream, pleat_error *err) {
    (void)stream;
    return none(err);
}

pleat_status pleat__device_event_create(pleat__device_event *event, pleat_error *err) {
    (void)event;
    return none(err);
}

void pleat__device_event_destroy(pleat__device_event *event) { (void)event; }

pleat_status pleat__device_event_record(pleat__device_event event, pleat__device_stream stream, pleat_error *err) {
    (void)event, (void)stream;
    return none(err);
}

pleat_status pleat__device_stream_follow(pleat__device_stream stream, pleat__device_event event, pleat_error *err) {
    (void)stream;
    (void)event;
    return none(err);
}

pleat_status pleat__device_event_wait(pleat__device_event event, pleat_error *err) {
    (void)event;
    return none(err);
}

pleat_status pleat__device_event_elapsed(pleat__device_event from, pleat__device_event to, float *ms,
                                         pleat_error *err) {
    (void)from, (void)to, (void)ms;
    return none(err);
}

pleat_status pleat__device_graph_begin(pleat__device_stream stream, pleat_error *err) {
    (void)stream;
    return none(err);
}

pleat_status pleat__device_graph_end(pleat__device_stream stream, pleat__device_graph *graph, pleat_error *err) {
    (void)stream, (void)graph;
    return none(err);
}

pleat_status pleat__device_graph_launch(pleat__device_graph graph, pleat__device_stream stream, pleat_error *err) {
    (void)graph, (void)stream;
    return none(err);
}

void pleat__device_graph_destroy(pleat__device_graph *graph) { (void)graph; }

void pleat__device_fail_at(uint64_t nth) { (void)nth; }
