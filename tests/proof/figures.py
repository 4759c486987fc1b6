"""What a proof finds out: figures, each beside what was asked for. Each part returns some; `__main__` prints and keeps them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

Say = Callable[[str], None]
"""Tells a person how far it is."""


class Figure(NamedTuple):
    name: str
    measured: str
    asked: str
    met: bool
    detail: str = ""


class Proof(Protocol):
    """What each part's module offers. `seed` makes its random choices again; `quick` is a smoke run: same code, small counts."""

    def prove(self, say: Say, *, seed: int, quick: bool) -> list[Figure]: ...


def skipped(name: str, asked: str, why: str) -> Figure:
    """What this machine cannot show. It is not met: a proof that silently stops to run is one that silently stops to prove."""
    return Figure(name, "SKIPPED", asked, False, why.upper())


def at_most(name: str, measured: float, limit: float, unit: str = "", detail: str = "") -> Figure:
    return Figure(name, _told(measured, unit), f"<= {_told(limit, unit)}", measured <= limit, detail)


def none_of(name: str, found: list[str]) -> Figure:
    """Nothing was found that breaks the rule `name`; what was is told, the first of it."""
    return Figure(name, str(len(found)), "0", not found, "; ".join(found[:3]))


def _told(number: float, unit: str) -> str:
    return f"{number:,.3g} {unit}".rstrip() if abs(number) < 1000 else f"{number:,.0f} {unit}".rstrip()
