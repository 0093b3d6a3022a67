/* SPDX-License-Identifier: MIT
 *
 * compiler.h: words for what kernels ask of the compiler.
 *
 *     INLINE    templates whose constants have to be constants: they are inlined at every -O
 *     AS_LOOP   before a loop over 16 lanes: GCC vectorises it only if it has not unrolled it first
 *     UNROLL    before a loop of at most 16 turns whose sums belong in registers, or whose index an instruction encodes
 */
#ifndef PLEAT_CORE_COMPILER_H
#define PLEAT_CORE_COMPILER_H

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define AS_LOOP
#else
#define UNROLL _Pragma("GCC unroll 16")
#define AS_LOOP _Pragma("GCC unroll 1")
#endif

#endif
