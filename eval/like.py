#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes text like the tasks', for `pleat stats --text`: samples that choose, of tasks.jsonl and of sums.py in turn.

    python3 eval/like.py >like.txt

`pleat stats` reads the first half of a text: so as much follows that is nothing.  The same text everywhere.
"""
import json
import os
import random
import subprocess
import sys

import documents

HERE = os.path.dirname(os.path.abspath(__file__))
MOST, PART, MORE = 90000, 1500, 2000  # characters: in all, of a part at least, and beyond that at most


def texts(lines):
    """Of the half that chooses, each as a text."""
    samples = [s for s in map(json.loads, lines) if not documents.shows(s["id"])]
    return ["".join(t["prompt"] + t["answer"] + "<|im_end|>\n" for t in s["turns"]) for s in samples]


def part(samples):
    text = ""
    while len(text) < PART and samples:
        text += samples.pop(0)
    return text[:PART + MORE]


def main():
    with open(os.path.join(HERE, "tasks.jsonl"), encoding="utf-8") as file:
        tasks = texts(file)
    sums = [sys.executable, os.path.join(HERE, "sums.py"), "--samples", "40"]
    sums = texts(subprocess.run(sums, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout.splitlines())
    draw = random.Random(1)
    for samples in tasks, sums:
        draw.shuffle(samples)
    out = ""
    while len(out) < MOST and (tasks or sums):
        out += part(tasks) + part(sums)
    out = out.encode()
    sys.stdout.buffer.write(out + b"\n" + b"\n".join([b"x" * 10] * (len(out) // 11)))


if __name__ == "__main__":
    main()
