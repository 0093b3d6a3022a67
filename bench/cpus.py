#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What formats and blocks gain on this CPU, by instruction set: one table, of `pleat bench attn`, `codec` and `run`.

    python3 bench/cpus.py [--masks 255,1] [--parts attention,codec,generation,prompts,busy] [--rounds 3] [--out FILE]

Each line has a figure for each mask of --cpu-mask (255: all that there is, 1: AVX2) and what was asked of it.  Figures
are ratios within one run.  The masks take turns, round after round; medians over the rounds, least and most beside.

    attention    decode attention of one layer, 32/8 heads of 128, 8192 tokens, 2 threads: times f16's speed
    codec        decoding on one core: times zstd's Huffman
    generation   64 tokens of the reference model after 4000: times f16's speed
    prompts      2048 tokens of it with leankv's scoring: times f16's speed
    busy         beside a process that keeps one core busy, f16: two threads over the quiet machine, and over one thread

Exit codes: 0 ok, 1 a measurement failed or FILE cannot be written, 2 wrong usage, 130 interrupted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLEAT = os.path.join(ROOT, "build", "pleat")
MODEL = os.path.join(ROOT, "models", "pleat-28m-q8_0.gguf")
STEPS = "k=0.1,v=0.2,buffer=94,high=k8v8"  # kvcomp's, as README recommends them
HUFFMAN, PACK, KIVI = f"kvcomp:{STEPS}", f"kvcomp:{STEPS}+pack", "kivi:bits=2"

# What was asked: by part, then line: with AVX2, with AVX-512.
ASKED = {
    "attention": {"k8v8": (1.75, 1.75), "k8v4": (2.2, 2.3), "k4v4": (2.5, 2.8), "k4v2": (2.8, 3.3), KIVI: (1.3, 2.0),
                  PACK: (1.3, 2.0), HUFFMAN: (0.5, 1.5)},
    "codec": {HUFFMAN: (1.0, 5.0), PACK: (None, None), KIVI: (None, None)},
    "generation": {HUFFMAN: (0.9, 1.2), PACK: (None, None), "k8v4": (None, None)},
    "prompts": {"leankv": (0.95, 0.95)},
    "busy": {"prompt, over quiet": (0.62, 0.62), "generation, over quiet": (0.62, 0.62),
             "prompt, over one thread": (1.0, 1.0), "generation, over one thread": (1.0, 1.0)},
}
SPIN = "while True: pass"


class Failed(Exception):
    pass


def bench(what, mask, *words):
    """The rows that `pleat bench` prints."""
    argv = [PLEAT, "bench", what, "-q", "--format", "json", "--cpu-mask", str(mask), *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or [f"pleat bench {what} ended with {done.returncode}"])[-1])
    return json.loads(done.stdout)["rows"]


def speeds(mask, *words):
    """tokens/s of each row of `bench run` on the reference model."""
    return [row["tokens_per_s"] for row in bench("run", mask, "-m", MODEL, *words)]


def kvs(*specs):
    return [word for spec in specs for word in ("--kv", spec)]


def over_first(names, values):
    return {name: value / values[0] for name, value in zip(names, values[1:])}


def attention(mask):
    specs = list(ASKED["attention"])
    rows = bench("attn", mask, "-t", "2", "-r", "15", *kvs("f16", *specs))
    found = {name: row["speed_to_first"] for name, row in zip(specs, rows[1:])}
    found["f16, share of the read bandwidth"] = rows[0]["fraction_of_peak"]
    return found


def codec(mask):
    specs = list(ASKED["codec"])
    rows = bench("codec", mask, "-r", "7", "--head-dim", "64", "--ctx", "8192", *kvs(*specs))
    if any(row["decode_to_huffman"] is None for row in rows):
        raise Failed("codec: this pleat was built without zstd, whose Huffman decoding is divided by")
    return {name: row["decode_to_huffman"] for name, row in zip(specs, rows)}


def generation(mask):
    specs = list(ASKED["generation"])
    return over_first(specs, speeds(mask, "-t", "2", "-p", "0", "-n", "64", "-d", "4000", "-r", "1", *kvs("f16", *specs)))


def prompts(mask):
    return over_first(["leankv"], speeds(mask, "-t", "2", "-p", "2048", "-n", "0", "-r", "2", *kvs("f16", "leankv")))


def busy(mask):
    words = ["-p", "1024", "-n", "768", "-r", "2", *kvs("f16")]  # of seconds: in less, who has which core is chance
    quiet = speeds(mask, "-t", "2", *words)
    with subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True) as other:
        try:
            two, one = speeds(mask, "-t", "2", *words), speeds(mask, "-t", "1", *words)
        finally:
            other.kill()
    found = {}
    for i, name in enumerate(("prompt", "generation")):
        found[f"{name}, over quiet"] = two[i] / quiet[i]
        found[f"{name}, over one thread"] = two[i] / one[i]
    return found


PARTS = {f.__name__: f for f in (attention, codec, generation, prompts, busy)}


def measure(options):
    """{(part, line): {mask: [figure of each round]}}"""
    found = {}
    for i in range(options.rounds):
        for part in options.parts:
            for mask in options.masks:
                print(f"cpus.py: round {i + 1}, {part}, mask {mask}", file=sys.stderr, flush=True)
                for line, figure in PARTS[part](mask).items():
                    found.setdefault((part, line), {}).setdefault(mask, []).append(figure)
    return found


def cell(figures, asked):
    text = f"{statistics.median(figures):.2f}"
    if len(figures) > 1:
        text += f" ({min(figures):.2f} to {max(figures):.2f})"
    if asked is not None:
        text += f", asked {asked:g}" + ("" if statistics.median(figures) >= asked else ": **not met**")
    return text


def table(found, options):
    lines = ["| part | line | " + " | ".join(f"mask {mask}" for mask in options.masks) + " |",
             "|---" * (2 + len(options.masks)) + "|"]
    for (part, line), by_mask in found.items():
        asked = ASKED[part].get(line, (None, None))
        cells = [cell(by_mask[mask], asked[mask != 1]) for mask in options.masks]
        lines.append(f"| {part} | {line} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def list_of(convert):
    return lambda text: [convert(word) for word in text.split(",")]


def part_of(word):
    if word not in PARTS:
        raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(PARTS)}")
    return word


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--masks", type=list_of(int), default=[255, 1], help="of --cpu-mask (default 255,1)")
    parser.add_argument("--parts", type=list_of(part_of), default=list(PARTS), help="which parts (default all)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--out", help="write the table to FILE instead of stdout")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def main():
    options = parse()
    try:
        text = table(measure(options), options)
        if not options.out:
            print(text, end="")
            return 0
        with open(options.out, "w", encoding="utf-8") as out:
            out.write(text)
    except (Failed, OSError) as error:
        print(f"cpus.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
