"""I16: on Postgres 15 and 16, and through PgBouncer, the tests that say most about the engine pass too.

A part of the tier that takes seconds; `make test-servers` runs all of it on each. This run's own server is left out: it runs the rest.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres.servers import KINDS

HERE = Path(__file__).parent
OTHERS = [kind for kind in KINDS if kind != "18"]
__test__ = os.environ.get("SUTURE_TEST_POSTGRES", "18") not in OTHERS
"""Where all of the tier runs on such a server already, this file is none of it."""
TELLING = (
    "test_a_claim_is_exclusive_and_short.py::test_fifty_claimants_at_once_share_a_hundred_executions_without_overlap",
    "test_a_claim_is_exclusive_and_short.py::test_many_runners_run_each_of_many_executions_once",
    "test_a_frozen_worker_is_fenced.py::test_an_older_epoch_of_the_same_owner_can_change_nothing",
    "test_many_are_written_as_one.py::test_the_steps_of_many_executions_share_their_commits",
    "test_finished_steps_never_run_again.py::test_the_second_writer_gets_the_prior_result_even_where_its_snapshot_cannot_see_it",
    "test_effects_happen_exactly_once.py::test_two_executions_about_the_same_effect_at_once_act_once",
    "test_waits_lose_no_wake_up.py::test_an_event_that_comes_after_the_wait_wakes_it_at_once",
    "test_lost_work_is_recovered.py::test_a_killed_worker_is_missed_within_a_second",
    "test_an_operation_key_names_one_execution.py::test_fifty_at_once_get_one_row",
    "test_only_legal_moves_are_made.py::test_of_many_ends_at_once_one_is_made",
    "test_only_legal_moves_are_made.py::test_ended_executions_leave_the_live_table_and_can_still_be_asked_for",
    "test_statements_are_whole_and_served_by_indexes.py::test_a_claim_reads_what_it_takes_and_not_the_backlog",
    "test_migrations_collide_with_nobody.py",
)


@pytest.mark.parametrize("kind", OTHERS)
def test_the_telling_part_of_the_tier_passes_on(kind: str):
    chosen = [str(HERE / one) for one in TELLING]
    without = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *chosen],
        env=without | {"SUTURE_TEST_POSTGRES": kind},
        cwd=HERE.parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout
