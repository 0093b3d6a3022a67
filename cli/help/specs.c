/* SPDX-License-Identifier: MIT
 *
 * specs.c: `pleat help kv`: what may stand behind --kv, on one screen of 80 columns.
 */
#include "help.h"

#include <string.h>

static const char text[] = "pleat help kv: ways to keep a KV cache, as --kv names them\n"
                           "\n"
                           "every token alike\n"
                           "  f16                        uncompressed; f32 likewise, without rounding\n"
                           "  k8v4                       keys of 8 bits, values of 4: the default of run\n"
                           "  k8v8 k4v4 k4v2 ... k2v2    any of 8, 4 and 2 bits for each\n"
                           "  h4v4 h3v3 h3v2 ... h2v2    4, 3 or 2 bits, rotated (TurboQuant's tq4, tq3)\n"
                           "important tokens better (LeanKV)\n"
                           "  leankv                     high, low or dropped, as the model's profile says\n"
                           "  leankv:ah=5,low=k4v4       with thresholds and formats of your own\n"
                           "  leankv:profile=FILE        with those that `pleat calibrate` found\n"
                           "fewer tokens (eviction)\n"
                           "  h2o:budget=512             tokens a KV head; also random recent snapkv\n"
                           "  pyramidkv adakv streaming  likewise; also expected dropkv kvzip leverage\n"
                           "  novel:budget=25%           keys unlike the others'; h2o+novel: half of each\n"
                           "  snapkv:budget=25%          a share of the prompt; in bytes: budget=4MiB\n"
                           "  h2o:budget=25%+kvcrush     representatives of what is dropped, too (KVCrush)\n"
                           "  snapkv:budget=25%+merge    what is dropped goes into the nearest that stays\n"
                           "  topk:keep=30%              the same share in every KV head\n"
                           "older tokens in blocks, but for the first 4 (sinks=4)\n"
                           "  kvcomp                     a bounded error, entropy-coded (KVComp)\n"
                           "  kvcomp:k=0.1,v=0.2         with steps of your own\n"
                           "  kivi:bits=2                2 or 4 bits, 32 tokens sharing a scale\n"
                           "  rd:fine=512                the model's steps (`pleat stats`), half at first\n"
                           "  auto:bytes=20%             rd within a budget for the whole cache\n"
                           "\n"
                           "Keys stand in any order; those that are left out keep their defaults. Examples:\n"
                           "  pleat run -m MODEL -p \"Once upon a time\" --kv k4v4\n"
                           "  pleat inspect MODEL --kv f16 --kv k8v4 --kv k4v2         bytes a token\n"
                           "  pleat eval -m MODEL --tasks FILE --kv f16 --kv k8v4      what it costs\n";

int help_specs(const char *word, FILE *f) {
    if (strcmp(word, "kv") != 0 && strcmp(word, "specs") != 0) return 0;
    fputs(text, f);
    return 1;
}
