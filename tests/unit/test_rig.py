"""The rig's own rules, as far as they need no root: which mirror, one builder at a time, pins that name all they decide."""

from pathlib import Path

import pytest

from tests.node.images import mirror
from tests.node.programs import PROGRAMS, TOOLS, locked


@pytest.mark.parametrize(
    "sources",
    [
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n",
        "# ours\ndeb http://mirror.example/debian bookworm main\n",
        "deb [arch=amd64 signed-by=/usr/share/keyrings/debian.gpg] http://mirror.example/debian bookworm main\n",
    ],
    ids=["deb822", "one line", "with options"],
)
def test_the_base_comes_from_the_mirror_of_this_machine(tmp_path: Path, sources: str) -> None:
    (tmp_path / "debian.sources").write_text(sources)

    assert mirror([tmp_path / "missing", tmp_path / "debian.sources"]) == "http://mirror.example/debian"


def test_without_a_list_of_sources_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="missing"):
        mirror([tmp_path / "missing"])


def test_two_at_once_do_not_collide(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock", wait=False):
        pass

    with locked(tmp_path / "lock", wait=False):
        pass


def test_programs_of_one_module_differ_in_their_pins() -> None:
    assert len({program.pins() for program in PROGRAMS.values()}) == len(PROGRAMS)


def test_every_program_is_pinned_by_a_module_of_ours() -> None:
    assert {program.folder for program in PROGRAMS.values()} == {path.parent.name for path in TOOLS.glob("*/go.mod")}
