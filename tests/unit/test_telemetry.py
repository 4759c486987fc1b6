"""Every line a process writes has one form, whoever writes it, and carries what was bound."""

import json
import subprocess
import sys

WRITES = """
import logging, structlog
from suture.telemetry import bound, configure
configure(level="info", format="{format}")
with bound(task="t1", worker="w1"):
    logging.getLogger("kopf").warning("a library says %s", "hello", extra={{"object": "web"}})
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("suture.worker").exception("it broke")
logging.getLogger("suture").debug("too quiet")
logging.getLogger("httpx").info("GET https://api.example/secret")
"""


def written(form: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", WRITES.format(format=form)], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_json_is_one_object_a_line_with_what_was_bound():
    first, second = [json.loads(line) for line in written("json")]
    assert first["event"] == "a library says hello"
    assert (first["level"], first["logger"], first["task"], first["worker"], first["object"]) == ("warning", "kopf", "t1", "w1", "web")
    assert first["timestamp"].endswith("Z")
    assert "ZeroDivisionError" in second["exception"]
    assert "task" not in second


def test_the_console_form_is_for_people():
    assert "a library says hello" in written("console")[0]
    assert not written("console")[0].startswith("{")


def test_the_addresses_of_http_requests_are_not_written():
    assert "secret" not in "".join(written("json"))
