/* SPDX-License-Identifier: MIT
 *
 * pleat.h: all of Pleat's public headers.
 *
 *     status.h   errors                       cache.h    pages and attention, for your own engine
 *     common.h   allocator, threads           model.h    GGUF, tokenizer, sampler
 *     chat.h     chat templates               codec.h    blocks of keys and values compressed to bytes
 *     spec.h     the KV spec                  engine.h   a model on a cache
 *     cost.h     what attention should take    serving.h  many requests on an engine
 *     forecast.h what a sequence would hold, without a cache
 *     image.h    a sequence as a file          store.h    files of sequences in a folder, which outlives the process
 *     events.h   which prefixes are kept, told to routers
 *     device.h   GPUs                         device_cache.h   a cache on one, device_blocks.h   blocks on one
 */
#ifndef PLEAT_PLEAT_H
#define PLEAT_PLEAT_H

#include "pleat/cache.h"
#include "pleat/chat.h"
#include "pleat/codec.h"
#include "pleat/common.h"
#include "pleat/cost.h"
#include "pleat/device.h"
#include "pleat/device_blocks.h"
#include "pleat/device_cache.h"
#include "pleat/engine.h"
#include "pleat/events.h"
#include "pleat/forecast.h"
#include "pleat/image.h"
#include "pleat/model.h"
#include "pleat/serving.h"
#include "pleat/spec.h"
#include "pleat/stats.h"
#include "pleat/status.h"
#include "pleat/store.h"
#include "pleat/version.h"

#endif
