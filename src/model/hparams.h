/* SPDX-License-Identifier: MIT
 *
 * hparams.h: a model's shape and constants, read from the metadata of a GGUF as the row of its architecture says.
 */
#ifndef PLEAT_MODEL_HPARAMS_H
#define PLEAT_MODEL_HPARAMS_H

#include "model/internal.h"

/* Fill model->arch, features, the constants of the pass, ropes without their factors, and model->info but for what comes
 * from tensors and tokenizer (n_vocab, n_params, weight_bytes, bos, eos, add_bos, name).  Every number is held against
 * what the engine can run.  PLEAT_E_FORMAT: missing or senseless; PLEAT_E_UNSUPPORTED: an architecture, a size or an
 * extra that Pleat does not run, by name. */
pleat_status pleat__hparams_read(pleat_model *model, const pleat_gguf *gguf, pleat_error *err);

/* The window and the rope of layer i, of those that hparams_read found. */
void pleat__hparams_layer(const pleat_model *model, uint32_t i, pleat__layer *layer);

#endif
