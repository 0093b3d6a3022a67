/* SPDX-License-Identifier: MIT
 *
 * hf_config.h: the shape of a model from its HuggingFace config.json.
 */
#ifndef PLEAT_CLI_HF_CONFIG_H
#define PLEAT_CLI_HF_CONFIG_H

#include <stddef.h>

#include "shape.h"

/* Read the n bytes of a config.json.  PLEAT_E_SYNTAX for what is no JSON object, PLEAT_E_FORMAT for a field that is
 * missing, of another kind or out of range, PLEAT_E_UNSUPPORTED for a model whose cache pages cannot hold.  err (not
 * NULL) then says which field and what it may be, and *out is left alone.
 *
 * Parameters are counted for the model_types in the table of hf_config.c; for others, and where vocab_size or
 * intermediate_size is missing, n_params is 0.  Nothing is printed. */
pleat_status hf_config_parse(const char *bytes, size_t n, model_shape *out, pleat_error *err);

#endif
