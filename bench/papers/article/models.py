# SPDX-License-Identifier: MIT
"""Shapes of the models that the article names, from their config.json, and what follows from a shape: bytes."""
import collections

GIB = 2**30

Model = collections.namedtuple("Model", "layers kv_heads head_dim q_heads hidden inner vocab tied")

MODELS = {
    "llama3-8b": Model(32, 8, 128, 32, 4096, 14336, 128256, False),
    "llama3-70b": Model(80, 8, 128, 64, 8192, 28672, 128256, False),
    "llama3.1-405b": Model(126, 8, 128, 128, 16384, 53248, 128256, False),
    "llama3.2-1b": Model(16, 8, 64, 32, 2048, 8192, 128256, True),
    "mistral-7b": Model(32, 8, 128, 32, 4096, 14336, 32768, False),  # v0.3
    "gpt4-guess": Model(120, 16, 128, None, None, None, None, None),  # the article's estimate; weights unknown
}


def params(m):
    """Of a Llama: attention, a gated MLP and two norms in each layer; embedding, output (unless tied), a last norm."""
    attention = 2 * m.hidden * m.head_dim * (m.q_heads + m.kv_heads)
    layer = attention + 3 * m.hidden * m.inner + 2 * m.hidden
    return m.layers * layer + m.vocab * m.hidden * (1 if m.tied else 2) + m.hidden


def weights_gb(name, given=None):
    """In f16; `given` where the shape is not known."""
    m = MODELS[name]
    return given if m.hidden is None else 2 * params(m) / 1e9


def lane_bytes(kv, head_dim):
    """One token's keys and values in one lane, as pleat_format_token_bytes() has them: kXvY keeps a scale and a minimum
    of two bytes each for the keys and for the values of a token."""
    if kv == "f16":
        return 4 * head_dim
    k_bits, v_bits = (int(x) for x in kv[1:].split("v"))
    return head_dim * (k_bits + v_bits) // 8 + 8


def kv_bytes(name, tokens, batch=1, kv="f16"):
    m = MODELS[name]
    return m.layers * m.kv_heads * lane_bytes(kv, m.head_dim) * tokens * batch


def kv_gib(*args, **kwargs):
    return kv_bytes(*args, **kwargs) / GIB
