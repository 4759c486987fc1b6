"""I1-I12: whatever is done in whatever order, from several connections, each operation does what it says and no invariant breaks.

`make proof` does the same for longer; a failure prints the operations that lead to it, as few as there can be.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.postgres.engine.judged import Ground
from tests.postgres.engine.random_operations import machine

QUICK = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.fixture
def ground(database_url: str, direct_url: str) -> Iterator[Ground]:
    ground = Ground(database_url, direct=direct_url)
    yield ground
    ground.close()


def test_random_operations_do_what_they_say_and_break_nothing(ground: Ground) -> None:
    run_state_machine_as_test(machine(ground), settings=QUICK)
