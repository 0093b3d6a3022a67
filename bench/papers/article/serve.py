# SPDX-License-Identifier: MIT
"""Tables of a whole server: watermarks, tenants, prefixes, end to end.  They come from `pleat bench serve` and are "
  "not on
the page before that command exists: add their functions to LIST, each one of the shape of the others (memory.py)."""


def serve(bench, *args):
    """The record of one `pleat bench serve`."""
    return bench.lab.measure("serve", "bench", "serve", "-m", bench.model, *args, "--format", "json", "-q")


def serve_tables():
    """Functions bench -> Section, in the article's order."""
    return ()
