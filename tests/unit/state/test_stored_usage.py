"""What is stored is shown by user, to the user and to admins, and told as a metric."""

import pytest

from iris_bus.contract import Blob
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Caller
from iris_core.messages.state_worker import Artifact, Ended, HeartbeatMessage, Stage
from iris_core.states import Cause, KernelStatus
from iris_state.records.indexes.stored import StoredBytes
from iris_state.records.inputs import Heartbeat, RoomMade
from iris_state.replication.metrics import StateMetrics
from iris_state.service.bundles import summed
from tests.support.script import Script
from tests.unit.state.test_people_metrics import shown


@pytest.fixture
def stored(script: Script) -> Script:
    """A job of ann that has ended, and one of bob that runs and prints."""
    script.play("""
        worker w0 cpu=8
        submit /train user=ann
        submit /eval user=bob
        schedule
        /train/0 run
        /eval/0 run
    """)
    world = script.world
    refs = {ref.job: ref for ref in world.hosts["w0"].believes}
    said = Ended(Cause.EXITED, 0, artifact=Artifact("u", 500, 1), output_bytes=70, result_bytes=9)
    world.say("w0", Stage(refs[1], KernelStatus.TERMINATED, world.now_ms, said))
    stages = tuple(world.hosts["w0"].believes.values())
    heartbeat = HeartbeatMessage("w0", "1", 90, world.now_ms, stages, output_bytes={2: 100_000})
    world.step(Heartbeat(subjects.heartbeat("w0"), codec.pack(heartbeat)))
    return script


FIELDS = ("user", "jobs", "artifact_bytes", "output_bytes", "result_bytes")


def rows(
    script: Script, caller: str, fields: tuple[str, ...] = FIELDS, **asked: str
) -> list[list[object]] | None:
    script.world.reader = Caller(caller, "admin" if caller == "root" else "user")
    found = script.world.query("stored_usage", **asked)
    return found and [[row[field] for field in fields] for row in found["items"]]


def test_admins_see_what_everybody_has_stored_and_users_their_own(stored: Script):
    ann, bob = ["ann", 1, 500, 70, 9], ["bob", 1, 0, 100_000, 0]
    assert rows(stored, "root") == [ann, bob]
    assert rows(stored, "root", user="bob") == [bob]
    assert rows(stored, "bob") == [bob]
    assert rows(stored, "bob", user="ann") is None


def test_what_was_deleted_to_make_room_is_stored_no_more(stored: Script):
    stored.world.step(RoomMade(1, StoredBytes(output=70)), RoomMade(2, StoredBytes(output=90_000)))
    assert rows(stored, "root") == [["ann", 1, 500, 0, 9], ["bob", 1, 0, 10_000, 0]]
    job = stored.world.query("job", job="/train")
    assert (job["stored"]["output_bytes"], job["evicted"]["output_bytes"]) == (70, 70)
    task = stored.world.query("task", task="/train/0")
    assert (task["attempts"][0]["output_bytes"], task["output_evicted_bytes"]) == (70, 70)


def test_bundles_are_shown_of_whoever_has_sent_some_also_without_a_job(stored: Script):
    """Of what two have sent, half for each."""
    blobs = [Blob("a", 40, 0, 1, ("ann", "cyd")), Blob("b", 7, 0, 2, ("cyd",)), Blob("c", 1, 0, 3)]
    stored.world.ledger.stored.bundles = summed(blobs, 3, stored.world.now_ms)
    seen = rows(stored, "root", fields=("user", "jobs", "bundle_bytes"))
    assert seen == [["ann", 1, 320], ["bob", 1, 0], ["cyd", 0, 320 + 607]]
    assert rows(stored, "cyd", fields=("user", "bundle_bytes")) == [["cyd", 927]]
    assert rows(stored, "root", user="cyd", fields=("bundle_bytes",)) == [[927]]
    first = stored.world.query("stored_usage", limit=2)
    then = stored.world.query("stored_usage", limit=2, cursor=first["next_cursor"])
    assert [row["user"] for row in first["items"] + then["items"]] == ["ann", "bob", "cyd"]


def test_what_users_have_stored_is_a_metric(stored: Script):
    stored.world.ledger.stored.bundles = summed([Blob("a", 40, 0, 1, ("ann",))], 1, 0)
    seen = shown(StateMetrics(lambda: stored.world.machine), "iris_user_stored")
    assert seen == {
        'iris_user_stored_bytes{kind="artifacts",user="ann"}': 500,
        'iris_user_stored_bytes{kind="output",user="bob"}': 100_000,
        'iris_user_stored_bytes{kind="output",user="ann"}': 70,
        'iris_user_stored_bytes{kind="results",user="ann"}': 9,
        'iris_user_stored_bytes{kind="bundles",user="ann"}': 640,
    }


def test_a_host_tells_of_jobs_that_run_there_only(stored: Script):
    world = stored.world
    stages = tuple(world.hosts["w0"].believes.values())
    heartbeat = HeartbeatMessage(
        "w0", "1", 91, world.now_ms, stages, output_bytes={1: 900_000, 2: 7, 99: 900_000}
    )
    world.step(Heartbeat(subjects.heartbeat("w0"), codec.pack(heartbeat)))
    assert world.ledger.presence["w0"].output_bytes == {2: 7}
    assert rows(stored, "root") == [["ann", 1, 500, 70, 9], ["bob", 1, 0, 7, 0]]


@pytest.mark.parametrize("size", [-1, 1 << 41])
def test_a_size_that_no_attempt_can_have_is_not_understood(size: int):
    told = codec.pack(Ended(Cause.EXITED, 0, output_bytes=size))
    with pytest.raises(codec.Undecodable):
        codec.unpack(told, Ended)
