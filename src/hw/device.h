/* SPDX-License-Identifier: MIT
 *
 * device.h: a GPU's memory, streams, events and graphs, as plain C: the one way to the CUDA runtime for everything that
 * is not a kernel.
 *
 *     hw/cuda/device.cu     with the CUDA runtime
 *     hw/device_none.c      in builds without: every call is PLEAT_E_DEVICE, "built without CUDA"
 *
 * Rules
 *  1. Whatever CUDA reports becomes a named status and one line of text: PLEAT_E_MEMORY where the device has too little
 *     memory, PLEAT_E_DEVICE for all else.  err may be NULL everywhere.
 *  2. Nothing is kept between calls but what the CUDA runtime keeps, and which device each thread chose last: objects
 *     are handles that the caller destroys.
 *  3. Work of one stream runs in order; calls that take a stream return before it is done, pleat__device_wait() waits.
 *     Stream {NULL} is the device's default stream.  Device pointers are never followed on the host.
 *  4. Calls act on the calling thread's device: pleat__device_use().
 */
#ifndef PLEAT_HW_DEVICE_H
#define PLEAT_HW_DEVICE_H

#include "core/types.h"
#include "pleat/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleat__device_stream {
    void *v;
} pleat__device_stream;

typedef struct pleat__device_event {
    void *v;
} pleat__device_event;

typedef struct pleat__device_graph {
    void *v;
} pleat__device_graph;

/* Make `device` the calling thread's. */
pleat_status pleat__device_use(uint32_t device, pleat_error *err);

/* Device memory, aligned to 256 and not cleared.  bytes > 0.  free(NULL) is fine. */
pleat_status pleat__device_alloc(uint64_t bytes, void **p, pleat_error *err);
void pleat__device_free(void *p);

/* Memory of the host that copies read and write at full speed and without waiting. */
pleat_status pleat__device_alloc_host(uint64_t bytes, void **p, pleat_error *err);
void pleat__device_free_host(void *p);

/* Copy between host and device, either way, or on the device. */
pleat_status pleat__device_copy(void *to, const void *from, uint64_t bytes, pleat__device_stream stream,
                                pleat_error *err);
pleat_status pleat__device_fill(void *p, int byte, uint64_t bytes, pleat__device_stream stream, pleat_error *err);

pleat_status pleat__device_stream_create(pleat__device_stream *stream, pleat_error *err);
void pleat__device_stream_destroy(pleat__device_stream *stream);
/* Wait until the stream's work is done; what failed in it is reported here at the latest. */
pleat_status pleat__device_wait(pleat__device_stream stream, pleat_error *err);

pleat_status pleat__device_event_create(pleat__device_event *event, pleat_error *err);
void pleat__device_event_destroy(pleat__device_event *event);
pleat_status pleat__device_event_record(pleat__device_event event, pleat__device_stream stream, pleat_error *err);
/* What the stream is given from now on waits for what the event's stream had to do before it. */
pleat_status pleat__device_stream_follow(pleat__device_stream stream, pleat__device_event event, pleat_error *err);
/* Wait until what the stream had to do before the event is done. */
pleat_status pleat__device_event_wait(pleat__device_event event, pleat_error *err);
/* Milliseconds between two recorded events, waiting for the second. */
pleat_status pleat__device_event_elapsed(pleat__device_event from, pleat__device_event to, float *ms, pleat_error *err);

/* Record the stream's work instead of doing it, from begin to end; launch does it. */
pleat_status pleat__device_graph_begin(pleat__device_stream stream, pleat_error *err);
pleat_status pleat__device_graph_end(pleat__device_stream stream, pleat__device_graph *graph, pleat_error *err);
pleat_status pleat__device_graph_launch(pleat__device_graph graph, pleat__device_stream stream, pleat_error *err);
void pleat__device_graph_destroy(pleat__device_graph *graph);

/* For tests: the nth call from now on that reaches the runtime fails, kernels' launches included; 0: none does.  One
 * that allocates is out of memory, any other is a failed launch. */
void pleat__device_fail_at(uint64_t nth);

#ifdef __cplusplus
}
#endif
#endif
