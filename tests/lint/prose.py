#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""prose.py RULE FILE...: what can be counted of the documents' prose and of the comments of struct fields.

    lines       .md   a line has at most 110 columns; code, tables and a single word too long to break apart
    sentences   .md   a sentence has fewer than 40 words, the first one of a paragraph or list item fewer than 25
    comments    .c    a sentence in a block comment (of .h, .cu and .cuh too) has fewer than 40 words
    fields      .h    the comment behind a struct field or enum value stands alone: it neither begins with words that
                      lean on the line above nor ends in a comma that leads to the line below
    self-test         each rule finds what it has to find in a few lines of bad prose, and nothing in good prose

Prints one line for each breach.  Code between backquotes is one word, a link is its text, and what holds no letter
or digit is no word.  A table's cells have to keep the rule of 40 words, not that of 25.  In a comment, lines that are set
in by two columns or more are pictures, formulas, tables or code: they end the sentence before them and count no words."""
import re
import sys

MAX_COLUMNS = 110
MAX_WORDS = 40  # of a sentence, exclusive
MAX_FIRST = 25  # of a paragraph's first sentence, exclusive

ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])\s+")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|et al|vs|cf|ca|[Ff]igs?|[Ss]ec|[Tt]ab|pp?|No|Eq)\.$")
LEANING = re.compile(
    r"(likewise|as (above|before|below|are|is)|the same|of (these|those|them|it|that|both)|and|or|but|nor|also|ditto|then|"
    r"that|those|these|its others|so many)\b", re.IGNORECASE)
C_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
FIELD = re.compile(r"^\s*[\w*].*[;,]\s*/\*\s*(?P<text>.*)$")


# ---- the text of a document ------------------------------------------------------------------------------------------


def plain(text):
    """Inline Markdown as words: code is one word, a link is its text."""
    text = re.sub(r"(`+).+?\1", "Code", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<https?:[^>]*>", "Link", text)
    return re.sub(r"[*_]{1,3}(\S[^*_]*)[*_]{1,3}", r"\1", text)


def sentences(text):
    """Cut at . ! ? before white space, but not behind an abbreviation."""
    out, begin = [], 0
    for end in re.finditer(r"[.!?][\"')\]]*(?=\s)", text):
        if ABBREVIATION.search(text[begin:end.end()]):
            continue
        out.append(text[begin:end.end()])
        begin = end.end()
    return [s for s in out + [text[begin:]] if s.strip()]


def n_words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def is_code_start(line, in_paragraph, in_item):
    return line.startswith("    ") and not in_paragraph and not in_item


def walk(lines):
    """Yield (kind, first line's number, text): kind is 'paragraph', 'cell' or 'prose line' (every line of neither code
    nor table, for its width)."""
    fence, paragraph, first, in_item, in_code = None, [], 0, False, False
    for number, line in enumerate(lines + [""], 1):
        bare = line.strip()
        mark = re.match(r"\s*(```+|~~~+)", line)
        ends = not bare or bare.startswith(("#", "|", "<")) or mark or ITEM.match(line)
        if fence is None and ends and paragraph:
            yield "paragraph", first, " ".join(paragraph)
            paragraph = []
        if mark:
            fence = mark.group(1)[:3] if fence is None else None if bare.startswith(fence) else fence
            continue
        if fence is not None or not bare:
            in_code = False if not bare else in_code
            continue
        if not line.startswith(" ") and not ITEM.match(line) and not paragraph:
            in_item = False
        if is_code_start(line, bool(paragraph), in_item) or (in_code and line.startswith("    ")):
            in_code = True
            continue
        if bare.startswith("|"):
            for cell in bare.strip("|").split("|"):
                yield "cell", number, cell.strip()
            continue
        yield "prose line", number, line
        if bare.startswith(("#", "<")) or re.match(r"\[[^\]]+\]:", bare):
            continue
        if ITEM.match(line):
            in_item = True
            bare = ITEM.sub("", line).strip()
        if not paragraph:
            first = number
        paragraph.append(bare.lstrip("> "))


# ---- rules -------------------------------------------------------------------------------------------------------------


def rule_lines(lines):
    for kind, number, text in walk(lines):
        if kind != "prose line" or len(text) <= MAX_COLUMNS:
            continue
        if len(ITEM.sub("", text).split()) > 1:
            yield number, f"{len(text)} columns, more than {MAX_COLUMNS}"


def rule_sentences(lines):
    for kind, number, text in walk(lines):
        if kind == "prose line":
            continue
        for idx, sentence in enumerate(sentences(plain(text))):
            n = n_words(sentence)
            begin = " ".join(sentence.split()[:6])
            if kind == "paragraph" and idx == 0 and n >= MAX_FIRST:
                yield number, f"a paragraph's first sentence has {n} words, not below {MAX_FIRST}: {begin} ..."
            elif n >= MAX_WORDS:
                yield number, f"a sentence has {n} words, not below {MAX_WORDS}: {begin} ..."


def comment_lines(comment):
    """The text of a block comment line by line, without what marks it as one."""
    first, *rest = comment[2:-2].split("\n")
    yield first.strip("* ")
    for line in rest:
        yield re.sub(r"^\s*\*? ?", "", line).rstrip()


def comment_paragraphs(lines):
    """Yield (first line's number, text) of what a file's block comments say in prose."""
    source = "\n".join(lines)
    for token in C_TOKEN.finditer(source):
        if not token.group().startswith("/*"):
            continue
        paragraph, first = [], 0
        number = source.count("\n", 0, token.start())
        for number, text in enumerate([*comment_lines(token.group()), ""], number + 1):
            is_prose = bool(text) and not text.startswith("  ")
            if paragraph and (not is_prose or ITEM.match(text)):
                yield first, " ".join(paragraph)
                paragraph = []
            if is_prose:
                first = first if paragraph else number
                paragraph.append(text)


def rule_comments(lines):
    for number, text in comment_paragraphs(lines):
        for sentence in sentences(text):
            n = n_words(sentence)
            if n >= MAX_WORDS:
                begin = " ".join(sentence.split()[:6])
                yield number, f"a comment's sentence has {n} words, not below {MAX_WORDS}: {begin} ..."


def rule_fields(lines):
    in_comment, of_field, last = False, False, ""
    for number, line in enumerate(lines, 1):
        if in_comment:
            last = line
        else:
            field = FIELD.match(line)
            of_field = field is not None
            if field:
                lean = LEANING.match(field.group("text"))
                if lean:
                    yield number, f'a field\'s comment begins with "{lean.group(0)}"; it has to stand alone'
            if "/*" not in line:
                continue
            last = line
        in_comment = "*/" not in last[last.rfind("/*") if "/*" in last else 0:]
        if not in_comment and of_field and re.search(r",\s*\*/\s*$", last):
            yield number, "a field's comment ends in a comma; it has to stand alone"


RULES = {"lines": rule_lines, "sentences": rule_sentences, "comments": rule_comments, "fields": rule_fields}


# ---- self test -----------------------------------------------------------------------------------------------------------


def self_test():
    """(rule, lines, breaches wanted)"""
    w24, w39 = "Word " * 23 + "end.", "word " * 38 + "end."
    cases = [
        ("lines", ["a " * 56], 1), ("lines", ["a " * 55 + "\n"], 0), ("lines", ["- " + "x" * 200], 0),
        ("lines", ["```", "a " * 80, "```", "", "    " + "a " * 80, "", "| " + "a " * 80], 0),
        ("lines", ["- item", "", "  " + "b " * 70], 1), ("lines", ["```", "```", "a " * 80], 1),
        ("sentences", [w24, w39], 0), ("sentences", ["Word " + w24], 1), ("sentences", [w24, "word " + w39], 1),
        ("sentences", ["- " + w24, "- one " + w24], 1), ("sentences", ["1. one " + w24], 1),
        ("sentences", ["| " + w39 + " | word " + w39 + " |"], 1), ("sentences", ["> one " + w24], 1),
        ("sentences", ["`a b c d e f g h i j k` = + - " * 8 + w24[:50]], 0),
        ("sentences", ["Sheng et al. found it, e.g. " + w24], 1),
        ("sentences", ["Four for V. " + w24, "- two"], 0),
        ("comments", ["/* " + w39 + "  " + w39 + " */"], 0), ("comments", ["/* word " + w39 + " */"], 1),
        ("comments", ["int a; /* word", "        * " + w39 + " */", "/* word", w39 + " */"], 2),
        ("comments", ["/* word", " *", " * " + w39, " *     word " + w39, " */"], 0),
        ("comments", ["/* word:", " *     x = y", " * " + w39, " * - " + w39, " */"], 0),
        ("comments", ["// word " + w39, 'x = "/* word ' + w39 + ' */";', "/* word */ int a; /* " + w39 + " */"], 0),
        ("fields", ["int a; /* bytes, */"], 1), ("fields", ["int a; /* and so on */"], 1),
        ("fields", ["int a; /* Likewise */", "A, /* that of b */", "B, /* thatched */"], 2),
        ("fields", ["int a; /* bytes,", "        * of a page, */", "int b; /* android */"], 1),
        ("fields", ["/* and a comment of a function, */", "int f(int a, /* x */ int b);"], 0),
    ]
    for rule, lines, wanted in cases:
        found = list(RULES[rule]([line.rstrip("\n") for line in lines]))
        if len(found) != wanted:
            yield f"prose.py: {rule} finds {len(found)} breaches, not {wanted}, in {lines[:2]}"


def main(rule, paths):
    if rule == "self-test":
        print("".join(f"{line}\n" for line in self_test()), end="")
        return
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        for number, text in RULES[rule](lines):
            print(f"{path}:{number}: {text}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
