/* SPDX-License-Identifier: MIT
 *
 * test_device.c: hw/device.h: what a build or machine without a GPU answers, and with one: memory, streams, events,
 * graphs, and what is said when a call fails.
 */
#include <string.h>

#include "check.h"
#include "hw/cpu.h"
#include "hw/device.h"

static const pleat__device_stream no_stream = {NULL};

/* Without a GPU every call says so, in the same words, and nothing else happens. */
static void test_none(void) {
    uint32_t n = 7;
    pleat_error err = {0, 0, ""};
    if (pleat_device_count(&n, &err) == PLEAT_OK) {
        CHECK(n > 0);
        SKIP("there is a GPU");
    }
    CHECK_EQ_I64(err.code, PLEAT_E_DEVICE);
    CHECK_EQ_U64(n, 0);
    CHECK(strstr(err.text, "GPU") != NULL);
    if (!PLEAT_CUDA) CHECK(strstr(err.text, "PLEAT_CUDA") != NULL);
    pleat_device_info info;
    void *p = &n;
    CHECK_STATUS(pleat_device_get_info(0, &info, NULL), PLEAT_E_DEVICE);
    CHECK_STATUS(pleat__device_use(0, NULL), PLEAT_E_DEVICE);
    CHECK_STATUS(pleat__device_alloc(64, &p, &err), PLEAT_E_DEVICE);
    CHECK(p == &n);
    pleat__device_free(NULL);
}

static void test_info(void) {
    CHECK_DEVICE();
    uint32_t n;
    pleat_device_info info;
    pleat_error err;
    CHECK_STATUS(pleat_device_count(&n, &err), PLEAT_OK);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_STATUS(pleat_device_get_info(i, &info, &err), PLEAT_OK);
        CHECK(info.name[0] && info.n_multiprocessors > 0 && info.compute_capability >= 80);
        CHECK(info.free_bytes <= info.memory_bytes && info.driver_version >= info.runtime_version / 1000 * 1000);
    }
    CHECK_STATUS(pleat_device_get_info(n, &info, &err), PLEAT_E_DEVICE);
    CHECK(strstr(err.text, "no GPU") != NULL);
}

static void test_copies(void) {
    CHECK_DEVICE();
    enum { N = 1000 };
    uint8_t from[N], to[N];
    void *p = NULL, *pinned = NULL;
    pleat_error err;
    for (int i = 0; i < N; i++) from[i] = (uint8_t)check_u64();
    CHECK_STATUS(pleat__device_use(0, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc(N, &p, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc_host(N, &pinned, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_fill(p, 0xA5, N, no_stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_copy(p, from, N / 2, no_stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_copy(pinned, p, N, no_stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(no_stream, &err), PLEAT_OK);
    memset(from + N / 2, 0xA5, N / 2);
    memcpy(to, pinned, N);
    CHECK_EQ_MEM(to, from, N);
    pleat__device_free_host(pinned);
    pleat__device_free(p);
}

/* A graph does its work when it is launched, as often as it is, and not before; events measure it. */
static void test_graph(void) {
    CHECK_DEVICE();
    pleat_error err;
    pleat__device_stream stream;
    pleat__device_event a, b;
    pleat__device_graph graph;
    uint8_t byte = 0;
    float ms = -1;
    void *p;
    CHECK_STATUS(pleat__device_alloc(256, &p, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_stream_create(&stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_event_create(&a, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_event_create(&b, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_fill(p, 1, 256, stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_begin(stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_fill(p, 2, 256, stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_graph_end(stream, &graph, &err), PLEAT_OK);
    for (uint8_t round = 1; round <= 2; round++) {
        CHECK_STATUS(pleat__device_copy(&byte, p, 1, stream, &err), PLEAT_OK);
        CHECK_STATUS(pleat__device_wait(stream, &err), PLEAT_OK);
        CHECK_EQ_U64(byte, round);
        CHECK_STATUS(pleat__device_event_record(a, stream, &err), PLEAT_OK);
        CHECK_STATUS(pleat__device_graph_launch(graph, stream, &err), PLEAT_OK);
        CHECK_STATUS(pleat__device_event_record(b, stream, &err), PLEAT_OK);
        CHECK_STATUS(pleat__device_event_elapsed(a, b, &ms, &err), PLEAT_OK);
        CHECK(ms >= 0 && ms < 1000);
    }
    pleat__device_graph_destroy(&graph);
    pleat__device_event_destroy(&a);
    pleat__device_event_destroy(&b);
    pleat__device_stream_destroy(&stream);
    pleat__device_free(p);
}

/* Too little memory and a failed launch are named, and the next call works as if nothing had been. */
static void test_failures(void) {
    CHECK_DEVICE();
    pleat_error err;
    pleat_device_info info;
    void *p = NULL;
    CHECK_STATUS(pleat_device_get_info(0, &info, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_alloc(2 * info.memory_bytes, &p, &err), PLEAT_E_MEMORY);
    CHECK(p == NULL && strstr(err.text, "too little free memory") != NULL);
    pleat__device_fail_at(1);
    CHECK_STATUS(pleat__device_alloc(64, &p, &err), PLEAT_E_MEMORY);
    pleat__device_fail_at(2);
    CHECK_STATUS(pleat__device_alloc(64, &p, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_fill(p, 0, 64, no_stream, &err), PLEAT_E_DEVICE);
    CHECK(strstr(err.text, "filling memory") != NULL);
    CHECK_STATUS(pleat__device_fill(p, 0, 64, no_stream, &err), PLEAT_OK);
    CHECK_STATUS(pleat__device_wait(no_stream, &err), PLEAT_OK);
    pleat__device_free(p);
}

static const check_test tests[] = {{"none", test_none},
                                   {"info", test_info},
                                   {"copies", test_copies},
                                   {"graph", test_graph},
                                   {"failures", test_failures}};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
