"""What attempts use: the newest heartbeat says it of those that run, the report of an end of the
others.
"""

from iris_core import codec, subjects
from iris_core.messages.state_worker import Ended, HeartbeatMessage, LiveUsage, Stage, TaskUsage
from iris_core.states import Cause, KernelStatus
from iris_state.records.inputs import Heartbeat

MIB = 1 << 20
SHOWN = (
    "cpu_ms",
    "rss_bytes",
    "peak_rss_bytes",
    "read_bytes",
    "written_bytes",
    "memory_limit_reached_bytes",
)


def running(script):
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        /a/0 running
    """)
    (ref,) = script.world.hosts["w0"].believes
    return ref


def attempt(script):
    return [script.world.query("task", task="/a/0")["attempts"][-1][name] for name in SHOWN]


def test_a_running_attempt_shows_what_its_hosts_newest_heartbeat_says(script):
    ref = running(script)
    assert attempt(script) == [None] * 6
    for sequence, cpu_ms in ((90, 10), (91, 20)):
        live = LiveUsage(ref, TaskUsage(cpu_ms, 3, 4), 5 * MIB, 6 * MIB)
        stages = tuple(script.world.hosts["w0"].believes.values())
        heartbeat = HeartbeatMessage(
            "w0", "1", sequence, script.world.now_ms, stages, usage=(live,)
        )
        script.world.step(Heartbeat(subjects.heartbeat("w0"), codec.pack(heartbeat)))
    assert attempt(script) == [20, 5 * MIB, 6 * MIB, 3, 4, None]
    assert script.world.query("attempts", task="/a/0")["items"][0]["rss_bytes"] == 5 * MIB


def test_an_attempt_that_has_ended_shows_what_it_has_used(script):
    ref = running(script)
    ended = Ended(Cause.EXITED, 0, peak_rss_bytes=7 * MIB, usage=TaskUsage(30, 1, 2))
    script.world.say("w0", Stage(ref, KernelStatus.TERMINATED, script.world.now_ms, ended))
    assert attempt(script) == [30, None, 7 * MIB, 1, 2, None]
    assert script.world.query("why", task="/a/0")["out_of_memory"] is None


def test_why_suggests_more_memory_for_a_task_that_reached_its_limit(script):
    ref = running(script)
    ended = Ended(
        Cause.EXITED,
        None,
        9,
        "memory limit",
        peak_rss_bytes=511 * MIB,
        usage=TaskUsage(1, 0, 0, 512 * MIB),
    )
    script.world.say("w0", Stage(ref, KernelStatus.TERMINATED, script.world.now_ms, ended))
    short = {
        "task": "/a/0",
        "limit_bytes": 512 * MIB,
        "peak_bytes": 511 * MIB,
        "suggested_bytes": 1024 * MIB,
    }
    for asked in ({"task": "/a/0"}, {"job": "/a"}):
        assert script.world.query("why", **asked)["out_of_memory"] == short
    assert attempt(script)[-1] == 512 * MIB
    script.play("/a/0 -> PENDING failures=1")  # it is charged as any failure of its own
