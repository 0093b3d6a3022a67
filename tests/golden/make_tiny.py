#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_tiny.py: writes tests/golden/NAME.gguf, tiny random models with the logits that transformers gives them.

    python tests/golden/make_tiny.py [NAME..]      needs torch, transformers and gguf; written with 2.15, 5.23 and 0.19

Each is a model of one architecture of src/model/arch, or of one thing that an architecture may have: random weights
from a seed, rounded to f16 so that the file holds them exactly.  `golden.tokens` in its metadata is a prompt and
`golden.logits` are transformers' float32 logits at all of its positions, [tokens][vocabulary].  check_arch compares.

Norms are about 1 and matrices about 1/sqrt(width), so that every step of the pass counts in the logits.
"""
import os
import sys

import gguf
import numpy as np
import torch
import transformers

VOCAB, WIDTH, FF, HEADS, KV_HEADS, HEAD_DIM, CONTEXT, TOKENS = 259, 32, 48, 4, 2, 16, 128, 32
FOLDER = os.path.dirname(os.path.abspath(__file__))

def phi3(n_orig, window):
    """A row of MODELS: the prompt is longer than 24 tokens and shorter than 64, which chooses the divisors."""
    factor = float(np.sqrt(1 + np.log(CONTEXT / n_orig) / np.log(n_orig)))
    rope = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5,
                original_max_position_embeddings=n_orig, long_factor=[1.0, 1.5, 2.5, 4.0],
                short_factor=[1.0, 1.1, 1.2, 1.3])
    return ("phi3", "Phi3", dict(original_max_position_embeddings=n_orig, sliding_window=window, rope_parameters=rope,
                                 num_attention_heads=2, num_key_value_heads=1),
            {"attention.head_count": 2, "attention.head_count_kv": 1, "rope.dimension_count": HEAD_DIM // 2,
             "rope.scaling.original_context_length": n_orig, "attention.sliding_window": window,
             "rope.scaling.attn_factor": factor})


def gpt_oss(n_ff):
    """A row of MODELS; yarn's change-over falls between whole pairs."""
    return ("gpt-oss", "GptOss", dict(
        sliding_window=9, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False,
        intermediate_size=n_ff,
        rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, truncate=False, beta_fast=32.0,
                             beta_slow=1.0, original_max_position_embeddings=32)),
        {"attention.sliding_window": 9, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": n_ff,
         "feed_forward_length": n_ff, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
         "rope.scaling.original_context_length": 32})


# NAME: architecture, transformers' config, its options, further metadata behind the architecture's name.
MODELS = {
    "llama": ("llama", "Llama", dict(
        attention_bias=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=16)), {}),
    "mistral": ("llama", "Mistral", dict(sliding_window=9), {"attention.sliding_window": 9}),
    "mixtral": ("llama", "Mixtral", dict(num_local_experts=5, num_experts_per_tok=2, num_hidden_layers=1),
                {"expert_count": 5, "expert_used_count": 2}),
    "qwen2": ("qwen2", "Qwen2", dict(
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)), {
            "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}),
    "qwen2moe": ("qwen2moe", "Qwen2Moe", dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=40,
        norm_topk_prob=False, decoder_sparse_step=1, num_hidden_layers=1),
        {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32,
         "expert_shared_feed_forward_length": 40}),
    "qwen3": ("qwen3", "Qwen3", dict(head_dim=32, num_attention_heads=3, num_key_value_heads=1),
              {"attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 32, "attention.head_count": 3,
               "attention.head_count_kv": 1}),
    "qwen3moe": ("qwen3moe", "Qwen3Moe", dict(
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True, decoder_sparse_step=1,
        num_hidden_layers=1),
        {"expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 32}),
    "gemma3": ("gemma3", "Gemma3Text", dict(
        sliding_window=9, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        num_hidden_layers=3, query_pre_attn_scalar=HEAD_DIM, final_logit_softcapping=12.0,
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0))),
        {"attention.sliding_window": 9, "attention.sliding_window_pattern": [True, False, True],
         "final_logit_softcapping": 12.0, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "phi3": phi3(24, 29),
    "phi3-short": phi3(64, 128),
    "smollm3": ("smollm3", "SmolLM3", dict(num_hidden_layers=4), {}),
    "granite": ("granite", "Granite", dict(
        embedding_multiplier=6.0, residual_multiplier=0.25, attention_multiplier=0.125, logits_scaling=4.0),
        {"embedding_scale": 6.0, "residual_scale": 0.25, "attention.scale": 0.125, "logit_scale": 4.0}),
    "gemma2": ("gemma2", "Gemma2", dict(
        sliding_window=9, num_hidden_layers=3, query_pre_attn_scalar=HEAD_DIM, attn_logit_softcapping=2.0,
        final_logit_softcapping=12.0),
        {"attention.sliding_window": 9, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 12.0}),
    "gpt-oss": gpt_oss(FF),
    "gpt-oss-mxfp4": gpt_oss(64),
}

# transformers' names of what stands once, and in each layer, and the file's.
ONCE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight"}
LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.qkv_proj.weight": "attn_qkv.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "self_attn.o_proj.bias": "attn_output.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.gate_up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
}
GEMMA = dict(LAYER, **{
    "post_attention_layernorm.weight": "post_attention_norm.weight", "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight"})
GPT_OSS = dict(LAYER, **{
    "post_attention_layernorm.weight": "post_attention_norm.weight", "self_attn.sinks": "attn_sinks.weight",
    "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias"})
NAMES = {"gemma2": GEMMA, "gemma3": GEMMA, "gpt-oss": GPT_OSS}  # LAYER where an architecture is not here
GEMMAS = ("gemma2", "gemma3")
SIDE_BY_SIDE = ("llama", "granite", "smollm3")  # architectures whose files have the pairs of RoPE side by side


def is_mxfp4(name, tensor):
    """Whether the file of a model stores a tensor, by either of its names, in MXFP4: matrices of experts."""
    return name.endswith("mxfp4") and "exp" in tensor and "bias" not in tensor


def through_mxfp4(w):
    """What MXFP4 makes of [experts][columns][rows], as transformers has them: blocks run along the columns."""
    rows = np.ascontiguousarray(w.swapaxes(1, 2))
    mxfp4 = gguf.GGMLQuantizationType.MXFP4
    return gguf.quants.dequantize(gguf.quants.quantize(rows, mxfp4), mxfp4).reshape(rows.shape).swapaxes(1, 2)


def randomise(model, name_of_model, arch, seed):
    """Weights of the sizes that the head of this file promises, each exactly an f16."""
    rng = np.random.default_rng(seed)
    for name, p in model.named_parameters():
        shape = tuple(p.shape)
        if "norm" in name:
            w = rng.uniform(0.5, 1.5, shape) - (1 if arch in GEMMAS else 0)
        elif "embed_tokens" in name:
            w = rng.standard_normal(shape) * 0.5
        elif len(shape) == 1:
            w = rng.standard_normal(shape) * 0.5
        else:
            w = rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])
        w = w.astype(np.float16).astype(np.float32)
        if "norm" in name and arch in GEMMAS:  # the file has 1 added, which has to be exact too
            w = (w + 1).astype(np.float16).astype(np.float32) - 1
        p.data = torch.from_numpy(np.ascontiguousarray(through_mxfp4(w) if is_mxfp4(name_of_model, name) else w))


def side_by_side(w, n_heads):
    """Rows (i, i + d/2) of each head to (2i, 2i + 1)."""
    return w.reshape(n_heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tensors(model, arch, config):
    tied = config.tie_word_embeddings
    for name, w in model.state_dict().items():
        w = w.numpy()
        if name in ONCE:
            if not (tied and name == "lm_head.weight"):
                yield ONCE[name], w + 1 if arch in GEMMAS and "norm" in name else w
            continue
        _, _, layer, rest = name.split(".", 3)
        if arch == "gpt-oss" and rest.startswith("mlp.experts.gate_up_proj"):  # one beside the other, not one behind
            kind = "bias" if rest.endswith("bias") else "weight"
            for i, part in enumerate(("gate", "up")):
                yield f"blk.{layer}.ffn_{part}_exps.{kind}", w[..., i::2] if kind == "bias" else w[..., i::2].swapaxes(1, 2)
            continue
        if arch == "gpt-oss" and rest == "mlp.experts.down_proj":
            w = w.swapaxes(1, 2)
        if rest == "mlp.experts.gate_up_proj":
            half = w.shape[1] // 2
            yield f"blk.{layer}.ffn_gate_exps.weight", w[:, :half]
            yield f"blk.{layer}.ffn_up_exps.weight", w[:, half:]
            continue
        to = NAMES.get(arch, LAYER)[rest]
        if arch in SIDE_BY_SIDE and to.startswith(("attn_q.", "attn_k.")):
            w = side_by_side(w, config.num_attention_heads if to[5] == "q" else config.num_key_value_heads)
        if arch in GEMMAS and "norm" in to:
            w = w + 1
        yield f"blk.{layer}.{to}", w.reshape(-1) if "shexp" in to and w.shape[0] == 1 else w
    rope = config.rope_parameters
    if rope.get("rope_type") == "llama3":
        plain = rope["rope_theta"] ** -(np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        yield "rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)


def byte_tokens():
    """GPT-2's spelling of the 256 bytes, a merged token and two special ones."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = {b: 256 + i for i, b in enumerate(b for b in range(256) if b not in prints)}
    return [chr(others.get(b, b)) for b in range(256)] + ["ab", "<|im_start|>", "<|im_end|>"]


def put_key(writer, key, value):
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float) or key.endswith("freq_base"):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_uint32(key, value)


def make(name, seed):
    arch, config_name, options, keys = MODELS[name]
    sizes = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=2,
                 num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
                 max_position_embeddings=CONTEXT, tie_word_embeddings=True, rms_norm_eps=1e-5, pad_token_id=0,
                 bos_token_id=None, eos_token_id=None)
    config = getattr(transformers, config_name + "Config")(**dict(sizes, **options))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomise(model, name, arch, seed)
    model.tie_weights()
    rng = np.random.default_rng(seed + 1000)
    tokens = rng.integers(0, 256, TOKENS)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].float().numpy()

    writer = gguf.GGUFWriter(os.path.join(FOLDER, name + ".gguf"), arch)
    base = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": config.num_hidden_layers,
            "feed_forward_length": FF, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
            "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM,
            "attention.layer_norm_rms_epsilon": 1e-5}
    base["rope.freq_base"] = config.rope_parameters.get("full_attention", config.rope_parameters)["rope_theta"]
    for key, value in dict(base, **keys).items():
        put_key(writer, f"{arch}.{key}", value)
    writer.add_string("general.name", f"tiny random {name}")
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "llama-bpe")
    writer.add_array("tokenizer.ggml.tokens", byte_tokens())
    writer.add_array("tokenizer.ggml.token_type", [1] * 257 + [3] * 2)
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    writer.add_array("golden.tokens", tokens.tolist())
    writer.add_array("golden.logits", logits.reshape(-1).tolist())
    for tensor, w in tensors(model, arch, config):
        if is_mxfp4(name, tensor):
            mxfp4 = gguf.GGMLQuantizationType.MXFP4
            codes = gguf.quants.quantize(np.ascontiguousarray(w), mxfp4)
            assert np.array_equal(gguf.quants.dequantize(codes, mxfp4).reshape(w.shape), w), tensor
            writer.add_tensor(tensor, codes, raw_dtype=mxfp4)
            continue
        is_vector = w.ndim == 1 or tensor.endswith(".bias")
        half = w.astype(np.float16)
        assert is_vector or np.array_equal(half.astype(np.float32), w), tensor
        writer.add_tensor(tensor, np.ascontiguousarray(w if is_vector else half))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(name, "logits' norm", np.linalg.norm(logits, axis=1).mean())


for number, model_name in enumerate(MODELS):
    if len(sys.argv) == 1 or model_name in sys.argv[1:]:
        make(model_name, number)
