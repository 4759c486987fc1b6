"""The command `suture`: its commands, and the border at which every error becomes one sentence and an exit code.

Exit codes: 0 done; 1 it failed; 2 a wrong option, setting or input; 3 try again later; 70 a fault of ours; 130 interrupted.
"""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from suture import __version__
from suture.cli import approvals, dead_letters, demo, diagnose, pauses, processes, queues, schedules, tasks, top, workers
from suture.errors import ConfigError, EvidenceUnreadable, InvalidRequest, SutureError, TemporaryError, ToolMissing

app = typer.Typer(
    name="suture",
    help="Turn a failing Kubernetes workload into one reviewed pull request, and never lose the place.",
    epilog="Commands about tasks and the engine speak to Postgres where SUTURE_DATABASE_URL is set, and else to the gateway at "
    "SUTURE_CLIENT_URL. Approvals and new tasks always go through the gateway.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (demo, diagnose, tasks, approvals, queues, pauses, workers, dead_letters, schedules, top, processes):
    app.add_typer(part.commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"suture {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; no traceback reaches a person."""
    try:
        app()
    except SutureError as error:
        _complain(error)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `suture tasks | head`
        sys.stderr.close()
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("suture"):
            raise
        _complain(ToolMissing(f"This command needs {error.name}, which is not installed: pip install 'suture[all]'"))
        sys.exit(1)
    except OSError as error:
        _complain(SutureError(f"The system refused: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}."))
        sys.exit(1)
    except Exception as error:  # the border to a person: a fault of ours ends in a sentence; its place is for who asks
        if os.environ.get("SUTURE_LOG_LEVEL") == "debug":
            raise
        _complain(SutureError(f"A fault of Suture itself ({type(error).__name__}: {error}). SUTURE_LOG_LEVEL=debug shows where."))
        sys.exit(70)


def _complain(error: SutureError) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(f"[bold red]{error.reason}[/]: ", end="")
    console.print(error.message, markup=False, soft_wrap=True)


def _exit_code(error: SutureError) -> int:
    if isinstance(error, ConfigError | InvalidRequest | EvidenceUnreadable):
        return 2
    return 3 if isinstance(error, TemporaryError) else 1
