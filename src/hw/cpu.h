/* SPDX-License-Identifier: MIT
 *
 * cpu.h: how kernels are chosen.  pleat_cpu_flags() and pleat_cpu_mask() are in pleat/common.h.  A dispatch table is
 * filled as a ladder: it starts with the scalar reference, and each feature that the flags have overwrites what has a
 * better variant.  PLEAT_X86 and PLEAT_ARM are 1 when those variants are compiled in.
 */
#ifndef PLEAT_HW_CPU_H
#define PLEAT_HW_CPU_H

#include "core/types.h"

#ifndef PLEAT_X86
#define PLEAT_X86 0
#endif
#ifndef PLEAT_ARM
#define PLEAT_ARM 0
#endif
/* 1 in builds with the CUDA runtime and kernels for GPUs: hw/device.h. */
#ifndef PLEAT_CUDA
#define PLEAT_CUDA 0
#endif

#endif
