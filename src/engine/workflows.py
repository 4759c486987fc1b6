"""The workflows that a process can run: a name and a version for each function.

They are found through the entry-point group `suture.workflows`, so that a team's image adds its own by being installed. Several versions
of one may stand side by side: an execution runs on the code of its own version, or else of the next newer one.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from suture.engine.retry import Retry
from suture.errors import ConfigError, InvalidRequest, UnknownWorkflow

GROUP = "suture.workflows"

Function = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A function that can be run, with its name and version, and the types of what goes in and comes out."""

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
            return self.input.validator.validate_python(value)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, ('input', *e['loc'])))}: {e['msg']}" for e in error.errors(include_input=False, include_url=False)
            )
            raise InvalidRequest(f"The input does not fit {self.name}: {wrong}.") from None


def workflow(name: str, *, version: int = 1, retry: Retry | None = None) -> Callable[[F], F]:
    """Mark `async def function(run, input) -> output` as the workflow `name`.

    `retry` is for failures between steps, and the default of each step. A worker claims executions of `version` and of older ones; an
    older one runs on its own version's code where that is still registered, and on the next newer code where it is not, which may tell
    the two apart by `run.patched`.
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
    """The newest version of each, by name."""
    versions: dict[str, dict[int, Workflow]] = field(default_factory=dict)
    """All that are registered, by name and version."""

    @classmethod
    def discover(cls, modules: Sequence[str] = ()) -> "Workflows":
        """All that the installed distributions offer, and those of `modules`. See `discover`."""
        return discover(modules)

    def add(self, function: Function) -> Function:
        """Raises: ValueError for another function of the same name and version."""
        name, version, retry = marked(function)
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) != 2:
            raise TypeError(f"workflow {name}: the function takes (run, input), not ({', '.join(parameters)})")
        others = self.versions.setdefault(name, {})
        if version in others and others[version].function is not function:
            raise ValueError(f"workflow {name} is defined twice in version {version}")
        adapters = TypeAdapter(hints.get(parameters[1], Any)), TypeAdapter(hints.get("return", Any))
        others[version] = Workflow(name, version, function, retry, *adapters)
        self.known[name] = others[max(others)]
        return function

    def get(self, name: str, version: int | None = None) -> Workflow:
        """The code for an execution of `version`: its own, or else the next newer one; the newest when none is asked for.

        Raises: UnknownWorkflow that lists what is known.
        """
        if name not in self.known:
            known = ", ".join(sorted(self.known)) or "none"
            raise UnknownWorkflow(f"There is no workflow {name!r}. Known here: {known}.")
        if version is None:
            return self.known[name]
        if version in self.versions[name]:
            return self.versions[name][version]
        fit = [registered for registered in self.versions[name] if registered >= version]
        if not fit:
            raise UnknownWorkflow(f"The workflow {name!r} is known here up to version {self.known[name].version}, not {version}.")
        return self.versions[name][min(fit)]

    def named(self, workflow: str | Function) -> tuple[str, int]:
        """Name and version of a workflow function, or of the newest version that is known here by its name; 1 when none is."""
        if not isinstance(workflow, str):
            return marked(workflow)[:2]
        return workflow, self.known[workflow].version if workflow in self.known else 1

    def __iter__(self) -> Iterator[Workflow]:
        """The newest version of each: what a worker claims by."""
        return iter(self.known.values())


def discover(modules: Sequence[str] = ()) -> Workflows:
    """The workflows of the entry-point group `suture.workflows` and of `modules`, e.g. "billing.workflows" or "billing.workflows:charge".

    An entry point, and a module here, names a module, all of whose workflows are taken, or one function.
    Raises: ConfigError that names what cannot be loaded, offers nothing, or offers what another one does.
    """
    found, sources = Workflows(), dict[tuple[str, int], str]()
    for place, source in (*_installed(), *((module, f"the setting for further modules ({module})") for module in modules)):
        for function in _offered(place, source):
            name, version, _ = function.__dict__["__workflow__"]
            earlier = sources.setdefault((name, version), source)
            try:
                found.add(function)
            except ValueError:
                raise ConfigError(
                    f"Two offer the workflow {name} in version {version}: {earlier}, and {source}. Uninstall one, or rename it."
                ) from None
            except (TypeError, NameError) as error:  # its parameters, or names in its annotations that are nowhere
                raise ConfigError(f"The workflow {name} of {source} cannot be used: {error}.") from None
    return found


def marked(function: Function) -> tuple[str, int, Retry]:
    """What `workflow` has said of a function. Raises: TypeError when it has not."""
    mark: tuple[str, int, Retry] | None = getattr(function, "__dict__", {}).get("__workflow__")
    if mark is None:
        raise TypeError(f"{getattr(function, '__qualname__', function)} is no workflow: mark it with @workflow(name).")
    return mark


def _installed() -> Iterator[tuple[str, str]]:
    """Each entry point's place, and what to call it."""
    for point in entry_points(group=GROUP):
        owner = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
        yield point.value, f"the entry point {point.name}{owner} ({point.value})"


def _offered(place: str, source: str) -> list[Function]:
    module, _, name = place.partition(":")
    try:
        found = import_module(module)
        offered = [getattr(found, name)] if name else list(vars(found).values())
    except Exception as error:
        # A plugin is somebody's code, and its import may raise anything: whoever reads this must hear whose it is.
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(
            f"The workflows of {source} cannot be loaded: {said}. Repair it, install what it needs, or uninstall it."
        ) from error
    workflows: list[Any] = [one for one in offered if callable(one) and "__workflow__" in getattr(one, "__dict__", {})]
    if not workflows:
        raise ConfigError(f"There is no workflow in {source}: mark its function with @workflow(name).")
    return workflows
