"""`git apply` makes of the diff exactly the bytes that were proposed: CRLF, missing line ends, odd names, many hunks."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.remediation.incident import FileChange
from suture.remediation.source.diff import unified_diff

LONG = b"".join(b"line %d\n" % (n % 7) for n in range(400))
CHANGES = {
    "one line": ("a/b.yaml", b"a\nb\nc\n", b"a\nB\nc\n"),
    "CRLF": ("a.yaml", b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
    "no last line end": ("a.yaml", b"a\nb", b"a\nB"),
    "a line end goes": ("a.yaml", b"a\nb\n", b"a\nb"),
    "a line end comes": ("a.yaml", b"a\nb", b"a\nb\n"),
    "BOM": ("a.yaml", b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nc\n"),
    "two hunks among equal lines": ("a.yaml", LONG, LONG.replace(b"line 3\n", b"line x\n", 1)[:-7] + b"last\n"),
    "a name with a blank": ("a b/c d.yaml", b"a\n", b"b\n"),
    "a name with umlauts and quotes": ('größe "x".yaml', b"a\n", b"b\n"),
    "lines that look like a diff": ("a.yaml", b"---\n- a\n+++ b\n@@ -1 +1 @@\n", b"---\n- a\n+++ c\n@@ -1 +1 @@\n"),
    "other line separators": ("a.yaml", "a\u2028b\x0cc\x1d\n".encode(), "a\u2028b\x0cd\x1d\n".encode()),
}


def apply(folder: Path, change: FileChange) -> bytes:
    target = folder / change.path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(change.before)
    diff = unified_diff([change])
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, check=False, input=diff.encode(), cwd=folder, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr.decode() + diff
    return target.read_bytes()


@pytest.mark.parametrize(("path", "before", "after"), CHANGES.values(), ids=CHANGES.keys())
def test_git_apply_makes_what_was_proposed(path: str, before: bytes, after: bytes, tmp_path: Path) -> None:
    assert apply(tmp_path, FileChange(path=path, before=before, after=after)) == after


TEXT = st.lists(st.sampled_from(["a\n", "b\r\n", "c\n", "\n", "d\n"]), max_size=12).map("".join)


@settings(max_examples=25, deadline=None)
@given(before=TEXT.filter(bool), after=TEXT.filter(bool), short=st.booleans())
def test_any_change_survives_the_way_through_git(tmp_path_factory: pytest.TempPathFactory, before: str, after: str, *, short: bool) -> None:
    old, new = before.encode(), after.encode()[: -1 if short and len(after) > 1 else None]

    if old != new:
        assert apply(tmp_path_factory.mktemp("apply"), FileChange(path="x.yaml", before=old, after=new)) == new


def test_only_the_changed_lines_are_in_it() -> None:
    diff = unified_diff(
        [FileChange(path="a.yaml", before=b"a\nb\nc\n", after=b"a\nB\nc\n"), FileChange(path="b.yaml", before=b"x", after=b"x")]
    )

    assert diff == "diff --git a/a.yaml b/a.yaml\n--- a/a.yaml\n+++ b/a.yaml\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
