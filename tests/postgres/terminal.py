"""A terminal with a program in it, as a person has it: a real pseudo-terminal that can be typed into, read and closed."""

import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 40.0  # seconds for something to appear; most need one


class Terminal:
    def __init__(
        self, command: Sequence[str], *, environ: dict[str, str], folder: Path | None = None, size: tuple[int, int] = (24, 80),
        echo: bool = True,
    ) -> None:  # fmt: skip
        """`size` is rows and columns; without `echo` nothing that is typed is shown."""
        self._hand, end = pty.openpty()
        self.modes = termios.tcgetattr(end)
        if not echo:
            self.modes[3] &= ~termios.ECHO
            termios.tcsetattr(end, termios.TCSANOW, self.modes)
        termios.tcsetwinsize(end, size)
        # It is the terminal that its session belongs to: Ctrl-C and a shell's jobs need that.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], cwd=folder, env={"TERM": "xterm", **environ}, stdin=end, stdout=end, stderr=end
        )
        self._end = end
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Pull the plug: the kernel hangs up on everything that runs in it."""
        os.close(self._end)
        os.close(self._hand)
        try:
            self.process.wait(15)
        finally:
            self.process.kill()

    def type(self, text: str) -> None:
        os.write(self._hand, text.encode())

    def until(self, holds: Callable[[str], bool], *, within: float = PATIENCE) -> str:
        """All that was shown so far, colours and cursor left out, as soon as it `holds`, or when the time is over."""
        end = time.monotonic() + within
        while not holds(bare(self.shown)) and time.monotonic() < end:
            if select.select([self._hand], [], [], 0.1)[0]:
                self.shown += os.read(self._hand, 65536).decode(errors="replace")
        return bare(self.shown)

    def ended(self) -> int:
        """The exit code of the program, which must come to its end now."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self._hand], [], [], 0.1)[0]:
                self.shown += os.read(self._hand, 65536).decode(errors="replace")
        assert self.process.returncode is not None, bare(self.shown)
        while select.select([self._hand], [], [], 0.1)[0]:
            self.shown += os.read(self._hand, 65536).decode(errors="replace")
        return self.process.returncode

    def modes_now(self) -> list[object]:
        """How the terminal is set: what a program that has ended must not have changed."""
        return termios.tcgetattr(self._end)


def bare(text: str) -> str:
    """Without the sequences that colour and move."""
    return re.sub(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>])", "", text).replace("\r", "")
