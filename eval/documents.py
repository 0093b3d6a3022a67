#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tasks that ask after a document without having said that they would, for `pleat eval --tasks`.

    python3 eval/documents.py >documents.jsonl                       for any model, in its own chat form
    python3 eval/documents.py --form reference >documents.jsonl      for the reference model, in words that it was taught

Kinds, after those of RULER (Hsieh et al. 2024, arXiv 2404.06654), written anew:

    fact         one fact among prose
    facts        four facts of different sorts, of which one is asked for   (not in the reference form)
    needles      three codes of one thing, told far from each other: all are asked for
    keys         eight facts among prose, of which one is asked for
    lines        nothing but facts, of keys that are alike: one is asked for   (not in the reference form)
    variables    a number that goes from name to name among prose, and another that does so, too: who has the first?
    words        a list of words: which three are in it most often?   (not in the reference form)

A task is a kind and a length, about so many tokens.  The prose is eval/prose.txt's; samples that choose have theirs of its
first half, samples that show of its second (cli/lib/half.h).  The same options write the same bytes everywhere: numbers
come from splitmix64, seeded by the sample's id.  tests/cli/documents.sh holds the files' hashes.
"""
import argparse
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTHS = {"500": 500, "1k": 1000, "2k": 2000, "4k": 3900, "8k": 7800}  # tokens, about: below a power of two with question and form
MASK = 2**64 - 1

ADJECTIVES = ("red silver broken quiet clever tall small green bright hollow ancient narrow golden heavy distant frozen "
              "gentle hidden ivory jolly keen lonely mellow noble orange patient rough sacred tiny upper velvet wooden "
              "young crimson dusty eager faded grand humble iron").split()
NOUNS = ("library station garden harbor museum tower bridge castle market temple factory cottage theatre stable chapel "
         "lantern cellar village kitchen orchard fountain cabin archive bakery gallery shelter quarry pavilion mill "
         "monastery office palace prison school studio tavern vault warehouse workshop zoo").split()
NAMES = ("Wendy Bruno Nadia Hugo Jasper Katya Leon Mira Nils Olga Pavel Quinn Tara Ulric Vera Dmitri Esther Greta "
         "Ingrid Joan Kurt Lena Marco Otto").split()
CITIES = "Ghent London Lisbon Vienna Oslo Prague Madrid Athens Dublin Warsaw Geneva Turin Malmo Riga Sofia Bremen".split()
COLOURS = "violet turquoise orange purple scarlet emerald amber indigo".split()
SHIPS = "Heron Falcon Swallow Dolphin Otter Panther Raven Stork".split()


def mixed(x):
    """splitmix64's last steps."""
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def hashed(text):
    """FNV-1a of 64 bits, mixed."""
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001b3) & MASK
    return mixed(h)


def shows(identity):
    """Whether a sample is of the half that shows; half_shows() of cli/lib/half.c."""
    return hashed(identity) >> 63 == 1


class Numbers:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9e3779b97f4a7c15) & MASK
        return mixed(self.state) % n

    def pick(self, items, n):
        """n of them, in a new order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(n)]

    def distinct(self, low, high, n):
        """n numbers of [low, high), all different."""
        found = []
        while len(found) < n:
            number = low + self.below(high - low)
            if number not in found:
                found.append(number)
        return found


class Prose:
    """The sentences of a half of eval/prose.txt, each with the blanks behind it."""

    def __init__(self):
        with open(os.path.join(HERE, "prose.txt"), "rb") as f:
            data = f.read()
        middle = data.index(b"\n", len(data) // 2) + 1
        self.halves = [re.findall(r'.+?(?:[.!?]["\u201d\')]*\s+|$)', part.decode(), re.S)
                       for part in (data[:middle], data[middle:])]

    def take(self, numbers, half, n_bytes):
        """Sentences that stand behind each other, of about n_bytes."""
        sentences, taken, held = self.halves[half], [], 0
        at = numbers.below(len(sentences))
        while held < n_bytes:
            sentence = sentences[at % len(sentences)]
            if not re.search(r"\d", sentence):  # no number but those that are asked for
                taken.append(sentence)
                held += len(sentence.encode())
            at += 1
        return taken


def mingled(numbers, sentences, facts):
    """The facts in their order between the sentences, each somewhere in a part of its own."""
    parts, n = [], len(facts)
    places = [numbers.below(max(1, len(sentences) * (i + 1) // n - len(sentences) * i // n)) + len(sentences) * i // n
              for i in range(n)]
    for i, sentence in enumerate(sentences):
        parts += [fact + " " for place, fact in zip(places, facts) if place == i] + [sentence]
    return "".join(parts).strip()


def code_of(key, code):
    return f"The code of the {key} is {code}."


def keys_of(numbers, n):
    both = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
    return numbers.pick(both, n)


class Maker:
    """Makes samples of one form: documents, and {question, begin, answers} or turns."""

    def __init__(self, prose):
        self.prose = prose

    def sample(self, kind, length, identity):
        numbers = Numbers(hashed(identity))
        document, asked = getattr(self, kind)(numbers, int(shows(identity)), LENGTHS[length])
        return {"id": identity, "task": f"{kind}-{length}", **self.written(document, asked)}


class AnyModel(Maker):
    kinds = ("fact", "facts", "needles", "keys", "lines", "variables", "words")
    BYTES = 4.0  # of prose a token
    LINE_BYTES, WORD_BYTES = 2.7, 4.6

    @staticmethod
    def written(document, asked):
        question, begin, answers = asked
        return {"document": document, "question": question, "begin": begin, "answers": answers}

    def fact(self, numbers, half, n_tokens):
        key, code = keys_of(numbers, 1)[0], numbers.below(9000) + 1000
        text = mingled(numbers, self.prose.take(numbers, half, n_tokens * self.BYTES), [code_of(key, code)])
        return text, (f"What is the code of the {key}?", f"The code of the {key} is", [str(code)])

    def facts(self, numbers, half, n_tokens):
        people, key = numbers.pick(NAMES, 4), keys_of(numbers, 1)[0]
        code, year = numbers.below(9000) + 1000, numbers.below(90) + 1910
        sorts = [(f"The code of the {key} is", str(code), f"What is the code of the {key}?"),
                 (f"{people[0]} lives in", numbers.pick(CITIES, 1)[0], f"Where does {people[0]} live?"),
                 (f"The favourite colour of {people[1]} is", numbers.pick(COLOURS, 1)[0],
                  f"What is the favourite colour of {people[1]}?"),
                 (f"{people[2]} was born in the year", str(year), f"In which year was {people[2]} born?"),
                 (f"The ship of {people[3]} is called the", numbers.pick(SHIPS, 1)[0],
                  f"What is the ship of {people[3]} called?")]
        told = numbers.pick(sorts, 4)
        text = mingled(numbers, self.prose.take(numbers, half, n_tokens * self.BYTES),
                       [f"{begin} {answer}." for begin, answer, _ in told])
        begin, answer, question = told[numbers.below(4)]
        return text, (question, begin, [answer])

    def needles(self, numbers, half, n_tokens):
        key, codes = keys_of(numbers, 1)[0], numbers.distinct(1000, 10000, 3)
        facts = [f"One of the codes of the {key} is {code}." for code in codes]
        text = mingled(numbers, self.prose.take(numbers, half, n_tokens * self.BYTES), facts)
        return text, (f"What are the three codes of the {key}?", f"The three codes of the {key} are",
                      [str(code) for code in codes])

    def keys(self, numbers, half, n_tokens):
        keys, codes = keys_of(numbers, 8), numbers.distinct(1000, 10000, 8)
        facts = [code_of(key, code) for key, code in zip(keys, codes)]
        text = mingled(numbers, self.prose.take(numbers, half, n_tokens * self.BYTES), facts)
        at = numbers.below(8)
        return text, (f"What is the code of the {keys[at]}?", f"The code of the {keys[at]} is", [str(codes[at])])

    def lines(self, numbers, _half, n_tokens):
        n = int(n_tokens * self.LINE_BYTES / len(code_of("hollow library", 1000) + "\n"))
        keys, codes = keys_of(numbers, n), numbers.distinct(1000, 10000, n)
        at = numbers.below(n)
        return ("\n".join(code_of(key, code) for key, code in zip(keys, codes)),
                (f"What is the code of the {keys[at]}?", f"The code of the {keys[at]} is", [str(codes[at])]))

    def variables(self, numbers, half, n_tokens):
        names, (mine, other) = numbers.pick(NAMES, 6), numbers.distinct(10000, 100000, 2)
        facts = []
        for chain, number in ((names[:3], mine), (names[3:], other)):
            facts.append([f"{chain[0]} has the number {number}."] +
                         [f"{b} has the same number as {a}." for a, b in zip(chain, chain[1:])])
        facts = [fact for pair in zip(*facts) for fact in pair]
        text = mingled(numbers, self.prose.take(numbers, half, n_tokens * self.BYTES), facts)
        return text, (f"Which three persons have the number {mine}?", f"The three persons with the number {mine} are",
                      names[:3])

    def words(self, numbers, _half, n_tokens):
        n = int(n_tokens * self.WORD_BYTES / 8)
        words = numbers.pick(ADJECTIVES + NOUNS, 33)
        often = max(8, n // 10)
        rest = [words[3 + i % 30] for i in range(n - 3 * often)]
        listed = numbers.pick([word for word in words[:3] for _ in range(often)] + rest, n)
        return ("Here is a list of words: " + " ".join(listed),
                ("Which three words stand most often in the list?", "The three words that stand most often in the list are",
                 words[:3]))


class Reference(Maker):
    """The words of eval/tasks.jsonl, which the reference model was trained to answer."""
    kinds = ("fact", "needles", "keys", "variables")
    BYTES = 3.5

    @staticmethod
    def written(document, asked):
        front, turns = f"<|im_start|>user\n{document}\n\n", []
        for question, answer in asked:
            turns.append({"prompt": f"{front}{question}<|im_end|>\n<|im_start|>assistant\n", "answer": answer})
            front = "<|im_end|>\n<|im_start|>user\n"
        return {"turns": turns}

    @staticmethod
    def asked(key, code):
        return f"What is the code of the {key}?", str(code)

    def told(self, numbers, half, n_bytes, n):
        keys, codes = keys_of(numbers, n), numbers.distinct(1000, 10000, n)
        facts = [code_of(key, code) for key, code in zip(keys, codes)]
        left = n_bytes - sum(len(fact) + 1 for fact in facts)
        return mingled(numbers, self.prose.take(numbers, half, max(left, 1)), facts), list(zip(keys, codes))

    def fact(self, numbers, half, n_tokens):
        text, pairs = self.told(numbers, half, n_tokens * self.BYTES, 1)
        return text, [self.asked(*pairs[0])]

    def needles(self, numbers, half, n_tokens):
        text, pairs = self.told(numbers, half, n_tokens * self.BYTES, 4)
        return text, [self.asked(*pair) for pair in numbers.pick(pairs, 3)]

    def keys(self, numbers, half, n_tokens):
        text, pairs = self.told(numbers, half, n_tokens * self.BYTES, n_tokens // 60)
        return text, [self.asked(*numbers.pick(pairs, 1)[0])]

    def variables(self, numbers, half, n_tokens):
        names, cities, codes = numbers.pick(NAMES, 3), numbers.pick(CITIES, 3), numbers.distinct(100, 1000, 3)
        facts = [f"{name} lives in {city}." for name, city in zip(names, cities)]
        facts += [f"The number of {city} is {code}." for city, code in zip(cities, codes)]
        text = mingled(numbers, self.prose.take(numbers, half, n_tokens * self.BYTES), numbers.pick(facts, 6))
        at = numbers.below(3)
        return text, [(f"What is the number of the city where {names[at]} lives?", f"{cities[at]}, {codes[at]}")]


FORMS = {"any": (AnyModel, "1k,2k,4k,8k"), "reference": (Reference, "1k,2k,4k")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=FORMS, default="any", help="default: %(default)s")
    parser.add_argument("--samples", type=int, default=16, help="of each task (default: %(default)s)")
    parser.add_argument("--lengths", help="default: 1k,2k,4k,8k; of the reference form 1k,2k,4k")
    options = parser.parse_args()
    form, lengths = FORMS[options.form]
    lengths = (options.lengths or lengths).split(",")
    if not set(lengths) <= set(LENGTHS):
        parser.error(f"--lengths: of {','.join(LENGTHS)}")
    maker = form(Prose())
    for kind in form.kinds:
        for length in lengths:
            for i in range(options.samples):
                sample = maker.sample(kind, length, f"{kind}-{length}-{i:02d}")
                sys.stdout.write(json.dumps(sample, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
