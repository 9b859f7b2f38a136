"""What a user may store a day: who has stored it submits nothing more, and hosts are told."""

import json

import pytest

from iris_bus.contract import DESCRIBED_BYTES, Blob
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact, Ended, HeartbeatMessage, Stage
from iris_core.states import Cause, KernelStatus
from iris_core.units import DAY_MS
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.indexes.stored import on_last_day
from iris_state.records.inputs import Heartbeat
from iris_state.service.bundles import summed
from iris_state.snapshots import snapshot
from tests.support.script import Script

MIB = 1 << 20
ENDED = Ended(Cause.EXITED, 0, artifact=Artifact("u", MIB, 1), output_bytes=MIB, result_bytes=MIB)


@pytest.fixture
def script(script: Script) -> Script:
    """Jobs of ann and bob run; ann may store 3 MiB a day."""
    script.play(f"""
        worker w0 cpu=8
        quota ann max_stored_today={3 * MIB}
        submit /a user=ann
        submit /b user=ann
        submit /c user=bob
        schedule
        /a/0 run
        /b/0 run
        /c/0 run
    """)
    return script


def end(script: Script, number: int, ended: Ended) -> None:
    ref = AttemptRef(number, 0, 0)
    script.world.say("w0", Stage(ref, KernelStatus.TERMINATED, script.world.now_ms, ended))


def heartbeat(script: Script, muted: tuple[int, ...] = (), **told: object) -> None:
    host = script.world.hosts["w0"]
    host.beats += 1
    stages = tuple(host.believes.values())
    now_ms = script.world.now_ms
    message = HeartbeatMessage(
        "w0", "1", host.beats, now_ms, stages, monotonic_ms=now_ms, muted=muted, **told
    )
    script.world.step(Heartbeat(subjects.heartbeat("w0"), codec.pack(message)))


def muted(script: Script) -> tuple[int, ...] | None:
    """What the newest order says about it."""
    orders = script.world.hosts["w0"].orders
    said = [order.muted for order in orders if order.muted is not None]
    return said[-1] if said else None


def test_who_has_stored_as_much_as_allowed_submits_nothing_more_that_day(script: Script):
    end(script, 1, ENDED)
    script.play("submit /d user=ann -> over_quota")
    answer = script.world.submit(script.world.ledger.jobs[2].spec, Caller("ann", "user"))
    assert answer.status == "over_quota"
    assert json.loads(answer.body)["detail"] == (
        "ann may store 3MiB of bundles, artifacts, output and results a day and has stored 3MiB "
        "today; the next day, of UTC, begins in 23 h 44 min"
    )
    script.play("submit /d user=bob -> created")
    assert script.world.query("quota", user="ann")["stored_today"] == 3 * MIB
    script.world.now_ms = DAY_MS
    script.play("submit /e user=ann -> created")
    assert script.world.query("quota", user="ann")["stored_today"] == 0


def test_below_the_limit_all_goes_on(script: Script):
    end(script, 1, Ended(Cause.EXITED, 0, output_bytes=3 * MIB - 1))
    heartbeat(script)
    assert muted(script) is None
    script.play("submit /d user=ann -> created")


def test_what_has_ended_counts_once(script: Script):
    """The last heartbeat before its end has told its output too."""
    script.world.now_ms += 1000  # what runs is summed once a second
    heartbeat(script, output_bytes={1: 2 * MIB})
    assert script.world.query("quota", user="ann")["stored_today"] == 2 * MIB
    end(script, 1, Ended(Cause.EXITED, 0, output_bytes=2 * MIB + 1))
    assert script.world.query("quota", user="ann")["stored_today"] == 2 * MIB + 1
    script.play("submit /d user=ann -> created")


def test_what_runs_counts_and_its_hosts_are_told(script: Script):
    heartbeat(script, output_bytes={1: 3 * MIB, 3: 9 * MIB})
    script.world.now_ms += 1000
    heartbeat(script, output_bytes={1: 3 * MIB, 3: 9 * MIB})
    assert muted(script) == (1, 2)
    before = len(script.world.hosts["w0"].orders)
    heartbeat(script, muted=(1, 2), output_bytes={1: 3 * MIB})
    assert len(script.world.hosts["w0"].orders) == before, "a host that knows is not told again"
    script.world.now_ms = DAY_MS + 1
    heartbeat(script, muted=(1, 2), output_bytes={1: 3 * MIB})
    assert muted(script) == ()


def test_bundles_of_the_day_count_for_those_who_sent_them(script: Script):
    """Of what two have sent, half for each; ann has one of the day before."""
    heartbeat(script)
    today, now_ms = script.world.now_ms // DAY_MS * DAY_MS, script.world.now_ms
    old = Blob("a", 9 * MIB, 0, 1, ("ann",), {"ann": today - 1})
    both = Blob(
        "b", 4 * MIB - DESCRIBED_BYTES, 0, 2, ("ann", "cyd"), {"ann": today + 5, "cyd": today - 7}
    )
    script.world.ledger.stored.bundles = summed([old, both], 2, now_ms)
    assert script.world.query("quota", user="ann")["stored_today"] == 2 * MIB
    assert script.world.query("quota", user="cyd")["stored_today"] == 0
    script.play("submit /d user=ann -> created")
    more = Blob("c", MIB - DESCRIBED_BYTES, 0, 3, ("ann",), {"ann": today + 6})
    script.world.ledger.stored.bundles = summed([old, both, more], 3, now_ms)
    script.play("submit /e user=ann -> over_quota")
    script.world.now_ms += 1000
    heartbeat(script)
    assert muted(script) == (1, 2)
    script.world.now_ms = DAY_MS
    script.play("submit /f user=ann -> created")


def test_a_default_bounds_users_without_a_quota():
    made = Script(Policy(max_stored_today=MIB))
    made.play("""
        worker w0 cpu=8
        submit /a user=ann
        schedule
        /a/0 run
    """)
    end(made, 1, ENDED)
    made.play("submit /b user=ann -> over_quota")


def test_what_was_stored_today_is_in_snapshots(script: Script):
    end(script, 1, ENDED)
    again = Machine(Policy(), "other")
    again.restore(snapshot.read(snapshot.cut(script.world.ledger, 1, script.world.now_ms, "1.0")))
    assert again.ledger.stored.today == {"ann": 3 * MIB}


def test_of_an_attempt_that_ran_for_days_the_last_one_counts():
    assert on_last_day(100, DAY_MS + 5, DAY_MS + 10) == 100
    assert on_last_day(1000, 0, 10 * DAY_MS - 1) == 100
    assert on_last_day(100, 7, 7) == 100
