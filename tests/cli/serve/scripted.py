# SPDX-License-Identifier: MIT
"""scripted.py FILE TEMPLATE SCRIPTS: a GGUF of a model that says what it is told.

SCRIPTS is JSON: {"A": ["piece", "piece"], ...}.  A prompt whose last token is A is answered by these pieces and the end of
the text, greedily.  Each piece is a token.  One-hot embeddings, layers that add nothing, and an output matrix that leads
from each piece to the next: an answer depends on nothing but the token before it.  A piece "<|x|>" is a special token.
"""
import json
import struct
import sys

STRING, U32, F32, ARRAY, I32 = 8, 4, 6, 9, 5


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    return text(v) if kind == STRING else struct.pack({U32: "<I", F32: "<f", I32: "<i"}[kind], v)


def array(kind, values):
    return ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(value(kind, v) for v in values)


def names_of_bytes():
    """GPT-2's letters for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


target, template, scripts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
letters = names_of_bytes()
spell = lambda s: "".join(letters[b] for b in s.encode())
tokens, kinds, next_of = [letters[b] for b in range(256)], [1] * 256, {}
tokens.append("<|end|>")
kinds.append(3)
for begin, pieces in scripts.items():
    at = ord(begin)
    for piece in pieces:
        special = piece.startswith("<|") and piece.endswith("|>") or piece == "[TOOL_CALLS]"
        name = piece if special else spell(piece)
        assert name not in tokens, f"{piece} has its token already"
        next_of[at] = len(tokens)
        at = len(tokens)
        tokens.append(name)
        kinds.append(3 if special else 1)
    next_of[at] = 256

width, vocab = 64 * (1 + len(next_of) // 64), len(tokens)
place = {token: i for i, token in enumerate(next_of)}  # of its one
embeddings, output = [[0.0] * width for _ in range(vocab)], [[0.0] * width for _ in range(vocab)]
for token, following in next_of.items():
    embeddings[token][place[token]] = 1.0
    output[following][place[token]] = 1.0
flat = lambda rows: [x for row in rows for x in row]
zeros = [0.0] * (width * width)
tensors = {"token_embd.weight": ([width, vocab], flat(embeddings)), "output.weight": ([width, vocab], flat(output)),
           "output_norm.weight": ([width], [1.0] * width)}
for name in ("attn_norm", "ffn_norm"):
    tensors[f"blk.0.{name}.weight"] = ([width], [1.0] * width)
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    tensors[f"blk.0.{name}.weight"] = ([width, width], zeros)

fields = {
    "general.architecture": (STRING, "llama"), "llama.context_length": (U32, 512), "llama.embedding_length": (U32, width),
    "llama.block_count": (U32, 1), "llama.feed_forward_length": (U32, width),
    "llama.attention.head_count": (U32, width // 64), "llama.attention.head_count_kv": (U32, width // 64),
    "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5), "llama.rope.freq_base": (F32, 1e4),
    "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "gpt-2"),
    "tokenizer.ggml.tokens": array(STRING, tokens), "tokenizer.ggml.token_type": array(I32, kinds),
    "tokenizer.ggml.merges": array(STRING, []), "tokenizer.ggml.eos_token_id": (U32, 256),
    "tokenizer.chat_template": (STRING, template),
}
out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
for key, (kind, v) in fields.items():
    out += text(key) + struct.pack("<I", kind) + (v if kind == ARRAY else value(kind, v))
body = b""
for name, (shape, values) in tensors.items():
    out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(body))
    body += struct.pack(f"<{len(values)}f", *values)
    body += b"\0" * (-len(body) % 32)
open(target, "wb").write(out + b"\0" * (-len(out) % 32) + body)
