"""A result counts if its attempt is the one that the record of its task has ended with."""

from __future__ import annotations

import base64
import io
import pickle
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from iris import Client, Job
from iris.client.maps import call_runner
from iris.client.maps.mapping import Mapped
from iris.client.problems import JobFailed, RemoteError
from iris_core.spec.jobs import JobSpec
from iris_core.views.jobs import AttemptView, JobView, TaskView
from iris_core.views.streams import CallResultView
from tests.support.answers import Answers, Asked, Said, answering, events, job_view, problem
from tests.support.fake_state import attempt_of, task_of

WITHIN_S = 60
DIGEST = "0" * 64
CALLS = {"runner": DIGEST, "function": DIGEST, "segments": [DIGEST], "firsts": [0], "count": 1}
SPEC = {"name": "/train", "command": ["true"], "calls": CALLS, "user": "ann"}


def raised(error: Exception) -> bytes:
    """What a call leaves that raises."""
    return bytes(4) + pickle.dumps(error)


def left(attempt: int, kind: str, payload: bytes = b"", *, stored: bool = False) -> CallResultView:
    """The result of an attempt of the only task; ``stored``: as its artifact."""
    return CallResultView(
        index=0,
        attempt=attempt,
        kind=kind,
        data="" if stored else base64.b64encode(payload).decode(),
        cause="exited",
        exit_code=0 if kind == "value" else 1,
        signal=None,
        stored=stored,
    )


FIRST = {
    "a value": left(0, "value", pickle.dumps("first")),
    "an exception": left(0, "error", raised(KeyError("first"))),
    "a death": left(0, "died"),
    "a large value": left(0, "value", stored=True),
    "a large exception": left(0, "error", stored=True),
}
SECOND = left(1, "value", pickle.dumps("second"))


class Store:
    """What a gateway knows of one map of one call: its record and its results."""

    def __init__(self, state: str, *attempts: str) -> None:
        view = msgspec.convert(
            job_view(state=state, task_counts={state: 1}, spec=SPEC), JobView, strict=False
        )
        assert isinstance(view.spec, JobSpec)
        self.job = view
        self.task: TaskView = task_of(view, 0)
        self.task.state = state
        self.task.attempts = [
            msgspec.structs.replace(attempt_of(number), state=word, open=word == "running")
            for number, word in enumerate(attempts)
        ]
        self.told: list[tuple[str, object]] = []
        self.artifacts: dict[int, bytes] = {}

    def tell(self, *results: CallResultView, ended: tuple[int, ...] = ()) -> None:
        """Store results, or tell with which attempt the task has ended badly."""
        indexes = tuple(0 for _ in ended)
        view = {"results": results, "ended": indexes, "ended_attempts": ended}
        self.told.append(("results", msgspec.to_builtins(view)))

    def answer(self, asked: Asked) -> Said:
        url = urlsplit(asked.path)
        query = parse_qs(url.query)
        if url.path.endswith("/whoami"):
            return Said(200, {"user": "ann", "role": "user"})
        if url.path.endswith("/results"):
            end = ("end", {"state": self.job.state})
            return Said(200, events(*self.told, end), {"Content-Type": "text/event-stream"})
        if url.path.endswith("/tasks"):
            is_retried = len(self.task.attempts) > 1 or self.task.state == "pending"
            wanted = is_retried or "retried" not in query
            return Said(200, {"items": [msgspec.to_builtins(self.task)] if wanted else []})
        if url.path.endswith("/artifact"):
            found = self.artifacts.get(int(query["attempt"][0]))
            if found is None:
                return problem(404, "not_found", "attempt 0 of /train/0 has no artifact")
            return Said(200, found)
        return Said(200, msgspec.to_builtins(self.task if "tasks" in url.path else self.job))


def archive(payload: bytes) -> bytes:
    """An output directory with a large result."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        member = tarfile.TarInfo(call_runner.LARGE_NAME)
        member.size = len(payload)
        packed.addfile(member, io.BytesIO(payload))
    return file.getvalue()


@contextmanager
def client_of(store: Store) -> Iterator[tuple[Client, Answers]]:
    with answering(store.answer) as answers, Client(answers.url, token="ann-1") as client:
        yield client, answers


def followed(client: Client, store: Store) -> Mapped[object]:
    """The map as the client has it that has submitted it."""
    return Mapped(Job(client, store.job), client, store.job.spec.calls)


@pytest.mark.parametrize("kind", FIRST)
def test_a_map_found_again_has_the_result_that_its_record_ended_with(kind: str):
    """A large result of an attempt that was lost failed every later `map_of`."""
    store = Store("succeeded", "worker_failed", "succeeded")
    store.tell(FIRST[kind])
    store.tell(SECOND)
    with client_of(store) as (client, _):
        assert client.map_of("j7").results(WITHIN_S) == ["second"]


@pytest.mark.parametrize("kind", [kind for kind in FIRST if kind != "a value"])
def test_a_future_waits_for_the_attempt_that_its_record_ends_with(kind: str):
    store = Store("succeeded", "worker_failed", "succeeded")
    store.tell(FIRST[kind])
    store.tell(SECOND)
    with client_of(store) as (client, _):
        assert followed(client, store).results(WITHIN_S) == ["second"]


@pytest.mark.parametrize("first", FIRST)
def test_a_result_of_a_task_that_waits_for_another_attempt_does_not_count(first: str):
    """The task was killed before that attempt: its call has no result."""
    store = Store("pending", "worker_failed")
    store.tell(FIRST[first])
    with client_of(store) as (client, _):
        mapped = client.map_of("j7")
        mapped.wait_closed()
        with pytest.raises(Exception, match="/train") as ended:
            mapped.results(WITHIN_S)
        assert not isinstance(ended.value, RemoteError | KeyError)


@pytest.mark.parametrize("told", [True, False])
def test_what_the_last_attempt_has_raised_is_raised(told: bool):
    """Whether its end is told, or read from its record."""
    store = Store("failed", "failed", "failed")
    store.tell(left(0, "error", raised(KeyError("first"))))
    store.tell(left(1, "error", raised(ValueError("second"))))
    if told:
        store.tell(ended=(1,))
    with client_of(store) as (client, answers):
        with pytest.raises(ValueError, match="second"):
            followed(client, store).results(WITHIN_S)
        assert told != any(asked.path.startswith("/v1/jobs/j7/tasks") for asked in answers.requests)


def test_an_end_that_is_told_before_the_result_of_its_attempt_counts():
    store = Store("failed", "failed")
    store.tell(ended=(0,))
    store.tell(left(0, "error", raised(ValueError("late"))))
    with client_of(store) as (client, _), pytest.raises(ValueError, match="late"):
        followed(client, store).results(WITHIN_S)


def test_a_large_exception_of_the_last_attempt_is_fetched():
    store = Store("failed", "worker_failed", "failed")
    store.tell(FIRST["a large exception"])
    store.tell(left(1, "error", stored=True))
    store.artifacts[1] = archive(raised(ValueError("large")))
    with client_of(store) as (client, _), pytest.raises(ValueError, match="large"):
        followed(client, store).results(WITHIN_S)


def test_a_large_result_that_the_record_ended_with_and_is_not_kept_is_said():
    store = Store("succeeded", "succeeded")
    store.tell(FIRST["a large value"])
    with (
        client_of(store) as (client, _),
        pytest.raises(RemoteError, match="returned a large value that is not kept"),
    ):
        followed(client, store).results(WITHIN_S)


def test_a_process_that_died_last_says_how():
    store = Store("failed", "worker_failed", "failed")
    store.tell(FIRST["a value"])
    store.tell(left(1, "died"))
    with client_of(store) as (client, _), pytest.raises(JobFailed, match="exit code 1"):
        client.map_of("j7").results(WITHIN_S)


def test_attempts_of_a_replica_that_is_behind_are_asked_for_again():
    """It says that there is no attempt 1, which is no reason to give its result up."""
    store = Store("running", "worker_failed")
    store.tell(left(1, "value", stored=True))
    known: list[AttemptView] = [*store.task.attempts, attempt_of(1)]
    with client_of(store) as (client, answers):

        def answer(asked: Asked) -> Said:
            if asked.path.startswith("/v1/tasks/j7%2F0") and "artifact" not in asked.path:
                said = store.answer(asked)
                store.task.attempts, store.artifacts[1] = known, archive(pickle.dumps("found"))
                return said
            return store.answer(asked)

        answers.answer = answer
        assert followed(client, store).results(WITHIN_S) == ["found"]
