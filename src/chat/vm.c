/* SPDX-License-Identifier: MIT
 *
 * vm.c: see vm.h.
 */
#include "chat/vm.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"

#define FIRST_CHUNK_BYTES (32u << 10) /* what most conversations need is a few of these */
#define CHUNK_BYTES_MAX (1u << 20)
#define ALIGN 16u

struct pleat__vm_chunk {
    pleat__vm_chunk *next;
    uint64_t n_bytes;
    _Alignas(ALIGN) uint8_t bytes[];
};

static pleat_status add_chunk(pleat__vm *vm, uint64_t least) {
    uint64_t n = FIRST_CHUNK_BYTES;
    while (n < vm->used_bytes && n < CHUNK_BYTES_MAX) n *= 2;
    if (n < least) n = least;
    if (least > vm->max_bytes || vm->used_bytes > vm->max_bytes - least) {
        return pleat__vm_fail(vm, PLEAT_E_LIMIT, "the template takes more than %llu bytes of memory",
                              (unsigned long long)vm->max_bytes);
    }
    pleat__vm_chunk *chunk = pleat__alloc(&vm->al, 1, sizeof *chunk + n);
    if (!chunk) return pleat__vm_fail(vm, PLEAT_E_MEMORY, "no memory for a chat template's work");
    *chunk = (pleat__vm_chunk){.next = vm->chunks, .n_bytes = n};
    vm->chunks = chunk;
    vm->used_bytes += n;
    vm->at = chunk->bytes;
    vm->end = chunk->bytes + n;
    return PLEAT_OK;
}

pleat_status pleat__vm_take(pleat__vm *vm, uint64_t n_bytes, void **out) {
    const uint64_t pad = (ALIGN - (uintptr_t)vm->at % ALIGN) % ALIGN;
    const uint64_t room = (uint64_t)(vm->end - vm->at);
    if (!vm->at || room < pad || room - pad < n_bytes) {
        PLEAT_TRY(add_chunk(vm, n_bytes));
    } else {
        vm->at += pad;
    }
    *out = vm->at;
    vm->at += n_bytes;
    return PLEAT_OK;
}

pleat_status pleat__vm_take_text(pleat__vm *vm, uint64_t n_bytes, char **out) {
    if (!vm->at || (uint64_t)(vm->end - vm->at) < n_bytes) PLEAT_TRY(add_chunk(vm, n_bytes));
    *out = (char *)vm->at;
    vm->at += n_bytes;
    return PLEAT_OK;
}

bool pleat__vm_extend(pleat__vm *vm, const char *p, uint64_t n, uint64_t more) {
    if (n == 0 || (const uint8_t *)p + n != vm->at || (uint64_t)(vm->end - vm->at) < more) return false;
    vm->at += more;
    return true;
}

pleat_status pleat__vm_charge(pleat__vm *vm, uint64_t n) {
    if (vm->steps > vm->max_steps || n > vm->max_steps - vm->steps) {
        return pleat__vm_fail(vm, PLEAT_E_LIMIT, "the template takes more than %llu steps",
                              (unsigned long long)vm->max_steps);
    }
    vm->steps += n;
    return PLEAT_OK;
}

pleat_status pleat__vm_enter(pleat__vm *vm) {
    if (vm->depth >= vm->max_depth) {
        return pleat__vm_fail(vm, PLEAT_E_LIMIT, "nested more than %u levels deep", vm->max_depth);
    }
    vm->depth++;
    return PLEAT_OK;
}

pleat_status pleat__vm_fail(pleat__vm *vm, pleat_status code, const char *fmt, ...) {
    char text[sizeof vm->err->text];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (vm->line == 0) return pleat__error_set(vm->err, code, PLEAT_NOWHERE, "%s", text);
    return pleat__error_set(vm->err, code, PLEAT_NOWHERE, "line %u: %s", vm->line, text);
}

void pleat__vm_release(pleat__vm *vm) {
    while (vm->chunks) {
        pleat__vm_chunk *chunk = vm->chunks;
        vm->chunks = chunk->next;
        pleat__free(&vm->al, chunk, 1, sizeof *chunk + chunk->n_bytes);
    }
    vm->at = vm->end = NULL;
    vm->used_bytes = 0;
}
