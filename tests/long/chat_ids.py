#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""chat_ids.py MODEL.gguf: the token ids of each conversation, by the tokenizers package and the file's own template.

Prints a line "CONVERSATION COUNT HASH" for each of tests/check/chat/conversations, sorted, HASH being the FNV-1a of the ids
as 32-bit little-endian words, or "raises" where the template raises.  tests/check/model/chat_ids.txt is its output for
SmolLM2-135M-Instruct.

The text is transformers' (apply_chat_template renders it so, and tokenizes it without adding special tokens).  The
tokenizer is put together here, from the file's vocabulary, merges and special tokens, with the pre-tokenizer that the
model's tokenizer.json has.  AutoTokenizer.from_pretrained(..., gguf_file=...) of transformers 5.23 does not serve: it
reads <|im_start|> as nine ordinary tokens.

Needs gguf, jinja2, tokenizers and transformers from the package index.
"""
import json
import pathlib
import struct
import sys

import gguf
from chat_reference import FixedTime, fnv1a, render
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers.utils import chat_template_utils

CONTROL, USER_DEFINED = 3, 4  # token types
HERE = pathlib.Path(__file__).parent.parent / "check"


def strings(reader, key):
    field = reader.fields[key]
    return [bytes(field.parts[i]).decode() for i in field.data]


def tokenizer_of(reader):
    tokens, merges = strings(reader, "tokenizer.ggml.tokens"), strings(reader, "tokenizer.ggml.merges")
    types = [int(reader.fields["tokenizer.ggml.token_type"].parts[i][0])
             for i in reader.fields["tokenizer.ggml.token_type"].data]
    made = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)},
                                merges=[tuple(merge.split(" ")) for merge in merges]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.add_special_tokens([AddedToken(token, normalized=False, special=True)
                             for token, kind in zip(tokens, types) if kind in (CONTROL, USER_DEFINED)])
    return made, tokens


def main():
    chat_template_utils.datetime = FixedTime
    reader = gguf.GGUFReader(sys.argv[1])
    template = strings(reader, "tokenizer.chat_template")[0]
    if reader.fields["tokenizer.ggml.pre"].contents() != "smollm":
        sys.exit("chat_ids.py: only the pre-tokenizer 'smollm' is known here")
    made, tokens = tokenizer_of(reader)
    special = {f"{name}_token": tokens[reader.fields[f"tokenizer.ggml.{key}_token_id"].contents()]
               for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}
    for path in sorted((HERE / "chat" / "conversations").glob("*.json")):
        context = {**special, **json.loads(path.read_text())}
        text = render(template, context)
        if not isinstance(text, str):
            print(path.stem, 0, "raises")
            continue
        ids = made.encode(text, add_special_tokens=False).ids
        print(path.stem, len(ids), fnv1a(struct.pack(f"<{len(ids)}I", *ids)))


if __name__ == "__main__":
    main()
