"""What the user can fix, as opposed to what is a bug.

A `UserError` is shown as one line and ends the program with exit code 2; anything else traces.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Input that the user can correct. The message says what was found, where, and what fits."""


class DivergedError(UserError):
    """Training whose loss is no longer a number."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"``, or nothing where no known name is close."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that nothing is registered under."""
    names = sorted(known)
    return UserError(
        f"no {kind} is called {name!r}{nearest(name, names)} (known: {', '.join(names)})"
    )
