# SPDX-License-Identifier: MIT
"""The real models, and the specs that each is measured with, in the families of the page's tables."""
import collections

# full_lanes: lanes (layer and KV head) of layers without a window; head_dim: of keys and values.
Model = collections.namedtuple("Model", "name title path full_lanes head_dim")
MODELS = (Model("smollm2", "SmolLM2-135M-Instruct, Q4_1", "build/real/SmolLM2-135M-Instruct.Q4_1.gguf", 90, 64),
          Model("gemma3", "Gemma 3 270M, Q4_K_M", "build/real/gemma-3-270m-q4_k_m.gguf", 3, 256))
CONTEXTS = (4096, 8192)
REFERENCE, HIGH = "f16", "k8v4"  # what all are compared with; leankv's high format

# Stand-ins: what the calibration chose for the model, and leankv without significance in as many bytes.
CALIBRATED, CONTROL = "leankv, calibrated", "its control"
OFF = 1000000  # the ah that no attention reaches

EVICTING = ("h2o", "snapkv", "pyramidkv", "adakv", "streaming", "recent", "random")
# What one command measures beside f16, so that little is lost when it is stopped.
FAMILIES = {
    "One format": ("k8v8", "k8v4", "k4v8", "k4v4", "k4v2", "k2v2"),
    "Blocks": ("kvcomp", "kvcomp:k=0.13,v=0.25,buffer=94", "kvcomp+pack", "kivi:bits=4", "kivi:bits=2"),
    "Steps and codebooks of the model": ("rd", "rd:k=0.2,v=1.4", "rd:k=0.24,v=1.7"),
    "Rotated": ("h4v4", "h3v3", "h3v2", "h2v2"),
    "Two levels": ("leankv", CALIBRATED, CONTROL, "topk:keep=50%", "topk:keep=25%"),
    "Half of the tokens": tuple(f"{policy}:budget=50%" for policy in EVICTING),
    "A quarter of the tokens": (*(f"{policy}:budget=25%" for policy in EVICTING), "snapkv:budget=25%+kvcrush"),
}

# leankv's points that the calibration measures.
POINTS = tuple(f"leankv:ah={ah},al=0,window={window}" for window in (64, 256) for ah in (1, 3, 10, 30))


def lean(ah, window):
    return f"leankv:ah={ah},al=0,window={window}"


def window_of(spec):
    return int(spec.rpartition("window=")[2])
