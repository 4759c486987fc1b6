"""The reference of the library: the public names of `suture.engine`, from its signatures and docstrings. See `reference`, which writes it.

Read from the source text: what stands there is what a reader sees, with the types as they are written.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from suture import engine

READING_ORDER = (
    "workflows",
    "run",
    "retry",
    "engine",
    "runner",
    "lease",
    "database",
    "migrate",
    "queues",
    "schedules",
    "history",
    "records",
)
"""Modules of the engine in the order in which a newcomer meets them; the others follow by name, the errors come last."""

OF_OURS = frozenset({"from_row", "from_json", "to_json"})
"""Methods between a row and its record: no caller needs them."""

HANDED = frozenset({"Child", "Connection", "Done", "Run", "Session"})
"""Classes that a caller is handed and never makes."""

WIDTH = 110

Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


def api_reference() -> str:
    """All public names, a section a module."""
    modules = _modules()
    return "\n".join(line for module in sorted(modules, key=_rank) for line in _section(module, modules[module]))


def undocumented() -> list[str]:
    """Public classes, functions and methods that say nothing of themselves."""
    return [
        f"{name}.{method.name}" if method else name
        for module, names in _modules().items()
        for name in names
        if isinstance(node := _find(module, name), ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for method in [None, *(_methods(node) if isinstance(node, ast.ClassDef) else [])]
        if not ast.get_docstring(method or node)
    ]


def _modules() -> dict[str, list[str]]:
    """The module of each public name."""
    places: dict[str, str] = {}
    for module in _sources():
        for node in _tree(module).body:
            places |= {name: module for name in _names(node) if name in engine.__all__}
    found: dict[str, list[str]] = {}
    for name in engine.__all__:
        found.setdefault(places[name], []).append(name)
    return found


def _sources() -> list[str]:
    """Modules that the engine's front door imports from."""
    return [node.module for node in _tree("suture.engine").body if isinstance(node, ast.ImportFrom) and node.module]


def _rank(module: str) -> tuple[int, str]:
    if module == "suture.errors":
        return len(READING_ORDER) + 1, module
    last = module.rpartition(".")[2]
    return (READING_ORDER.index(last) if last in READING_ORDER else len(READING_ORDER)), module


def _section(module: str, names: list[str]) -> Iterator[str]:
    about = ast.get_docstring(_tree(module)) or ""
    yield from ("", f"## {_title(module)}", "", _prose(about.split("\n\n")[0]).removesuffix(" Pure."))
    order = {name: place for place, name in enumerate(_in_source(module))}
    for name in sorted(names, key=order.__getitem__):
        yield from _entry(module, name)


def _title(module: str) -> str:
    return module.rpartition(".")[2].replace("_", " ").capitalize()


def _in_source(module: str) -> list[str]:
    return [name for node in _tree(module).body for name in _names(node)]


def _entry(module: str, name: str) -> Iterator[str]:
    node = _find(module, name)
    yield from ("", f"### {name}", "")
    match node:
        case ast.ClassDef():
            yield from _class(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (_code(_signature(node)), *_about(node))
        case _:
            yield _code(ast.get_source_segment(_source(module), node) or name)
            yield from _under(module, node)


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = [base for base in map(ast.unparse, node.bases) if base not in {"Protocol", "NamedTuple"}]
    made = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    arguments = _arguments(made) if made else _fields(node)
    kind = f"  # a kind of {', '.join(bases)}" if bases else ""
    bare = node.name in HANDED or not arguments
    yield _code(f"class {node.name}{kind}" if bare else _folded(f"class {node.name}", arguments, kind))
    yield from _about(node)
    documented = dict(_documented(node.body) if not made else _documented([s for f in node.body for s in _assigned(f)]))
    if documented:
        yield ""
        yield from (f"- `{field}`: {text}" for field, text in documented.items())
    for method in _methods(node):
        yield ""
        kind = "property " if _is_property(method) else ""
        yield _code(f"{kind}{_signature(method, of=node.name)}")
        yield from _about(method)


def _fields(node: ast.ClassDef) -> list[str]:
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation)]
    return [text for field in fields if not (text := ast.unparse(field)).startswith("_")]


def _assigned(node: ast.stmt) -> list[ast.stmt]:
    """What `__init__` sets, with the sentences under it."""
    return node.body if isinstance(node, ast.FunctionDef) and node.name == "__init__" else []


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case ((ast.AnnAssign(target=target) | ast.Assign(targets=[target])), ast.Expr(value=ast.Constant(value=str(text)))):
                name = ast.unparse(target).removeprefix("self.")
                if not name.startswith("_") and "," not in name:
                    yield name, _prose(text)


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        method
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_") and method.name not in OF_OURS
    ]


def _is_property(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, of: str = "") -> str:
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    if any("contextmanager" in ast.unparse(decorator) for decorator in node.decorator_list):
        word = "async with" if isinstance(node, ast.AsyncFunctionDef) else "with"
    name = f"{of}.{node.name}" if of else node.name
    if _is_property(node):
        return f"{name} -> {_type(node.returns) if node.returns else 'Any'}"
    return _folded(f"{word} {name}", _arguments(node), f" -> {_type(node.returns)}" if node.returns else "")


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """As the source has them, without the object itself."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    made = [_argument(*pair) for pair in zip(plain, defaults, strict=True) if pair[0].arg not in {"self", "cls"}]
    if given.vararg:
        made.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        made.append("*")
    return [*made, *(_argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True))]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    typed = f"{argument.arg}: {_type(argument.annotation)}" if argument.annotation else argument.arg
    return f"{typed} = {ast.unparse(default)}" if default else typed


def _type(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _folded(head: str, arguments: list[str], tail: str) -> str:
    """On one line, or as few as there must be; no argument is broken."""
    line = f"{head}({', '.join(arguments)}){tail}"
    if len(line) <= WIDTH:
        return line
    lines = [""]
    for argument in arguments:
        if len(lines[-1]) + len(argument) > WIDTH - 8:
            lines.append("")
        lines[-1] += f"{argument}, "
    return "\n".join([f"{head}(", *(f"    {part.rstrip()}" for part in lines), f"){tail}"])


def _about(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield from ("", _prose(text))


def _under(module: str, node: Defined) -> Iterator[str]:
    """The sentence that stands below a constant."""
    for found, below in pairwise(_tree(module).body):
        if found is node and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield from ("", _prose(str(below.value.value)))


def _prose(text: str) -> str:
    """A docstring as Markdown: its examples become code, its errors a line of their own."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(_code(part) if part.startswith(">>>") else _lines(part) for part in paragraphs)


def _lines(paragraph: str) -> str:
    if any(line.startswith(("  ", "|")) for line in paragraph.splitlines()):
        return _code(paragraph, language="")
    joined = " ".join(line.strip() for line in paragraph.splitlines())
    return re.sub(r"(^|(?<=[.] ))Raises: ", r"\1*Raises* ", joined)


def _code(text: str, *, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def _find(module: str, name: str) -> Defined:
    found = [node for node in _tree(module).body if name in _names(node)]
    assert isinstance(found[-1], Defined)
    return found[-1]


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


@lru_cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_source(module))


def _source(module: str) -> str:
    return inspect.getsource(importlib.import_module(module))
