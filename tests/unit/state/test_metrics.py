"""Metrics of the state service, counted from commits and read from the records."""

from __future__ import annotations

from prometheus_client import generate_latest

from iris_core import codec, subjects
from iris_core.messages.gateway_state import Caller, SubmitJob
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.messages.state_worker import Ended, Register, Stage, WorkerReport
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.inputs import Request
from iris_state.replication import people_metrics
from iris_state.replication.metrics import Standing, StateMetrics


def scraped(metrics: StateMetrics) -> dict[str, float]:
    """Every sample by its name and labels."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def request(subject: str, message: object) -> Request:
    return Request(subject, codec.pack(message), "reply")


def test_one_task_is_seen_on_its_whole_way() -> None:
    machine = Machine(Policy(), "leader")
    metrics = StateMetrics(lambda: machine)
    machine.replay(1, machine.bid(0))
    machine.lead(0)
    ref = AttemptRef(1, 0, 0)
    register = Register("w0", "i0", {}, Amount(1000), 0)
    job = SubmitJob(JobSpec(name="/a", command=("true",)), Caller("u"), "r1", 0)
    running, ended = (
        Stage(ref, KernelStatus.RUNNING, 3000),
        Stage(ref, KernelStatus.TERMINATED, 8000, Ended(Cause.EXITED, 0)),
    )
    rounds = [
        (0, request(subjects.report("w0"), WorkerReport("w0", "i0", register=register))),
        (1000, request(subjects.CMD_SUBMIT, job)),
        (
            3000,
            request(
                subjects.STATE_PLAN,
                Plan("s", 4, ("w0",), (Placement(1, (0,), (0,)), Placement(1, (0,), (0,)))),
            ),
        ),
        (3000, request(subjects.report("w0"), WorkerReport("w0", "i0", (running,)))),
        (8000, request(subjects.report("w0"), WorkerReport("w0", "i0", (ended,)))),
    ]
    for now_ms, one in rounds:
        metrics.committed(machine.step([one], now_ms), 0.001)
    seen = scraped(metrics)

    assert seen['iris_task_transitions_total{from_state="pending",to_state="assigned"}'] == 1
    assert seen['iris_task_transitions_total{from_state="running",to_state="succeeded"}'] == 1
    assert seen['iris_attempts_ended_total{cause="exited",charged_to="",state="succeeded"}'] == 1
    assert seen['iris_assignments_refused_total{cause="not_pending"}'] == 1
    assert (
        seen["iris_task_queue_wait_seconds_count"],
        seen["iris_task_queue_wait_seconds_sum"],
    ) == (1, 2)
    assert (seen["iris_task_run_seconds_count"], seen["iris_task_run_seconds_sum"]) == (1, 5)
    assert (
        seen['iris_task_run_seconds_bucket{le="3.0"}'],
        seen['iris_task_run_seconds_bucket{le="10.0"}'],
    ) == (0, 1)
    assert seen['iris_jobs{state="succeeded"}'] == 1
    assert seen["iris_commit_seconds_count"] == len(rounds)


def test_what_is_kept_for_a_while_is_counted_and_weighed(script) -> None:
    script.play("""
        policy keep_jobs=1
        submit /a key=k
        submit /b
        cancel /a
        cancel /b
        wait 1
    """)
    seen = scraped(StateMetrics(lambda: script.world.machine))
    kept = {
        kind: seen[f'iris_kept{{kind="{kind}"}}']
        for kind in ("finished_jobs", "spent_keys", "answers")
    }
    assert kept == {"finished_jobs": 1, "spent_keys": 1, "answers": 4}
    assert all(seen[f'iris_kept_bytes{{kind="{kind}"}}'] > 100 * n for kind, n in kept.items())


class Looks(dict):
    """Records that count how many of them are looked at, however that is done."""

    looked = 0

    def __getitem__(self, number):
        self.looked += 1
        return super().__getitem__(number)

    def values(self):
        self.looked += len(self)
        return super().values()


def test_a_scrape_looks_at_few_jobs_however_many_wait(script, monkeypatch) -> None:
    monkeypatch.setattr(people_metrics, "JOBS_LOOKED_AT", 10)
    script.play("submit /w replicas=3 band=batch")
    for number in range(50):
        script.play(f"""
            submit /waiting-{number} band=batch
            submit /done-{number} replicas=2
            cancel /done-{number}
        """)
    metrics = StateMetrics(lambda: script.world.machine)
    ledger = script.world.ledger
    plain, ledger.jobs = ledger.jobs, Looks(ledger.jobs)
    seen = scraped(metrics)
    looked, ledger.jobs = ledger.jobs.looked, plain
    jobs = {labels: n for labels, n in seen.items() if labels.startswith("iris_jobs{") and n}
    assert jobs == {'iris_jobs{state="killed"}': 50, 'iris_jobs{state="pending"}': 51}
    tasks = {labels: n for labels, n in seen.items() if labels.startswith("iris_tasks{")}
    assert tasks == {
        'iris_tasks{band="batch",state="pending"}': 53,
        'iris_tasks{band="interactive",state="killed"}': 100,
    }
    assert looked == 10


def test_tasks_behind_gates_are_counted_by_what_they_wait_for(script) -> None:
    script.play("""
        submit /prep
        submit /held replicas=2 band=batch hold=yes after=/prep
        submit /later replicas=3 not_before=1h
        submit /after after=/prep
    """)
    seen = scraped(StateMetrics(lambda: script.world.machine))
    assert {name: n for name, n in seen.items() if name.startswith("iris_pending_tasks")} == {
        'iris_pending_tasks{band="batch",reason="held"}': 2,
        'iris_pending_tasks{band="interactive",reason="not_before"}': 3,
        'iris_pending_tasks{band="interactive",reason="dependency"}': 1,
        'iris_pending_tasks{band="interactive",reason="not_yet_looked_at"}': 1,
    }


def test_waiting_tasks_are_counted_by_reason_and_band_with_the_oldest(script) -> None:
    script.play("""
        submit /first cpu=8
        wait 10
        worker w0 cpu=1
        submit /second replicas=3 band=batch
        explain /first not_enough_cpu
        explain /second behind
        schedule /second
        submit /third
    """)
    metrics = StateMetrics(lambda: script.world.machine)

    def waiting() -> dict[str, float]:
        begin = ("iris_pending_tasks", "iris_oldest_pending_seconds")
        return {name: n for name, n in scraped(metrics).items() if name.startswith(begin)}

    assert waiting() == {
        'iris_pending_tasks{band="interactive",reason="not_enough_cpu"}': 1,
        'iris_pending_tasks{band="batch",reason="behind"}': 2,
        'iris_pending_tasks{band="interactive",reason="not_yet_looked_at"}': 1,
        "iris_oldest_pending_seconds": 10,
    }
    script.play("""
        explain /second no_workers
        cancel /first
        wait 5
    """)
    assert waiting() == {
        'iris_pending_tasks{band="batch",reason="no_workers"}': 2,
        'iris_pending_tasks{band="interactive",reason="not_yet_looked_at"}': 1,
        "iris_oldest_pending_seconds": 5,
    }


def test_the_leader_and_a_standby_say_which_they_are(script) -> None:
    machine = script.world.machine
    leading = scraped(StateMetrics(lambda: machine, lambda: Standing(leads=True, unpublished=7)))
    following = scraped(
        StateMetrics(lambda: machine, lambda: Standing(behind=5, times_ahead_s=-3.5))
    )
    names = (
        "iris_leader",
        "iris_times_ahead_seconds",
        'iris_consumer_pending{consumer="journal"}',
        'iris_consumer_pending{consumer="events"}',
    )
    assert [leading[name] for name in names] == [1, 0, 0, 7]
    assert [following[name] for name in names] == [0, -3.5, 5, 0]
    assert (leading["iris_epoch"], leading["iris_journal_sequence"]) == (
        machine.ledger.epoch,
        machine.sequence,
    )


def test_slices_are_counted_as_wholes(script) -> None:
    script.play("""
        worker a0 tpu-name=a tpu-topology=v4-16 tpu-worker-id=0
        worker a1 tpu-name=a tpu-topology=v4-16 tpu-worker-id=1
        worker b0 tpu-name=b tpu-topology=v4-16 tpu-worker-id=0
        worker c0 tpu-name=c tpu-topology=v4-8 tpu-worker-id=0 cpu=1
        worker d0 tpu-name=d tpu-topology=home-made tpu-worker-id=0
        submit /used cpu=1 where=tpu-name:c
        schedule -> placed 1
    """)
    seen = scraped(StateMetrics(lambda: script.world.machine))
    assert {name: n for name, n in seen.items() if name.startswith("iris_slices")} == {
        'iris_slices{state="free",variant="v4-16"}': 1,
        'iris_slices{state="broken",variant="v4-16"}': 1,
        'iris_slices{state="used",variant="v4-8"}': 1,
        'iris_slices{state="free",variant="other"}': 1,
    }


def test_a_thousand_users_make_no_more_series_than_the_largest_do() -> None:
    machine = Machine(Policy(), "leader")
    metrics = StateMetrics(lambda: machine)
    machine.replay(1, machine.bid(0))
    machine.lead(0)
    sizes = []
    for numbers in (range(30), range(30, 1000)):
        commands = []
        for number in numbers:
            spec = JobSpec(name=f"/job-{number}", command=("true",), replicas=2)
            submit = SubmitJob(spec, Caller(f"user-{number}"), f"r{number}", 0)
            commands.append(request(subjects.CMD_SUBMIT, submit))
        metrics.committed(machine.step(commands, 1000), 0.001)
        sizes.append(len(scraped(metrics)))
    assert scraped(metrics)['iris_jobs{state="pending"}'] == 1000
    assert sizes[0] == sizes[1]
