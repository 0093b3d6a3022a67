/* SPDX-License-Identifier: MIT
 *
 * hparams.h: a model's shape and constants, read from the metadata of a GGUF.
 */
#ifndef PLEAT_MODEL_HPARAMS_H
#define PLEAT_MODEL_HPARAMS_H

#include "model/internal.h"

/* Fill model->info but for what comes from tensors and tokenizer (n_vocab, n_params, weight_bytes, bos, eos, add_bos,
 * name), and rms_eps, rope_base, rope_dims.  Every number is held against what the engine can run.  PLEAT_E_FORMAT: missing or
 * senseless; PLEAT_E_UNSUPPORTED: an architecture, a size or an extra that Pleat does not run, by name. */
pleat_status pleat__hparams_read(pleat_model *model, const pleat_gguf *gguf, pleat_error *err);

#endif
