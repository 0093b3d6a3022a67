#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""real_logits.py [MODEL.gguf ..]: logits of real models against transformers' float32 pass on the same weights.

For each model (default: the two of `make real-models`) four prompts of 500 to 4000 tokens: conversations in many
scripts, prose from two places, and code.  Pleat's cache is f32.  Prints for each prompt the mean and the largest KLD of
its positions and how many have the same likeliest token, and exits 1 if a mean is above 1e-5 or fewer than 99.9 % agree.

Weights are dequantised by the gguf package.  real_logits.c is compiled with cc against build/libpleat.so, or LIBPLEAT.
Needs accelerate, gguf, torch and transformers from the package index; some minutes.
"""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ("build/real/SmolLM2-135M-Instruct.Q4_1.gguf", "build/real/gemma-3-270m-q4_k_m.gguf")
PROSE, CODE, SCRIPTS = "eval/prose.txt", "src/gguf/gguf.c", "tests/check/chat/conversations"
ROWS = 64  # positions that are compared at once
KLD, SAME = 1e-5, 0.999


def texts():
    """(name, text, tokens)"""
    prose = (ROOT / PROSE).read_text(encoding="utf-8")
    scripts = "\n".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / SCRIPTS).iterdir()))
    return (("conversations", scripts, 500), ("prose from its middle", prose[len(prose) // 2:], 1000),
            ("code", (ROOT / CODE).read_text(encoding="utf-8"), 2000), ("prose", prose, 4000))


def compiled(folder):
    library = pathlib.Path(os.environ.get("LIBPLEAT", ROOT / "build/libpleat.so")).resolve()
    program = os.path.join(folder, "real_logits")
    subprocess.run(["cc", "-O2", "-std=c17", f"-I{ROOT}/include", str(ROOT / "tests/long/real_logits.c"), str(library),
                    f"-Wl,-rpath,{library.parent}", "-o", program], check=True)
    return program


def reference_of(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    return model.eval()


def divergence(ours, theirs):
    """(KLD of each row, whether its likeliest token is the same)"""
    p, q = (torch.log_softmax(x.double(), -1) for x in (theirs, ours))
    return (p.exp() * (p - q)).sum(-1).numpy(), (p.argmax(-1) == q.argmax(-1)).numpy()


@torch.no_grad()
def compare(program, path, model, text, n_most, folder):
    """(positions, mean KLD, largest, share of the same likeliest tokens) of one prompt."""
    file = os.path.join(folder, "text")
    pathlib.Path(file).write_text(text, encoding="utf-8")
    with subprocess.Popen([program, str(path), file, str(n_most)], stdout=subprocess.PIPE) as ours:
        n, n_vocab = struct.unpack("<II", ours.stdout.read(8))
        ids = torch.from_numpy(np.frombuffer(ours.stdout.read(4 * n), dtype="<i4").astype(np.int64))
        hidden = model.model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        parts = []
        for at in range(0, n, ROWS):
            rows = hidden[at:at + ROWS]
            mine = np.frombuffer(ours.stdout.read(4 * n_vocab * len(rows)), dtype="<f4").reshape(len(rows), n_vocab)
            parts.append(divergence(torch.from_numpy(mine.copy()), model.lm_head(rows)))
    if ours.returncode:
        sys.exit(f"real_logits.py: real_logits ended with {ours.returncode}")
    kld, same = (np.concatenate(part) for part in zip(*parts))
    return n, kld.mean(), kld.max(), same.mean()


def main():
    paths = [pathlib.Path(p).resolve() for p in sys.argv[1:]] or [ROOT / p for p in MODELS]
    n_failed = 0
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        for path in paths:
            model = reference_of(path)
            for name, text, n_most in texts():
                n, mean, most, same = compare(program, path, model, text, n_most, folder)
                is_good = mean <= KLD and same >= SAME
                n_failed += not is_good
                print(f"{'ok  ' if is_good else 'FAIL'} {path.name}, {name}, {n} tokens: mean KLD {mean:.2e}, "
                      f"largest {most:.2e}, same top 1 {100 * same:.2f} %", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
