"""Configuration of each stream, and the number of subjects for output."""

import pytest

from iris_bus.streams.declarations import config_of
from iris_core import subjects
from iris_service.process_settings import NatsSettings
from iris_service.settings import BadSetting, load


@pytest.mark.parametrize("stream", subjects.STREAMS, ids=lambda stream: stream.name)
def test_no_stream_forgets_a_message_because_others_on_its_subject_follow(stream: subjects.Stream):
    assert config_of(stream, 1)["max_msgs_per_subject"] == -1


def test_16_tasks_of_a_job_share_a_subject_and_no_two_jobs():
    assert len({subjects.log(1, index) for index in range(10_000)}) == 625
    assert len({subjects.log(job, 0) for job in range(1000)}) == 1000


def test_output_is_stored_where_its_task_and_its_job_are_read():
    stored = [
        subjects.output("w.1", 130, 17, printed).split(".")
        for printed in (0, subjects.SHARED_OUTPUT_BYTES, subjects.SHARED_OUTPUT_BYTES + 1)
    ]
    kept = [f"iris.log.{job}.{index}" for _, _, _, job, index in stored]
    shared, own = subjects.task_logs(130, 17)
    assert kept == [shared, shared, own]
    assert {f"{subject.rpartition('.')[0]}.*" for subject in (shared, own)} == {
        subjects.job_logs(130)
    }
    assert own not in {subjects.log(130, index) for index in range(1000)}


def test_how_long_events_and_output_are_kept_is_what_the_settings_say():
    chosen = (
        "nats.events_days=0.5",
        "nats.events_bytes=4194304",
        "nats.logs_days=2",
        "nats.logs_bytes=8388608",
    )
    table = load(None, {}, chosen).section("nats", NatsSettings).streams()
    limits = {stream.name: config_of(stream, 1) for stream in table}

    assert NatsSettings().streams() == subjects.STREAMS
    assert [limits["IRIS_EVENTS"][key] for key in ("max_age", "max_bytes")] == [
        43_200 * 10**9,
        4 << 20,
    ]
    assert [limits["IRIS_LOGS"][key] for key in ("max_age", "max_bytes")] == [
        172_800 * 10**9,
        8 << 20,
    ]
    assert limits["IRIS_JOURNAL"] == config_of(subjects.JOURNAL, 1)


@pytest.mark.parametrize(
    "chosen", ["events_days=0", "events_bytes=-1", "logs_days=0", "logs_bytes=1000"]
)
def test_a_limit_that_would_be_none_or_hold_no_event_is_refused(chosen: str):
    with pytest.raises(BadSetting, match=chosen.partition("=")[0]):
        load(None, {}, (f"nats.{chosen}",)).section("nats", NatsSettings)
