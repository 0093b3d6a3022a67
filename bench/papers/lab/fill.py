#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fills paragraphs and list items of Markdown to 110 columns; tables, code blocks, headings and comments stay.

    python3 bench/papers/lab/fill.py FILE...      in place

A code span or a link's address is broken only if it does not fit in a line by itself.
"""
import re
import sys
import textwrap

WIDTH = 110
GLUE = "\0"  # a space that stays within its line
ITEM = re.compile(r"( *)([-*]|\d+\.) +")
# What, at the start of a line, would begin a list, a quotation or a heading; and a number's
# per cent or error.
STRAY = re.compile(r" (?=([-+*>]|#+|=+|\d+[.)]|\|.*)( |$))|(?<=\d) (?=[%±])|(?<=±) (?=\d)")


def fill_one(lines):
    """The lines of one paragraph or list item."""
    item = ITEM.match(lines[0])
    first = item.group(0) if item else re.match(" *", lines[0]).group(0)
    rest = " " * len(first)
    text = " ".join([lines[0][len(first):].strip(), *(line.strip() for line in lines[1:])])
    room = WIDTH - len(rest)
    text = re.sub(r"`[^`]+`|\]\([^)]*\)", lambda m: m[0].replace(" ", GLUE) if len(m[0]) < room else m[0], text)
    text = STRAY.sub(GLUE, text)
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False, expand_tabs=False, replace_whitespace=False).replace(GLUE, " ")


def fill(text):
    out, paragraph, is_code = [], [], False

    def flush():
        if paragraph:
            out.append(fill_one(paragraph))
            paragraph.clear()

    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        if is_fence or is_code or not line.strip() or line.startswith(("|", "#", "<!--", "    ")) and not paragraph:
            flush()
            out.append(line)
        elif line.startswith(("|", "#", "<!--")):
            flush()
            out.append(line)
        else:
            if ITEM.match(line):
                flush()
            paragraph.append(line)
        is_code ^= is_fence
    flush()
    return "\n".join(out)


def main(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(fill(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
