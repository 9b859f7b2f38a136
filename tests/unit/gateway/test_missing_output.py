"""What was stored of output and is not there any more is said: 410 where it is all, else in the
place.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from iris_core import subjects
from iris_core.views.jobs import StoredView
from tests.support.fake_state import attempt_of
from tests.support.gateway import House, house

TASK = "/v1/tasks/j1%2F0/logs"
JOB = "/v1/jobs/j1/logs"
MIB = 1 << 20


@pytest.fixture
async def ended():
    """A job of two tasks that has ended: the first has stored output, the second none."""
    async with house() as made:
        await made.submit("/a", replicas=2)
        await made.state.print(1, 0, "first\n")
        await made.state.print(1, 0, "x" * 69_999 + "\n", offset=6)
        await made.state.print(1, 0, "last\n", offset=70_006, final=True)
        for index, size in enumerate((MIB, 0)):
            attempt = msgspec.structs.replace(attempt_of(0, "succeeded"), open=False)
            attempt.output_bytes = size
            task = made.state.tasks[f"/a/{index}"]
            task.attempts, task.state = [attempt], "succeeded"
        made.state.jobs["/a"].state = "succeeded"
        made.state.jobs["/a"].stored = StoredView(output_bytes=MIB)
        yield made


def evict(iris: House, size: int) -> None:
    iris.state.jobs["/a"].evicted = StoredView(output_bytes=size)
    for task in iris.state.tasks.values():
        task.output_evicted_bytes = size


async def drop(iris: House, subject: str) -> None:
    await iris.state.streams.drop(subjects.LOGS.name, subject)


@pytest.mark.parametrize("form", ["text", "jsonl", "sse"])
@pytest.mark.parametrize("follow", ["", "&follow=true"])
@pytest.mark.parametrize("path", [TASK, JOB])
async def test_output_that_was_deleted_is_gone_with_a_reason(ended: House, path, follow, form):
    owner = ended.state.jobs["/a"].user
    evict(ended, MIB)
    await drop(ended, subjects.job_logs(1))
    answer = await ended.http.get(f"{path}?format={form}{follow}")
    assert answer.status_code == 410
    what = "/a/0" if path == TASK else "/a"
    words = f"the output of {what}, 1MiB, is not here: deleted to make room, {owner} held most"
    assert answer.json()["detail"] == words


async def test_output_that_has_expired_is_gone_too(ended: House):
    await drop(ended, subjects.job_logs(1))
    answer = await ended.http.get(TASK)
    assert (answer.status_code, answer.json()["code"]) == (410, "gone")
    assert answer.json()["detail"] == "the output of /a/0, 1MiB, is not here: kept no longer"


async def test_the_last_lines_of_deleted_output_are_gone(ended: House):
    await drop(ended, subjects.job_logs(1))
    assert (await ended.http.get(f"{JOB}?tail=5")).status_code == 410


async def test_a_task_that_has_printed_nothing_has_no_output_and_is_not_gone(ended: House):
    answer = await ended.http.get("/v1/tasks/j1%2F1/logs")
    assert (answer.status_code, answer.text) == (200, "")
    evict(ended, MIB)
    await drop(ended, subjects.job_logs(1))
    answer = await ended.http.get("/v1/tasks/j1%2F1/logs")
    assert (answer.status_code, answer.text) == (200, "")


async def test_output_that_is_there_and_not_shown_is_not_gone(ended: House):
    for asked in ("stream=stderr", "since=2020-01-01T00:00:00Z", "tail=0"):
        answer = await ended.http.get(f"{TASK}?{asked}")
        assert (answer.status_code, answer.text) == (200, ""), asked


async def test_where_a_part_was_deleted_is_said_with_its_size(ended: House):
    owner = ended.state.jobs["/a"].user
    evict(ended, 6)
    await drop(ended, subjects.log(1, 0))
    lines = (await ended.http.get(TASK)).text.splitlines()
    notice = f"[iris: 6 bytes of output not here: deleted to make room, {owner} held most]"
    assert (lines[0], lines[-1]) == (notice, "last")
    first = (await ended.http.get(f"{TASK}?format=jsonl")).text.splitlines()[0]
    assert json.loads(first)["dropped"] == 6
    lines = (await ended.http.get(JOB)).text.splitlines()
    of_job = f"[iris: 6B of this output not here: deleted to make room, {owner} held most]"
    assert lines[0] == f"{of_job} {notice}"


async def test_the_middle_that_has_expired_is_said(ended: House):
    await ended.state.print(1, 1, "one\n")
    await ended.state.print(1, 1, "three\n", offset=1004, final=True)
    lines = (await ended.http.get("/v1/tasks/j1%2F1/logs")).text.splitlines()
    assert lines == ["one", "[iris: 1,000 bytes of output not here: kept no longer]", "three"]


async def test_last_lines_say_nothing_of_what_is_before_them(ended: House):
    evict(ended, 6)
    await drop(ended, subjects.log(1, 0))
    assert (await ended.http.get(f"{TASK}?tail=1")).text == "last\n"
