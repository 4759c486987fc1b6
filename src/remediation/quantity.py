"""Quantities: `500m`, `256Mi`, `1.5`, `1e3`, compared as numbers, written as Kubernetes would.

Exact (fractions), so that 256Mi is more than 256M and nothing is rounded. Knows nothing of what is measured beyond `cpu` (thousandths) and
bytes. Neighbours: the causes size limits with it, `manifest.agreement` compares a file with the evidence.
"""

import re
from fractions import Fraction

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?|[+-]?\.[0-9]{1,30})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")


def amount(quantity: object) -> Fraction | None:
    """The number that `quantity` stands for; None where it is no quantity."""
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        return None
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _BINARY.get(suffix or "-", _DECIMAL.get(suffix or ""))
    return Fraction(number) * scale if scale is not None else None


def cpu(value: Fraction) -> str:
    """Processors, rounded down to a thousandth: `1500m`, `2`."""
    thousandths = value.numerator * 1000 // value.denominator
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def memory(value: Fraction) -> str:
    """Bytes, rounded down to a mebibyte where there is one: `256Mi`, `2Gi`."""
    size = value.numerator // value.denominator
    for unit in ("Gi", "Mi"):
        if size >= _BINARY[unit] and (unit == "Mi" or size % _BINARY[unit] == 0):
            return f"{size // _BINARY[unit]}{unit}"
    return str(size)
