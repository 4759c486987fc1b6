"""I1-I8, I16, all at once: workers are killed, frozen, cut off and misled, and Postgres with them; not one rule of the oracle is broken.

The long form is `make proof`. Here is the short one, and the proof that the oracle sees what breaks each of its rules.
"""

import pytest

from tests.postgres.engine.stage import ended, running
from tests.proof import campaign, oracle
from tests.proof.faults import WEIGHTS, plan
from tests.proof.worker import World, five_steps

SEED = 20_261_130

# What breaks a rule, by hand: past the triggers, which would not let it happen.
DOCTORED = {
    "no execution is lost, and each ends once, as completed": (
        "delete from suture.workflow_executions where id = $1",
        "insert into suture.moves (execution_id, at, actor, from_status, to_status, reason, epoch) "
        "select execution_id, now(), actor, from_status, to_status, reason, epoch from suture.timeline "
        "where execution_id = $1 and to_status = 'completed'",
        "update suture.workflow_executions set status = 'error' where id = $1",
    ),
    "nothing runs that nobody enqueued": ("delete from oracle.enqueued where id = $1",),
    "the timeline is one chain of legal moves": (
        "delete from suture.moves where execution_id = $1 and to_status = 'waiting'",
        "delete from suture.moves where execution_id = $1 and id = (select max(id) from suture.moves where execution_id = $1)",
        "update suture.workflow_executions set finished_at = finished_at - interval '1 hour' where id = $1",
        "update suture.workflow_executions set started_at = started_at + interval '1 hour' where id = $1",
        "update suture.workflow_executions set created_at = created_at + interval '1 hour' where id = $1",
        "update suture.moves set at = at - interval '1 hour' where execution_id = $1 and to_status = 'waiting'",
        "update suture.moves set to_status = 'enqueued' where execution_id = $1 and from_status = 'enqueued'",
    ),
    "each claim raises the epoch by one, and nothing else moves it": (
        "update suture.workflow_executions set epoch = epoch + 1 where id = $1",
        "update suture.moves set epoch = 0 where execution_id = $1",
    ),
    "no checkpoint is written by an old epoch": (
        "update suture.operation_outputs set epoch = 1 where execution_id = $1 and step_id = 'settle'",
        "update suture.operation_outputs set owner_id = $1 where execution_id = $1 and step_id = 'price'",
        "update suture.operation_outputs set finished_at = finished_at + interval '1 minute' where execution_id = $1 and step_id = 'price'",
        "update suture.operation_outputs set finished_at = finished_at - interval '1 minute' where execution_id = $1 and step_id = 'price'",
    ),
    "each step has one result, and every step has one": (
        "delete from suture.operation_outputs where execution_id = $1 and step_id = 'pause'",
        "update suture.operation_outputs set step_id = 'another' where execution_id = $1 and step_id = 'pause'",
    ),
    "no step body begins after its checkpoint": (
        "insert into oracle.bodies select execution_id, step_id, epoch, finished_at + interval '1 ms' from suture.operation_outputs "
        "where execution_id = $1 and step_id = 'price'",
    ),
    "no step body begins before the one before it has its result": (
        "update oracle.bodies set at = at - interval '1 minute' where id = $1 and step = 'settle'",
    ),
    "each effect happens once in the world outside": (
        "insert into oracle.acts select * from oracle.acts where id = $1 and step = 'deliver'",
        "delete from oracle.acts where id = $1 and step = 'announce'",
    ),
    "nobody acts who could have found an earlier act": (
        "insert into oracle.acts select key, id, step, at + interval '1 s', at + interval '2 s' from oracle.acts "
        "where id = $1 and step = 'deliver'",
    ),
    "the ledger knows each effect as done, by the execution that wanted it": (
        "update suture.effects set state = 'intended' where execution_id = $1 and kind = 'deliver'",
        "delete from suture.effects where execution_id = $1 and kind = 'announce'",
    ),
    "each wait has its event, and the one that was accepted": (
        "update suture.events set payload = '\"another\"' where execution_id = $1",
        "delete from suture.events where execution_id = $1",
        "update suture.workflow_waits set outcome = 'timeout' where execution_id = $1 and event is not null",
        "update suture.workflow_executions set output = jsonb_set(output, '{approved_by}', '\"another\"') where id = $1",
        "insert into oracle.emitted select id, name, 'another' from oracle.emitted where id = $1",
        "insert into suture.moves (execution_id, at, actor, from_status, to_status, reason, epoch) "
        "select $1, now(), 'a', 'waiting', 'enqueued', 'event approval', 1 from generate_series(1, 2)",
    ),
    "nobody sleeps shorter than wished": (
        "update suture.workflow_waits set wake_at = wake_at + interval '1 minute' where execution_id = $1 and step_id = 'pause'",
    ),
    "nothing is held when all is over": ("update suture.workflow_executions set owner_id = id where id = $1",),
}
CASES = [(rule, doctoring) for rule, doctorings in DOCTORED.items() for doctoring in doctorings]


@pytest.fixture
async def told(engine, database, psql, tmp_path):
    """Three executions that went well, brought before the oracle; the id of one of them."""
    emitted = []
    async with running(database, five_steps, resources=World(tmp_path)):
        ids = []
        for number in range(3):
            order = {"number": number, "sleep": 0.01, "work": 0.01, "stumbles": number == 1}
            ids.append((await engine.enqueue("five-steps", order, actor="test")).execution.id)
        for id_ in ids:
            await engine.emit(id_, "approval", "client 0", actor="client 0")
            emitted.append((id_, "approval", "client 0"))
        for id_ in ids:
            await ended(engine, id_)
    await psql.execute("set session_replication_role = replica")
    for constraint in ("finished_when_ended", "owned_while_running"):
        await psql.execute(f"alter table suture.workflow_executions drop constraint {constraint}")
    await oracle.testify(psql, tmp_path, enqueued=ids, emitted=emitted)
    return ids[1]


async def test_the_oracle_has_nothing_against_what_went_well(told, psql):
    assert {name: broken for name, broken in (await oracle.judge(psql)).items() if broken} == {}


def test_each_rule_of_the_oracle_is_known_to_fail():
    assert set(DOCTORED) == set(oracle.rules())


@pytest.mark.parametrize(("rule", "doctoring"), CASES)
async def test_the_oracle_sees_what_breaks_a_rule(told, psql, rule, doctoring):
    changed = await psql.execute(doctoring, told)
    assert not changed.endswith(" 0"), "the doctoring has changed nothing"
    found = await oracle.judge(psql)
    assert found[rule], found
    assert str(told) in found[rule][0]


def test_a_seed_makes_the_same_faults_again_and_every_kind_of_them():
    assert plan(7, 60, slots=4, mean=1.0) == plan(7, 60, slots=4, mean=1.0) != plan(8, 60, slots=4, mean=1.0)
    assert {fault.kind for fault in plan(7, 60, slots=4, mean=1.0)} == set(WEIGHTS)


async def test_a_short_campaign_breaks_no_rule():
    said = []
    figures = await campaign.run(said.append, seed=SEED, size=campaign.SHORT)
    assert {figure.name: figure.detail for figure in figures if not figure.met and figure.measured != "SKIPPED"} == {}, "\n".join(said)
    if lacking := [figure.detail for figure in figures if figure.measured == "SKIPPED"]:
        pytest.skip(f"the campaign broke no rule, but it lacked some faults: {', '.join(lacking)}")
