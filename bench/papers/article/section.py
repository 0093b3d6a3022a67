# SPDX-License-Identifier: MIT
"""What the tables share: sections that name the article and a formula, and numbers as text."""
from lab import page


class Section(page.Section):
    """One table of the article: what it says, ours, what was wrong, and how ours is computed or was measured."""

    def __init__(self, key, title, says):
        super().__init__(key, title, says)
        self.how = ""

    def formula(self, text):
        self.how = text

    def text(self, remark=None):
        text = super().text(remark).replace("**Paper.**", "**Article.**", 1)
        before, mark, ran = text.partition("\n\nMeasured ")
        return before + (f"\n\nComputed: {self.how}." if self.how else "") + (f"\n\nRan {ran}" if mark else "")


def gib(v):
    """Two digits, and no more than needed."""
    return f"{v:.2f}".rstrip("0").rstrip(".")


def ratio(v, digits=1):
    return f"{v:.{digits}f}".removesuffix(".0") + "x"
