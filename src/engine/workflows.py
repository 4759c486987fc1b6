"""The workflows that a process can run: a name and a version for each function.

They are found through the entry-point group `suture.workflows`, so that a team's image adds its own by being installed.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from suture.engine.retry import Retry
from suture.errors import InvalidRequest, UnknownWorkflow

GROUP = "suture.workflows"

Function = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True)
class Workflow:
    name: str
    version: int
    function: Function
    retry: Retry
    input: TypeAdapter[Any]
    output: TypeAdapter[Any]

    def read_input(self, value: object) -> Any:
        """The input as the function's own type.

        Raises: InvalidRequest that names each wrong field.
        """
        try:
            return self.input.validate_python(value, strict=None)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, ('input', *e['loc'])))}: {e['msg']}" for e in error.errors(include_input=False, include_url=False)
            )
            raise InvalidRequest(f"The input does not fit {self.name}: {wrong}.") from None


def workflow(name: str, *, version: int = 1, retry: Retry | None = None) -> Callable[[F], F]:
    """Mark `async def function(run, input) -> output` as the workflow `name`.

    `retry` is for failures between steps, and the default of each step.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", name):
        raise ValueError(f"workflow name {name!r}: use up to 63 lower-case letters, digits, dots and hyphens")

    def mark(function: F) -> F:
        function.__dict__["__workflow__"] = (name, version, retry or Retry())
        return function

    return mark


@dataclass(slots=True)
class Workflows:
    """A registry."""

    known: dict[str, Workflow] = field(default_factory=dict)

    @classmethod
    def discover(cls) -> "Workflows":
        """All that the installed distributions offer."""
        found = cls()
        for point in entry_points(group=GROUP):
            for function in _marked(import_module(point.value)):
                found.add(function)
        return found

    def add(self, function: Function) -> Function:
        name, version, retry = function.__dict__["__workflow__"]
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) != 2:
            raise TypeError(f"workflow {name}: the function takes (run, input), not ({', '.join(parameters)})")
        if name in self.known and self.known[name].function is not function:
            raise ValueError(f"workflow {name} is defined twice")
        adapters = TypeAdapter(hints.get(parameters[1], Any)), TypeAdapter(hints.get("return", Any))
        self.known[name] = Workflow(name, version, function, retry, *adapters)
        return function

    def get(self, name: str) -> Workflow:
        """Raises: UnknownWorkflow that lists what is known."""
        try:
            return self.known[name]
        except KeyError:
            known = ", ".join(sorted(self.known)) or "none"
            raise UnknownWorkflow(f"There is no workflow {name!r}. Known here: {known}.") from None

    def __iter__(self) -> Iterator[Workflow]:
        return iter(self.known.values())


def _marked(module: Any) -> Iterator[Any]:
    return (f for f in vars(module).values() if callable(f) and "__workflow__" in getattr(f, "__dict__", {}))
