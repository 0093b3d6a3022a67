#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""chat_reference.py TEMPLATES [OUT]: what transformers makes of each template and conversation.

TEMPLATES is a folder of *.jinja files, as build/real/templates; conversations are those of
tests/check/chat/conversations.  Prints a line "TEMPLATE CONVERSATION HASH" for each pair, sorted, HASH being the FNV-1a of
the text in UTF-8, or "raises" where the template raises or has no value that UTF-8 can hold.  With OUT, also writes
each text to OUT/TEMPLATE/CONVERSATION, to look at.  tests/check/chat/rendered.txt is its output.

Needs jinja2 and transformers from the package index; the time is the second 1767323045 since 1970, in UTC.
"""
import datetime
import json
import os
import pathlib
import sys
import time

os.environ["TZ"] = "UTC"
time.tzset()
from transformers.utils import chat_template_utils  # noqa: E402  (after the time zone)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(1767323045, tz)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def render(template, context):
    """The text, or the exception."""
    context = json.loads(json.dumps(context))
    messages = context.pop("messages")
    try:
        texts, _ = chat_template_utils.render_jinja_template([messages], chat_template=template, **context)
        texts[0].encode()
        return texts[0]
    except Exception as why:  # whatever the template does
        return why


def main():
    chat_template_utils.datetime = FixedTime
    here = pathlib.Path(__file__).parent.parent / "check" / "chat" / "conversations"
    conversations = {path.stem: json.loads(path.read_text()) for path in sorted(here.glob("*.json"))}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        template = path.read_bytes().decode()
        for name, context in conversations.items():
            text = render(template, context)
            is_text = isinstance(text, str)
            print(path.stem, name, fnv1a(text.encode()) if is_text else "raises")
            if len(sys.argv) > 2:
                out = pathlib.Path(sys.argv[2]) / path.stem / name
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_bytes(text.encode() if is_text else f"RAISES {text!r}".encode())


if __name__ == "__main__":
    main()
