"""The driver: takes a claimed execution through its workflow's code, to its end, its next wait or its next failure.

What comes of it is written by the claim. Knows nothing of how executions are claimed, nor what becomes of a claim that is lost (see
`runner`).
"""

import asyncio
import logging
from dataclasses import replace
from typing import Any

from suture.engine.claim import BETWEEN, Claim
from suture.engine.outcome import again
from suture.engine.results import plain
from suture.engine.run import Run
from suture.engine.steps import Pauses
from suture.engine.workflows import Workflow, Workflows
from suture.errors import SutureError

log = logging.getLogger(__name__)


async def drive(claim: Claim, workflows: Workflows, *, resources: Any, pauses: Pauses) -> None:
    """Run it. Raises: Suspended when it waits or is tried again later; LeaseLost; CancelledError when it was stopped."""
    if claim.execution.cancel_requested_by:
        await claim.finish_cancel()
        return
    workflow = workflows.get(claim.execution.workflow, claim.execution.version)
    done, failures = (await claim.checkpoints(), await claim.failures()) if claim.may_have_begun else ({}, {})
    run = Run(
        claim,
        done=done,
        failures=failures,
        retry=workflow.retry,
        resources=resources,
        workflows=workflows,
        pauses=pauses,
    )
    try:
        output = await workflow.function(run, workflow.read_input(claim.execution.input))
        run.replay.finish()
        await claim.complete(plain(workflow.output, output, what=f"the workflow {workflow.name}"))
    except (Exception, asyncio.CancelledError) as error:
        if claim.stopped:  # whatever its steps made of their cancellation
            raise asyncio.CancelledError from error
        await _fail(claim, workflow, run, error)


async def _fail(claim: Claim, workflow: Workflow, run: Run, raised: BaseException) -> None:
    # What the code made of a mismatch does not count: nothing that it does is to be trusted.
    error = run.replay.mismatch or raised
    execution, failure = claim.execution, run.attempts.failure(error, step=claim.step)
    details = None if isinstance(error, SutureError) else error
    log.warning("failed: %s", failure.message, extra=about(claim), exc_info=details)
    tries = run.failures(BETWEEN) + 1
    delay = None if error is run.attempts.given_up else again(error, workflow.retry, tries=tries, execution=execution)
    if delay is None:
        await claim.fail(failure)
    else:
        await claim.retry(replace(failure, step=BETWEEN), delay=delay, step_attempts=tries, attempt=execution.attempt + 1)


def about(claim: Claim) -> dict[str, str | None]:
    """What a line of the log says of it."""
    return {"task": str(claim.execution.id), "step": claim.step}
