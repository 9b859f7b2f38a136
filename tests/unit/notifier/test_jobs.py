"""Who is told of a job, when, how often, and what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from iris_core import codec
from iris_core.messages.gateway_notifier import NotifyVerb
from iris_core.spec.notify import NotifyRule
from iris_core.views.notify import JobMessage, JobSummary, NewSubscription, NewTarget
from iris_notifier.records import DeliveryRecord
from tests.support.notifier import OPS, QUICK, SECRET
from tests.unit.notifier.conftest import Stage

MAIL = NewTarget(name="mail", webhook="https://mail.example.org", secret=SECRET)


def on(*words: str, to: str = "ops") -> tuple[NotifyRule, ...]:
    return (NotifyRule(to, words),)


def data(delivery: DeliveryRecord) -> JobMessage:
    return codec.from_json(delivery.data, JobMessage)


async def test_a_job_tells_its_target_of_its_end(stage: Stage) -> None:
    stage.state.add("j1", "/train")
    await stage.state.publish("j1", "pending", notify=on("failed"))
    await stage.state.publish("j1", "running", "pending", started_at=datetime.now(UTC))
    stage.state.tasks["j1", "failed"] = [{"attempts": [], "exit_code": 7}]
    await stage.state.publish(
        "j1", "failed", "running", error="task 0 failed: exit code 7", task_counts={"failed": 1}
    )
    [(to, sent)] = await stage.sender.has_sent(1)
    assert (to, sent.type, sent.id, sent.job, sent.job_id) == (
        "ops",
        "iris.job.failed",
        "j1.3",
        "/train",
        "j1",
    )
    assert data(sent) == JobMessage(
        job="/train",
        job_id="j1",
        user="ann",
        project="/",
        state="failed",
        cause=None,
        error="task 0 failed: exit code 7",
        exit_code=7,
        tasks={"failed": 1},
        on="failed",
        url="",
    )


@pytest.mark.parametrize(
    ("words", "state", "ended_by", "heard"),
    [
        ("succeeded", "succeeded", None, ["succeeded"]),
        ("failed", "succeeded", None, []),
        ("ended", "succeeded", None, ["ended"]),
        ("ended failed", "worker_failed", None, ["failed"]),
        ("failed", "unschedulable", None, ["failed"]),
        ("failed", "killed", "ann", []),
        ("ended", "killed", "ann", ["ended"]),
        ("failed", "killed", "root", ["failed"]),
        ("failed", "killed", None, ["failed"]),
    ],
)
async def test_which_words_an_end_is(
    stage: Stage, words: str, state: str, ended_by: str | None, heard: list[str]
) -> None:
    stage.state.add("j1", "/train", ended_by={"user": ended_by} if ended_by else None)
    await stage.state.publish("j1", "pending", notify=on(*words.split()))
    await stage.state.publish("j1", state, "pending")
    stage.state.add("j2", "/last")
    await stage.state.publish("j2", "pending", notify=on("ended"))
    await stage.state.publish("j2", "succeeded", "pending")
    found = await stage.sender.has_sent(len(heard) + 1)
    assert [sent.on for _, sent in found] == [*heard, "ended"]


async def test_a_job_tells_once_that_it_started_and_a_gang_with_each_restart(stage: Stage) -> None:
    stage.state.add("j1", "/plain")
    stage.state.add("j2", "/gang", coscheduled=True)
    for job in ("j1", "j2"):
        await stage.state.publish(job, "pending", notify=on("started", "ended"))
        await stage.state.publish(job, "running", "pending", started_at=datetime.now(UTC))
        await stage.state.publish(job, "pending", "running")
        await stage.state.publish(job, "running", "pending")
        await stage.state.publish(job, "succeeded", "running")
    found = await stage.sender.has_sent(5)
    assert sorted((sent.job, sent.on) for _, sent in found) == [
        ("/gang", "ended"),
        ("/gang", "started"),
        ("/gang", "started"),
        ("/plain", "ended"),
        ("/plain", "started"),
    ]


async def test_a_job_that_has_waited_for_long_says_so_once(stage: Stage) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    stage.state.add("j1", "/waits", submitted_at=long_ago)
    assert (await stage.ask(NotifyVerb.SUBSCRIBE, subscription("waiting_1h", "ended", job="j1")))[
        0
    ] == "created"
    [(_, sent)] = await stage.sender.has_sent(1)
    assert (sent.id, sent.type, sent.on) == ("j1.waiting_1h", "iris.job.waiting", "waiting_1h")
    await stage.state.publish("j1", "running", "pending", started_at=datetime.now(UTC))
    await stage.state.publish("j1", "succeeded", "running")
    assert [one.on for _, one in await stage.sender.has_sent(2)] == ["waiting_1h", "ended"]


async def test_a_part_of_the_time_limit_counts_from_the_attempt_that_runs(stage: Stage) -> None:
    now = datetime.now(UTC)
    stage.state.add("j1", "/slow", spec={"timeout_s": 100.0})
    attempts = [
        {"started_at": now - timedelta(seconds=90)},
        {"started_at": now - timedelta(seconds=49.9)},
    ]
    stage.state.tasks["j1", "running"] = [
        {"attempts": attempts},
        {"attempts": [{"started_at": now - timedelta(seconds=1)}]},
    ]
    await stage.state.publish("j1", "pending", notify=on("time_50"))
    await stage.state.publish("j1", "running", "pending", started_at=now)
    [(_, sent)] = await stage.sender.has_sent(1)
    assert (sent.id, sent.type, data(sent).state) == ("j1.time_50", "iris.job.time", "running")
    assert sent.created_ms >= (now.timestamp() + 0.1) * 1000 - 2


async def test_the_time_limit_of_a_task_counts_anew_after_a_retry(stage: Stage) -> None:
    stage.state.add("j1", "/slow", spec={"timeout_s": 100.0})
    await stage.state.publish("j1", "pending", notify=on("time_50"))
    await stage.state.publish("j1", "running", "pending", started_at=datetime.now(UTC))
    await stage.state.publish("j1", "pending", "running")
    long_ago = datetime.now(UTC) - timedelta(seconds=60)
    stage.state.tasks["j1", "running"] = [{"attempts": [{"started_at": long_ago}]}]
    await stage.state.publish("j1", "running", "pending")
    [(_, sent)] = await stage.sender.has_sent(1)
    assert sent.on == "time_50"


def subscription(*words: str, job: str = "", to: str = "ops") -> NewSubscription:
    return NewSubscription(to=to, on=words, job=job, all_mine=not job)


async def test_a_subscription_to_all_of_ones_jobs_means_no_others(stage: Stage) -> None:
    assert (await stage.ask(NotifyVerb.SUBSCRIBE, subscription("ended")))[0] == "created"
    stage.state.add("j1", "/bobs", user="bob")
    stage.state.add("j2", "/anns")
    for job in ("j1", "j2"):
        await stage.state.publish(job, "pending")
        await stage.state.publish(job, "succeeded", "pending")
    [(_, sent)] = await stage.sender.has_sent(1)
    assert sent.job == "/anns"


async def test_a_subscription_to_a_project_means_what_is_in_it_and_below_it(stage: Stage) -> None:
    stage.state.projects = {"/research", "/research/nlp"}
    asked = NewSubscription(to="ops", on=("ended",), project="research")
    status, made = await stage.ask(NotifyVerb.SUBSCRIBE, asked)
    assert (status, made["project"], made["all_mine"]) == ("created", "/research", False)
    paths = ("/research/nlp", "/research", "/researchers", "/")
    for number, path in enumerate(paths):
        stage.state.add(f"j{number}", f"/job-{number}", user="bob", project=path)
        await stage.state.publish(f"j{number}", "pending")
        await stage.state.publish(f"j{number}", "succeeded", "pending")
    stage.state.add("j9", "/last", project="/research")
    await stage.state.publish("j9", "succeeded", "running")
    found = await stage.sender.has_sent(3)
    assert [(sent.job, data(sent).project) for _, sent in found] == [
        ("/job-0", "/research/nlp"),
        ("/job-1", "/research"),
        ("/last", "/research"),
    ]


async def test_a_name_means_the_target_of_the_jobs_user_or_a_shared_one(stage: Stage) -> None:
    shared = msgspec.structs.replace(MAIL, shared=True)
    assert (await stage.ask(NotifyVerb.ADD_TARGET, shared, user="root", role="admin"))[
        0
    ] == "created"
    stage.state.add("j1", "/bobs", user="bob")
    await stage.state.publish("j1", "pending", notify=(*on("ended"), *on("ended", to="mail")))
    await stage.state.publish("j1", "succeeded", "pending")
    [(to, _)] = await stage.sender.has_sent(1)
    assert to == "mail"


async def test_a_storm_of_failures_is_five_messages_and_a_summary(empty: Stage) -> None:
    stage = empty
    stage.settings = msgspec.structs.replace(QUICK, storm_s=3.0)  # all are made within it
    stage.start()
    assert (await stage.ask(NotifyVerb.ADD_TARGET, OPS))[0] == "created"
    await stage.ask(NotifyVerb.SUBSCRIBE, subscription("failed"))
    for number in range(40):
        stage.state.add(f"j{number}", f"/f{number}")
        await stage.state.publish(f"j{number}", "failed", "running")
    found = await stage.sender.has_sent(6)
    summaries = [sent for _, sent in found if sent.type == "iris.job.summary"]
    assert sum(sent.jobs for _, sent in found) == 40
    assert [sent.job for _, sent in found[:5]] == [f"/f{number}" for number in range(5)]
    said = codec.from_json(summaries[0].data, JobSummary)
    assert (said.on, said.examples[0], len(said.examples) <= 20) == ("failed", "/f5", True)


async def test_what_happened_while_no_notifier_ran_is_told_afterwards(stage: Stage) -> None:
    stage.state.add("j1", "/train")
    await stage.state.publish("j1", "pending", notify=on("ended", "started"))
    await stage.state.publish("j1", "running", "pending", started_at=datetime.now(UTC))
    await stage.sender.has_sent(1)
    await stage.end()
    await stage.state.publish("j1", "succeeded", "running")
    stage.start()
    assert [sent.on for _, sent in await stage.sender.has_sent(2)] == ["started", "ended"]


async def test_events_that_are_read_again_make_no_second_message(stage: Stage) -> None:
    stage.state.add("j1", "/train")
    await stage.state.publish("j1", "pending", notify=on("ended"))
    await stage.state.publish("j1", "succeeded", "pending")
    await stage.sender.has_sent(1)
    await stage.end()
    bucket = stage.memory.connect().key_value("iris-notify")
    known = (await bucket.all())["position"]
    await bucket.put("position", codec.pack({"events": 0}), expected=known.revision)
    stage.start()
    stage.state.add("j2", "/later")
    await stage.state.publish("j2", "pending", notify=on("ended"))
    await stage.state.publish("j2", "succeeded", "pending")
    assert [sent.job for _, sent in await stage.sender.has_sent(2)] == ["/train", "/later"]


async def test_the_ends_of_known_jobs_are_told_when_events_were_deleted_unread(
    stage: Stage,
) -> None:
    stage.state.add("j1", "/train")
    await stage.state.publish("j1", "pending", notify=on("ended"))
    await stage.until(lambda: "job.j1" in stage.memory.key_values["iris-notify"].values)
    await stage.end()
    await stage.state.publish("j1", "running", "pending", started_at=datetime.now(UTC))
    await stage.state.publish("j1", "succeeded", "running")
    streams = stage.memory.connect().streams
    await streams.trim("IRIS_EVENTS", await streams.end("IRIS_EVENTS"))
    notifier = stage.start()
    [(_, sent)] = await stage.sender.has_sent(1)
    assert (sent.on, data(sent).state) == ("ended", "succeeded")
    assert notifier.metrics.registry.get_sample_value("iris_notify_gaps_total") == 1


async def test_an_event_waits_for_a_state_service_that_does_not_answer(stage: Stage) -> None:
    stage.state.add("j1", "/train")
    await stage.state.publish("j1", "pending", notify=on("failed"))
    await stage.state.leave()
    await stage.state.publish("j1", "failed", "pending", error="why")
    await stage.state.begin()
    [(_, sent)] = await stage.sender.has_sent(1)
    assert data(sent).error == "why"


@pytest.mark.parametrize("when", ["stopped", "started", "reading"])
async def test_jobs_are_told_when_the_stream_of_events_was_made_anew(
    stage: Stage, when: str
) -> None:
    """As after a restore, whether a notifier reads meanwhile, has just started or is started
    later.
    """
    for number in range(5):
        stage.state.add(f"j{number}", f"/before-{number}")
        await stage.state.publish(f"j{number}", "pending", notify=on("ended"))
    await stage.until(lambda: "job.j4" in stage.memory.key_values["iris-notify"].values)
    await stage.end()
    if when == "stopped":
        stage.memory.connect().streams.make_anew("IRIS_EVENTS")
    notifier = stage.start()
    await stage.until(lambda: notifier.is_active)
    if when == "reading":
        stage.state.add("j5", "/read")
        await stage.state.publish("j5", "pending", notify=on("ended"))
        await stage.until(lambda: "job.j5" in stage.memory.key_values["iris-notify"].values)
    if when != "stopped":
        stage.memory.connect().streams.make_anew("IRIS_EVENTS")
    gaps = notifier.metrics.registry
    await stage.until(lambda: gaps.get_sample_value("iris_notify_gaps_total") == 1)
    stage.state.add("j9", "/after")
    await stage.state.publish("j9", "pending", notify=on("ended"))
    await stage.state.publish("j9", "succeeded", "pending")
    assert [sent.job for _, sent in await stage.sender.has_sent(1)] == ["/after"]


async def test_a_new_stream_of_events_is_read_from_its_beginning(stage: Stage) -> None:
    """Whether it is longer by then than the old one was, or shorter."""
    for number, count in enumerate((1, 20)):
        stage.state.add(f"j{number}", f"/known-{number}")
        await stage.state.publish(f"j{number}", "pending", notify=on("ended"))
        key = f"job.j{number}"
        await stage.until(lambda key=key: key in stage.memory.key_values["iris-notify"].values)
        await stage.end()
        stage.memory.connect().streams.make_anew("IRIS_EVENTS")
        for new in range(count):
            stage.state.add(f"n{number}.{new}", f"/new-{number}-{new}")
            await stage.state.publish(f"n{number}.{new}", "pending", notify=on("ended"))
        notifier = stage.start()
        gaps = notifier.metrics.registry
        await stage.until(lambda gaps=gaps: gaps.get_sample_value("iris_notify_gaps_total") == 1)
        await stage.state.publish(f"n{number}.0", "succeeded", "pending")
    told = [sent.job for _, sent in await stage.sender.has_sent(2)]
    assert told == ["/new-0-0", "/new-1-0"]
