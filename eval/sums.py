#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes more samples of chain_sum, the task of eval/tasks.jsonl that codecs lose answers of, for `pleat eval --tasks`.

    python3 eval/sums.py --samples 150 >sums.jsonl

Four lengths as there: 4 to 7 numbers, 6 to 19, 6 to 40 and 9 to 55.  The same samples everywhere, the first of each length.
"""
import argparse
import json
import random

MOST = 400  # of a length
LENGTHS = (("300", 4, 7), ("800", 6, 19), ("1600", 6, 40), ("2400", 9, 55))


def sample(identity, numbers):
    total, lines = 0, []
    for n in numbers:
        lines.append(f"{total}+{n}={total + n}")
        total += n
    prompt = f"<|im_start|>user\nAdd the numbers {' '.join(map(str, numbers))} step by step.<|im_end|>\n<|im_start|>assistant\n"
    answer = "\n".join(lines) + f"\n#### {total}"
    return {"id": identity, "task": "chain_sum", "turns": [{"prompt": prompt, "answer": answer}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64, help=f"of each length, up to {MOST} (default: %(default)s)")
    options = parser.parse_args()
    draw = random.Random(22)
    for name, least, most in LENGTHS:
        for i in range(MOST):
            numbers = [draw.randint(1, 99) for _ in range(draw.randint(least, most))]
            if i < options.samples:
                print(json.dumps(sample(f"sums-{name}-{i:03}", numbers)))


if __name__ == "__main__":
    main()
