"""Names for things that an experiment file or the command line can ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mlmclm.errors import unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to classes or functions, and answers a wrong name with the nearest right one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        """What is registered, in the singular, as error messages call it."""
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register the decorated thing under ``name``.

        Raises:
            ValueError: if the name is taken.
        """

        def decorate(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return decorate

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        return sorted(self._entries)

    def get(self, name: str) -> T:
        """Return what is registered under ``name``.

        Raises:
            UserError: if nothing is, with the nearest name and the list of known ones.
        """
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def name_of(self, entry: object) -> str:
        """Return the name of a registered thing, or of the class of an instance.

        Raises:
            KeyError: if it was never registered.
        """
        for name, known in self._entries.items():
            if known is entry or known is type(entry):
                return name
        raise KeyError(f"not a registered {self.kind}: {entry!r}")
