"""`suture diagnose`: the rules of the product on anyone's files. Nothing is sent anywhere, nothing is changed."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from suture.errors import EvidenceUnreadable, InvalidRequest
from suture.remediation.evidence import Evidence
from suture.remediation.incident import Workload
from suture.remediation.report import render

commands = typer.Typer()

INPUT_LIMIT = 64 << 20
"""Bytes that are read of one file: a busy namespace prints about a tenth of that."""

FOUND_NOTHING = 4
"""Exit code when the files were read and no rule knows a cause."""


@commands.command()
def diagnose(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Files, folders of a recording, or - for standard input.", show_default=False)
    ],
    workload: Annotated[str, typer.Option("--workload", "-w", metavar="KIND/NAMESPACE/NAME", help="Whose failure to explain first.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False,
) -> None:
    """Say why a workload fails, with the lines that prove it, from what kubectl printed.

    Takes the output of kubectl get -o json or -o yaml, of events, and plain logs, in any mix. Exit code 0: a cause was found; 4: none.

    Examples:
    kubectl get pods,deployments,replicasets,events -n shop -o json | suture diagnose -
    suture diagnose pods.yaml events.json web.log --workload Deployment/shop/web

    """
    from suture.remediation.diagnosis import diagnose as judge  # noqa: PLC0415 (the rules need a YAML parser, which is not everybody's)

    evidence = Evidence()
    for name in files:
        evidence += _read(name)
    diagnosis = judge(evidence, _workload(workload))
    if as_json:
        typer.echo(diagnosis.model_dump_json(indent=2))
    else:
        Console(highlight=False).print(render(diagnosis).rstrip(), markup=False, soft_wrap=True)
    if diagnosis.cause is None:
        raise typer.Exit(FOUND_NOTHING)


def _read(name: str) -> Evidence:
    from suture.remediation.documents import read_documents, read_recording  # noqa: PLC0415 (as above)

    if name == "-":
        return read_documents("standard input", _bounded("standard input", sys.stdin.buffer.read(INPUT_LIMIT + 1)))
    path = Path(name)
    if path.is_dir():
        return read_recording(path)
    try:
        with path.open("rb") as file:
            return read_documents(name, _bounded(name, file.read(INPUT_LIMIT + 1)))
    except OSError as error:
        raise EvidenceUnreadable(f"{name} cannot be read: {error.strerror}.") from None


def _bounded(name: str, data: bytes) -> bytes:
    if len(data) > INPUT_LIMIT:
        raise EvidenceUnreadable(
            f"{name} has more than {INPUT_LIMIT:,} bytes: give the namespace or the workload that fails, not the cluster."
        )
    return data


def _workload(text: str) -> Workload | None:
    if not text:
        return None
    kind, _, rest = text.partition("/")
    namespace, _, name = rest.partition("/")
    if not (kind and namespace and name) or "/" in name:
        raise InvalidRequest(f"--workload {text!r} is not KIND/NAMESPACE/NAME, such as Deployment/shop/web.")
    return Workload(kind=kind, namespace=namespace, name=name)
