"""WikiText's layout (Merity et al. 2016, arXiv:1609.07843): one line a paragraph or heading.

A line `` = Title = `` between two blank lines starts an article; deeper headings do not.
"""

from __future__ import annotations

import io
import re
from itertools import pairwise

TITLE = re.compile(r"^ ?= [^=\n].* = ?$")


def lines_of(text: str) -> list[str]:
    """Cut after each line feed. Others that Unicode calls line ends (U+2028) stay inside."""
    return list(io.StringIO(text))


def articles(text: str) -> tuple[str, ...]:
    """Cut a text before each title; blank text before the first one belongs to the first article.

    Returns:
        Articles that, joined, are ``text``; the whole text as one where there is no title.
    """
    lines = lines_of(text)
    blank = [not line.strip() for line in lines] + [True]
    starts = [
        number
        for number, line in enumerate(lines)
        if TITLE.match(line.rstrip("\r\n"))
        and (number == 0 or blank[number - 1])
        and blank[number + 1]
    ]
    if starts and not "".join(lines[: starts[0]]).strip():
        starts[0] = 0
    edges = sorted({0, *starts, len(lines)})
    return tuple("".join(lines[a:b]) for a, b in pairwise(edges))
