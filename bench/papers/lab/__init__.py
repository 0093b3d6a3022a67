# SPDX-License-Identifier: MIT
"""What the papers' programs share; a paper's own figures and tables stand in its folder.

    lab.py       runs commands, keeps what they print, knows how much is left; the options that all programs have
    page.py      sections, tables, sentences that the numbers choose, writing a page, exit codes
    fill.py      paragraphs of Markdown to 110 columns
    samples.py   specs on blocks of the task samples, and what the blocks say about noise

A paper is a package beside this one, PAPER/run.py its program.  run.py puts bench/papers on the path in place of its
own folder, so modules are named by their package alone: `from lab import page`, `from leankv import printed`.
PAPER/printed.py has what the paper prints: SAYS, a sentence or two for each figure and table by its key, and its
numbers.
"""
