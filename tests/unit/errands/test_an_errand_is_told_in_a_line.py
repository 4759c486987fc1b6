"""The RESULT column of kubectl says what came of an errand, not how its output is built."""

from typing import Any

import pytest

from suture.errands.requests import HttpAnswer, JobResult, told


def job(**fields: Any) -> dict[str, Any]:
    return JobResult(namespace="shop", job="suture-7", succeeded=True, **fields).model_dump(mode="json")


@pytest.mark.parametrize(
    ("workflow", "output", "line"),
    [
        ("http-request", HttpAnswer(status=201, form="text", body="made").model_dump(), "201 made"),
        ("http-request", HttpAnswer(status=200, form="json", body={"id": 7}).model_dump(), '200 {"id": 7}'),
        ("http-request", HttpAnswer(status=204).model_dump(), "204"),
        ("kubernetes-job", job(message="42 rows\n", log="a\nb\n"), "42 rows"),
        ("kubernetes-job", job(log="first\nlast\n\n"), "last"),
        ("kubernetes-job", job(), "suture-7 has succeeded"),
        ("kubernetes-job", "as a later version writes it", None),
        ("echo", {"status": 200, "body": "x"}, None),
        ("http-request", None, None),
    ],
)
def test_what_came_of_it_is_a_line(workflow: str, output: object, line: str | None):
    assert told(workflow, output) == line
