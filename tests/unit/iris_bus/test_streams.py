"""What the server is told about each stream, and on how few subjects output lies."""

import pytest

from iris_bus.streams import config_of
from iris_core import subjects


@pytest.mark.parametrize("stream", subjects.STREAMS, ids=lambda stream: stream.name)
def test_no_stream_forgets_a_message_because_others_on_its_subject_follow(stream: subjects.Stream):
    assert config_of(stream, 1)["max_msgs_per_subject"] == -1


def test_64_jobs_share_a_subject_and_16_tasks_of_each():
    assert len({subjects.log(job, 0) for job in range(97_000)}) == 1516
    assert len({subjects.log(1, index) for index in range(10_000)}) == 625
