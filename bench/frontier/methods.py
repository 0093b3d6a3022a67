# SPDX-License-Identifier: MIT
"""What the frontier's pictures and tables compare: models, and ways to keep a cache by families."""
from models import specs

# The model of this project, which the other scripts know by other names: 8 layers of 4 KV heads.
REFERENCE_MODEL = specs.Model("pleat", "the reference model", "models/pleat-28m-q8_0.gguf", 32, 64)
MODELS = (REFERENCE_MODEL, *specs.MODELS)

# A family: what the pictures call it, and its specs.
FAMILIES = {
    "One format": ("k8v8", "k8v4", "k4v4", "k4v2", "k2v2"),
    "leankv": ("leankv:ah=3,al=0", "leankv:ah=10,al=0,window=256", "leankv:ah=30,al=0,window=256"),
    "leankv without significance": ("leankv:ah=1000000,al=0,window=64", "leankv:ah=1000000,al=0,window=256"),
    "kvcomp": ("kvcomp:k=0.06,v=0.15,buffer=94,high=k8v8", "kvcomp", "kvcomp:k=0.13,v=0.25,buffer=94,high=k8v8",
               "kvcomp:k=0.2,v=0.35,buffer=94,high=k8v8"),
    "kivi": ("kivi:bits=4", "kivi:bits=2"),
    "rd": ("rd:k=0.08,v=0.6", "rd:k=0.12,v=0.9", "rd", "rd:k=0.16,v=1.15", "rd:k=0.165,v=1.2,fine=448,sinks=1,buffer=30",
           "rd:k=0.2,v=1.4"),
    "rotated": ("h4v4", "h3v3", "h3v2", "h2v2"),
    "snapkv": ("snapkv:budget=50%", "snapkv:budget=25%"),
    "h2o": ("h2o:budget=50%", "h2o:budget=25%"),
    "streaming": ("streaming:budget=50%", "streaming:budget=25%"),
    "random": ("random:budget=50%", "random:budget=25%"),
    "novel": ("novel:budget=50%", "novel:budget=25%"),
    "novel by the model's mean": ("novel:budget=50%,mean=model", "novel:budget=25%,mean=model",
                                  "novel:budget=25%,format=k8v8,mean=model"),
    "novel with neighbours": ("novel:budget=50%,mean=model,near=2", "novel:budget=25%,mean=model,near=2"),
    "leverage": ("leverage:budget=50%", "leverage:budget=25%"),
    "novel behind another": ("snapkv:budget=50%+novel", "snapkv:budget=25%+novel", "snapkv:budget=25%+novel:mean=model",
                             "snapkv:budget=12.5%+novel", "h2o:budget=25%+novel", "adakv:budget=25%+novel"),
    "with merge": tuple(f"{kv}+merge" for kv in ("snapkv:budget=50%", "snapkv:budget=25%", "h2o:budget=50%", "h2o:budget=25%",
                                                 "novel:budget=50%", "novel:budget=25%")),
    "expected": ("expected:budget=50%", "expected:budget=25%"),
    "dropkv": ("dropkv:budget=50%", "dropkv:budget=25%"),
    "kvzip": ("kvzip:budget=50%", "kvzip:budget=25%"),
    "auto": ("auto:bytes=20%",),
}

# What docs/MODELS.md has of a real model's prose, by families, beside those of the same names above.
OF_MODELS = {
    "leankv": ("leankv", "leankv:ah=1,al=0,window=256"),
    "leankv without significance": ("leankv:ah=1000000,al=0,window=560", "leankv:ah=1000000,al=0,window=3614"),
    "kvcomp": ("kvcomp:k=0.13,v=0.25,buffer=94",),
    "rd": ("rd:k=0.24,v=1.7",),
    "topk": ("topk:keep=50%", "topk:keep=25%"),
}

# What one command measures beside f16, so that little is lost when it is stopped, and f16 is not measured too often.
GROUPS = (("One format",), ("leankv", "leankv without significance"), ("kvcomp", "kivi"),
          ("snapkv", "h2o", "streaming", "random", "novel"), ("novel by the model's mean",),
          ("rd", "rotated"), ("novel behind another",), ("expected",), ("auto",), ("dropkv",), ("kvzip",), ("with merge",),
          ("novel with neighbours", "leverage"))

# What is asked of documents with the question in sight, too: a sentence below the table.
SEEN = ("snapkv:budget=50%", "snapkv:budget=25%")
