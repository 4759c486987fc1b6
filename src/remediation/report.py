"""The report: a diagnosis as plain text for a terminal, a chat or a pull request.

Whatever stems from the evidence is untrusted: control characters are shown, never sent, and long values are cut. Decides nothing.
"""

import json
from collections.abc import Iterator

from suture.remediation.incident import Change, Citation, Diagnosis, Finding

LONGEST_VALUE = 300
NOTHING = "Nothing was found: no rule knows a cause for what this evidence shows."


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as lines: cause, proof, what to change or to do; then other faults and what was ruled out."""
    return "\n".join(_lines(diagnosis)) + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.cause is None:
        yield NOTHING
    for number, finding in enumerate(diagnosis.findings):
        if number == 1:
            yield from ("", "Other faults")
        if number:
            yield ""
        yield from _finding(finding)
    if diagnosis.ruled_out:
        yield from ("", "Ruled out")
        yield from (f"  - {visible(sentence)}" for sentence in diagnosis.ruled_out)


def _finding(finding: Finding) -> Iterator[str]:
    yield visible(finding.sentence)
    container = f", container {visible(finding.container)}" if finding.container else ""
    yield f"  {visible(finding.code)} on {visible(finding.object)}{container} ({finding.confidence:.0%} sure)"
    yield "  Proof"
    for citation in finding.citations:
        yield from _citation(citation)
    if finding.changes:
        yield "  Proposed change"
        for change in finding.changes:
            yield f"    {_change(change)}"
    if finding.advice:
        yield f"  What to do: {visible(finding.advice)}"


def _citation(citation: Citation) -> Iterator[str]:
    yield f"    {visible(citation.object)}  {visible(citation.path)}"
    yield f"      {_value(citation.value)}  ({visible(citation.why)})"


def _change(change: Change) -> str:
    what = f"{change.operation} {visible(change.object)}  {visible(change.path)}"
    if change.operation == "remove":
        return what
    was = f" (now {_value(change.before)})" if change.before is not None else ""
    return f"{what} = {_value(change.value)}{was}"


def _value(value: object) -> str:
    printed = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = visible(printed)
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}… ({len(shown):,} characters)"


def visible(text: str) -> str:
    """`text` on one line, with every character that could steer a terminal or reorder a line written as an escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
