#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""chat_cases.py: fill in what transformers' jinja2 makes of each template in tests/check/chat/cases.jsonl.

A line is {"template": ..., "want": ...}; "want" is null where the template raises.  All have the context in the file's first
line.  To add a case, append {"template": ...} and run this; it rewrites the file.  Needs jinja2 and transformers.
"""
import json
import os
import pathlib
import time

os.environ["TZ"] = "UTC"
time.tzset()
from chat_reference import FixedTime  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

FILE = pathlib.Path(__file__).parent.parent / "check" / "chat" / "cases.jsonl"


def want(template, context):
    """The text; None where there is an exception."""
    try:
        return chat_template_utils._compile_jinja_template(template).render(**json.loads(json.dumps(context)))
    except Exception:  # whatever the template does
        return None


def main():
    chat_template_utils.datetime = FixedTime
    first, *lines = FILE.read_text().splitlines()
    context = json.loads(first)
    with FILE.open("w") as out:
        print(first, file=out)
        for line in lines:
            template = json.loads(line)["template"]
            print(json.dumps({"template": template, "want": want(template, context)}), file=out)


if __name__ == "__main__":
    main()
