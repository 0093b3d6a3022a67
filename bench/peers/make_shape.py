#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF of random weights with Llama 3 8B's shape, for peers to be measured with: no text comes out of it.

    python3 bench/peers/make_shape.py OUT.gguf [--layers 32] [--vocab 128256]

Matrices are Q4_K, as `pleat bench run --shape llama3-8b --weights q4_k` makes them; norms are 1.  4.5 GB.  There is no
tokenizer: the file names a vocabulary's size alone, which llama.cpp's family takes and Pleat does not.

Needs gguf and numpy from the package index.
"""
import argparse

import gguf
import numpy as np

EMBD, FF, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128
BLOCK, BLOCK_BYTES = 256, 144  # Q4_K: d and dmin as f16, 12 bytes of scales, 128 of codes
SCALE = 2.0**-11               # of d and dmin: weights of about 0.02


def random_blocks(n):
    """n blocks; a million random ones in turn."""
    some = np.random.default_rng(5).integers(0, 256, (min(n, 1 << 20), BLOCK_BYTES), dtype=np.uint8)
    some[:, :4] = np.frombuffer(np.array([SCALE / 8, SCALE], dtype=np.float16).tobytes(), dtype=np.uint8)
    return np.resize(some, (n, BLOCK_BYTES))


def matrix(writer, name, rows, cols):
    blocks = random_blocks(rows * cols // BLOCK)
    writer.add_tensor(name, blocks.reshape(rows, cols // BLOCK * BLOCK_BYTES),
                      raw_dtype=gguf.GGMLQuantizationType.Q4_K)


def vector(writer, name):
    writer.add_tensor(name, np.ones(EMBD, dtype=np.float32))


def layer(writer, i):
    matrices = {"attn_q": (HEADS * HEAD_DIM, EMBD), "attn_k": (KV_HEADS * HEAD_DIM, EMBD),
                "attn_v": (KV_HEADS * HEAD_DIM, EMBD), "attn_output": (EMBD, HEADS * HEAD_DIM),
                "ffn_gate": (FF, EMBD), "ffn_up": (FF, EMBD), "ffn_down": (EMBD, FF)}
    for name in ("attn_norm", "ffn_norm"):
        vector(writer, f"blk.{i}.{name}.weight")
    for name, shape in matrices.items():
        matrix(writer, f"blk.{i}.{name}.weight", *shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=128256)
    options = parser.parse_args()
    writer = gguf.GGUFWriter(options.out, "llama", use_temp_file=True)
    writer.add_context_length(8192)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(options.layers)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_vocab_size(options.vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_tokenizer_model("no_vocab")
    matrix(writer, "token_embd.weight", options.vocab, EMBD)
    for i in range(options.layers):
        layer(writer, i)
    vector(writer, "output_norm.weight")
    matrix(writer, "output.weight", options.vocab, EMBD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
