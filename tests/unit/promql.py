"""As much of PromQL as our alerts use: reads an expression, and refuses what Prometheus would refuse. Evaluates nothing."""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:(?P<duration>\d+(?:ms|[smhdwy]))(?![\w.])|(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_:][\w:]*)|(?P<text>"(?:[^"\\]|\\.)*")
        |(?P<sign>==|!=|>=|<=|=~|!~|[-+*/%^<>=(){}\[\],]))""",
    re.VERBOSE,
)
_LEVELS = ({"or"}, {"and", "unless"}, {"==", "!=", ">", "<", ">=", "<="}, {"+", "-"}, {"*", "/", "%"}, {"^"})
_SETS, _COMPARISONS = {"or", "and", "unless"}, {"==", "!=", ">", "<", ">=", "<="}
_AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
_FUNCTIONS = {
    "rate": ("range", "vector"),
    "increase": ("range", "vector"),
    "delta": ("range", "vector"),
    "max_over_time": ("range", "vector"),
    "absent": ("vector", "vector"),
    "time": (None, "scalar"),
}


class Refused(ValueError):
    """It is no expression."""


@dataclass
class Expression:
    """What an expression reads."""

    kind: str
    """vector, range or scalar."""
    metrics: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    """Each with the labels that are asked of it."""
    ranged: set[str] = field(default_factory=set)
    """Names of what is read as a counter, by `rate` or `increase`."""


def read(text: str) -> Expression:
    """Raises: Refused."""
    reader = _Reader(text)
    found = reader.operation(0)
    if reader.peek():
        raise Refused(f"{reader.peek()!r} is left over in {text!r}")
    if found.kind != "vector":
        raise Refused(f"{text!r} is a {found.kind} and no alert")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._tokens, place = text, list[tuple[str, str]](), 0
        while text[place:].strip():
            if not (match := _TOKEN.match(text, place)):
                raise Refused(f"{text[place:]!r} is nothing that PromQL knows")
            self._tokens.append((match.lastgroup or "", match[match.lastgroup or ""]))
            place = match.end()

    def peek(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def operation(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._operand()
        left = self.operation(level + 1)
        while self.peek() in _LEVELS[level]:
            sign, labels = self._take(), self._matching()
            right = self.operation(level + 1)
            left = _joined(sign, left, right, labels)
        return left

    def _operand(self) -> Expression:
        kind, token = self._tokens.pop(0) if self._tokens else ("", "")
        if kind == "number":
            return Expression("scalar")
        if token == "(":
            found = self.operation(0)
            self._expect(")")
            return found
        if kind != "name":
            raise Refused(f"{token!r} is no operand in {self._text!r}")
        if token in _AGGREGATIONS and self.peek() in {"by", "without", "("}:
            return self._aggregation()
        return self._call(token) if self.peek() == "(" else self._selector(token)

    def _aggregation(self) -> Expression:
        labels = (self._take(), self._labels())[1] if self.peek() in {"by", "without"} else frozenset[str]()
        self._expect("(")
        found = self.operation(0)
        self._expect(")")
        if found.kind != "vector":
            raise Refused(f"a {found.kind} cannot be aggregated in {self._text!r}")
        return Expression("vector", [(name, asked | labels) for name, asked in found.metrics], found.ranged)

    def _call(self, name: str) -> Expression:
        if name not in _FUNCTIONS:
            raise Refused(f"{name} is no function that is known here")
        takes, gives = _FUNCTIONS[name]
        self._expect("(")
        given = self.operation(0) if takes else Expression("")
        self._expect(")")
        if takes and given.kind != takes:
            raise Refused(f"{name} takes a {takes}, not a {given.kind}, in {self._text!r}")
        counters = {metric for metric, _ in given.metrics} if name in {"rate", "increase"} else set[str]()
        return Expression(gives, given.metrics, given.ranged | counters)

    def _selector(self, name: str) -> Expression:
        labels = self._matchers() if self.peek() == "{" else frozenset[str]()
        if self.peek() != "[":
            return Expression("vector", [(name, labels)])
        self._expect("[")
        if not self._tokens or self._tokens[0][0] != "duration":
            raise Refused(f"{self.peek()!r} is no duration in {self._text!r}")
        self._take()
        self._expect("]")
        return Expression("range", [(name, labels)])

    def _matchers(self) -> frozenset[str]:
        labels = set()
        self._expect("{")
        while self.peek() != "}":
            labels.add(self._name())
            if (sign := self._take()) not in {"=", "!=", "=~", "!~"}:
                raise Refused(f"{sign!r} matches no label in {self._text!r}")
            if not self._tokens or self._tokens[0][0] != "text":
                raise Refused(f"{self.peek()!r} is no text in {self._text!r}")
            value = self._take()[1:-1]
            if sign.endswith("~"):
                re.compile(value)
            if self.peek() != "}":
                self._expect(",")
        self._expect("}")
        return frozenset(labels)

    def _matching(self) -> frozenset[str]:
        return (self._take(), self._labels())[1] if self.peek() in {"on", "ignoring"} else frozenset[str]()

    def _labels(self) -> frozenset[str]:
        labels = set()
        self._expect("(")
        while self.peek() != ")":
            labels.add(self._name())
            if self.peek() != ")":
                self._expect(",")
        self._expect(")")
        return frozenset(labels)

    def _name(self) -> str:
        if not self._tokens or self._tokens[0][0] != "name":
            raise Refused(f"{self.peek()!r} is no name in {self._text!r}")
        return self._take()

    def _take(self) -> str:
        return self._tokens.pop(0)[1] if self._tokens else ""

    def _expect(self, sign: str) -> None:
        if (found := self._take()) != sign:
            raise Refused(f"{found!r} instead of {sign!r} in {self._text!r}")


def _joined(sign: str, left: Expression, right: Expression, labels: frozenset[str]) -> Expression:
    kinds = {left.kind, right.kind}
    if "range" in kinds or (sign in _SETS and kinds != {"vector"}) or (sign in _COMPARISONS and kinds == {"scalar"}):
        raise Refused(f"{sign} between a {left.kind} and a {right.kind}")
    metrics = [(name, asked | labels) for name, asked in left.metrics + right.metrics]
    return Expression("vector" if "vector" in kinds else "scalar", metrics, left.ranged | right.ranged)
