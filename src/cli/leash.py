"""The leash: becomes another program that ends when this one's starter does, as another user where asked.

Started as `python -I -S leash.py PARENT SIGNAL USER GROUP PROGRAM ARGUMENT…`, never imported. A program of its own, not a function between
fork and exec: there, in a process with threads, an innocent lock can hang the child for ever. Knows nothing of Postgres.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent: int, farewell: int, user: int, group: int, *command: str) -> None:
    """Replace this process by `command`.

    The kernel sends the signal `farewell` when the thread that started us ends: after kill -9 of the starter too, when no code of it can
    run any more. Asked for after the change of user, which would clear it.
    """
    if os.geteuid() == 0 and user != 0:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, farewell) != 0:
        sys.exit(f"The kernel refuses to tie {command[0]} to its starter: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit(f"{command[0]} was not started: its starter is gone already")
    os.umask(0o077)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays so in the next program
    os.execv(command[0], command)  # noqa: S606 (an argument list, no shell)


if __name__ == "__main__":
    parent_, farewell_, user_, group_ = map(int, sys.argv[1:5])
    main(parent_, farewell_, user_, group_, *sys.argv[5:])
