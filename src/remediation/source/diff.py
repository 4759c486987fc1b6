"""The diff: changed files as git prints them and takes them. Bytes in, text out; knows nothing of what changed, or why."""

import difflib
import re
from collections.abc import Sequence

from suture.remediation.incident import FileChange


def unified_diff(files: Sequence[FileChange]) -> str:
    """The change as git prints it and `git apply` takes it; line ends and a missing last one are part of it."""
    return "".join(_file_diff(each) for each in files if each.before != each.after)


def _file_diff(change: FileChange) -> str:
    old, new = _lines(change.before), _lines(change.after)
    names = [_quoted(f"{side}/{change.path}") for side in "ab"]
    blank = "\t" if " " in change.path and not names[0].startswith('"') else ""
    head = f"diff --git {names[0]} {names[1]}\n--- {names[0]}{blank}\n+++ {names[1]}{blank}\n"
    return head + "".join(_hunk(group, old, new) for group in _Matcher(old, new).get_grouped_opcodes(3))


class _Matcher(difflib.SequenceMatcher[str]):
    """Without the guess that frequent lines are noise; what both sides begin and end with is not searched."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        self._sides = old, new
        self._head = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        limit = min(len(old), len(new)) - self._head
        self._tail = next((at for at in range(limit) if old[-1 - at] != new[-1 - at]), limit)
        super().__init__(None, old[self._head : len(old) - self._tail], new[self._head : len(new) - self._tail], autojunk=False)

    def get_opcodes(self) -> list[tuple[str, int, int, int, int]]:  # type: ignore[override]
        head, tail, (old, new) = self._head, self._tail, self._sides
        middle = [(tag, i + head, j + head, k + head, m + head) for tag, i, j, k, m in super().get_opcodes()]
        first = [("equal", 0, head, 0, head)] if head else []
        last = [("equal", len(old) - tail, len(old), len(new) - tail, len(new))] if tail else []
        return [*first, *middle, *last]


def _lines(data: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode(errors="replace"))


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: list[str], new: list[str]) -> str:
    first, last = group[0], group[-1]
    text = f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
    for tag, i, j, k, m in group:
        if tag == "equal":
            text += "".join(map(_line, [" "] * (j - i), old[i:j]))
        else:
            text += "".join(map(_line, ["-"] * (j - i), old[i:j])) + "".join(map(_line, ["+"] * (m - k), new[k:m]))
    return text


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _quoted(path: str) -> str:
    if re.fullmatch(r'[^"\\\x00-\x1f\x7f-\U0010ffff]*', path):
        return path
    octal = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in path.encode())
    return '"' + "".join(octal) + '"'
