/* SPDX-License-Identifier: MIT
 *
 * cpu.c: which CPU features there are, and the mask that tests and users put over them.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "hw/cpu.h"

static _Atomic uint32_t allowed_flags = ~0u;

#if PLEAT_X86
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Clang 14 has no name for it in __builtin_cpu_supports(); that AVX2 is supported tells that its registers are
 * saved. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Neither gcc 12 nor Clang 14 has a name for it: leaf 7, subleaf 1, EAX bit 4. */
static bool has_avx_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

/* Tiles and their byte products: leaf 7, EDX bits 24 and 25.  Linux saves the tiles of a process, all its threads, that
 * asked for it once, and refuses where it does not know AMX, XCR0 lacks it, or a thread's signal stack is too small. */
static bool has_amx_int8(void) {
#ifdef __linux__
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of <asm/prctl.h>; XCR0's bit */
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static uint32_t detect(void) {
    __builtin_cpu_init();
    uint32_t flags = 0;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return flags;
    flags |= PLEAT_CPU_AVX2;
    if (has_avx_vnni()) flags |= PLEAT_CPU_AVX_VNNI;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return flags;
    flags |= PLEAT_CPU_AVX512;
    if (!__builtin_cpu_supports("avx512vnni")) return flags;
    flags |= PLEAT_CPU_VNNI;
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("gfni"))
        flags |= PLEAT_CPU_VBMI2;
    if (has_amx_int8()) flags |= PLEAT_CPU_AMX_INT8;
    return flags;
}
#elif PLEAT_ARM
#ifdef __linux__
#include <sys/auxv.h>

#define HWCAP_DOT_PRODUCT (1ul << 20) /* HWCAP_ASIMDDP of <asm/hwcap.h> */

static bool has_dotprod(void) { return getauxval(AT_HWCAP) & HWCAP_DOT_PRODUCT; }
#elif defined(__APPLE__)
static bool has_dotprod(void) { return true; } /* every Arm core that macOS runs on has it */
#else
static bool has_dotprod(void) { return false; }
#endif

static uint32_t detect(void) { return PLEAT_CPU_NEON | (has_dotprod() ? PLEAT_CPU_DOTPROD : 0); }
#else
static uint32_t detect(void) { return 0; }
#endif

/* Take away what needs a feature that is missing. */
static uint32_t closed_under_implication(uint32_t flags) {
    if (!(flags & PLEAT_CPU_AVX2)) flags &= ~(uint32_t)(PLEAT_CPU_AVX512 | PLEAT_CPU_AVX_VNNI);
    if (!(flags & PLEAT_CPU_AVX512)) flags &= ~(uint32_t)PLEAT_CPU_VNNI;
    if (!(flags & PLEAT_CPU_VNNI)) flags &= ~(uint32_t)(PLEAT_CPU_AMX_INT8 | PLEAT_CPU_VBMI2);
    if (!(flags & PLEAT_CPU_NEON)) flags &= ~(uint32_t)PLEAT_CPU_DOTPROD;
    return flags;
}

/* What detect() found; asked once, since asking costs microseconds on a virtual machine. */
static uint32_t detected(void) {
    enum { IS_KNOWN = 1u << 30 };
    static _Atomic uint32_t known;
    uint32_t flags = atomic_load(&known);
    if (!(flags & IS_KNOWN)) {
        flags = detect() | IS_KNOWN;
        atomic_store(&known, flags);
    }
    return flags & ~(uint32_t)IS_KNOWN;
}

uint32_t pleat_cpu_flags(void) { return closed_under_implication(detected() & atomic_load(&allowed_flags)); }

void pleat_cpu_mask(uint32_t allowed) { atomic_store(&allowed_flags, allowed); }
