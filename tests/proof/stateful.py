"""Random operations, legal and illegal, from several connections: the machine of the tests (`random_operations`), for longer.

A failure prints the operations that lead to it, as few as there can be; the seed makes the same ones again.
"""

import asyncio

from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis.stateful import get_state_machine_test

from suture.cli.postgres import EmbeddedPostgres
from suture.engine import migrate
from tests.postgres.engine.judged import Ground
from tests.postgres.engine.random_operations import machine
from tests.proof.figures import Figure, Say

EXAMPLES, STEPS = 600, 60
QUICK = 10
SERVER = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    examples = QUICK if quick else EXAMPLES
    with asyncio.Runner() as runner:  # the server ends with the thread that started it, which is this one
        server = EmbeddedPostgres.start(settings=SERVER)
        started = runner.run(server.__aenter__())
        try:
            runner.run(migrate(started.url))
            wrong, done = _operations(say, started.url, seed=seed, examples=examples)
        finally:
            runner.run(server.__aexit__(None, None, None))
    name = "random operations that break no invariant"
    return [Figure(name, f"{done:,} in {examples} runs" if not wrong else "a counterexample", "no counterexample", not wrong, wrong)]


def _operations(say: Say, url: str, *, seed: int, examples: int) -> tuple[str, int]:
    """What went wrong, if anything did, and how many operations were judged."""
    ground = Ground(url)
    test = get_state_machine_test(
        machine(ground),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    try:
        seeded(seed)(test)()
    except Exception as error:  # noqa: BLE001 (whatever the engine or a check raises is the counterexample)
        say(f"{type(error).__name__}: {error}")
        for note in _notes(error):
            say(note)
        return "; ".join([f"{type(error).__name__}: {error}", *_notes(error)])[:4000], ground.judged
    finally:
        ground.close()
    say(f"{ground.judged:,} operations")
    return "", ground.judged


def _notes(error: BaseException) -> list[str]:
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [*getattr(error, "__notes__", []), *(note for one in inner for note in [str(one), *_notes(one)])]
