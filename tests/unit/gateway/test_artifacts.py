"""The output directory of an attempt over HTTP: whole, or a sentence that says why not."""

from __future__ import annotations

from hashlib import sha256

import httpx
import msgspec
import pytest

from iris_core import subjects
from iris_core.views.jobs import ArtifactView, AttemptView
from iris_gateway.auth.bearer import parse_tokens
from tests.support.fake_state import attempt_of
from tests.support.gateway import House, house, listening

PATH = "/v1/tasks/%2Fa%2F0/artifact"
ROLES = {"ada": "user", "bob": "user", "root": "admin"}
TOKENS = "\n".join(
    f"{user} {role} {sha256(user.encode()).hexdigest()}" for user, role in ROLES.items()
)
ADA, BOB, ROOT = ({"Authorization": f"Bearer {user}"} for user in ("ada", "bob", "root"))


@pytest.fixture
async def iris():
    async with house(parse_tokens(TOKENS)) as made:
        await made.http.post("/v1/jobs", json={"name": "/a", "command": ["true"]}, headers=ADA)
        yield made


async def stored(
    iris: House, *parts: bytes, upload: str = "first", missing: int = 0
) -> ArtifactView:
    """An artifact of these parts, without the first ``missing`` of them."""
    subject = subjects.artifact("w0", 1, upload)
    for number, part in enumerate(parts[missing:], missing):
        await iris.memory.connect().streams.publish(
            subject, part, headers={subjects.PART: str(number)}
        )
    return ArtifactView(bytes=sum(map(len, parts)), files=len(parts), note=None, upload=upload)


def ended(number: int, artifact: ArtifactView | None, *, still_open: bool = False) -> AttemptView:
    return msgspec.structs.replace(attempt_of(number, "failed"), open=still_open, artifact=artifact)


async def asked(
    iris: House, *attempts: AttemptView, path: str = PATH, who: dict[str, str] = ADA
) -> httpx.Response:
    iris.state.tasks["/a/0"].attempts = list(attempts)
    return await iris.http.get(path, headers=who)


async def test_the_parts_of_the_last_attempt_come_as_one_file(iris: House):
    first, second = await stored(iris, b"old"), await stored(iris, b"one", b"two", upload="second")
    response = await asked(iris, ended(0, first), ended(1, second))
    assert (response.status_code, response.content) == (200, b"onetwo")
    wanted = {"content-type": "application/gzip", "content-length": "6"}
    assert {name: response.headers[name] for name in wanted} == wanted
    assert response.headers["content-disposition"] == 'attachment; filename="a-0-attempt-1.tar.gz"'


async def test_another_attempt_can_be_asked_for_whatever_the_task_shows(iris: House):
    iris.state.pages["attempts"] = {"items": [ended(3, await stored(iris, b"third"))]}
    response = await asked(iris, ended(9, None), path=f"{PATH}?attempt=3")
    assert response.content == b"third"
    query = iris.state.queries[-1]
    assert (query.what, query.arguments) == (
        "attempts",
        {"task": "j1/0", "cursor": "2", "limit": 1},
    )


async def test_only_the_owner_and_admins_may_have_it(iris: House):
    artifact = await stored(iris, b"secret")
    codes = [
        (await asked(iris, ended(0, artifact), who=who)).status_code for who in (ADA, BOB, ROOT, {})
    ]
    assert codes == [200, 403, 200, 401]


async def test_without_one_a_sentence_says_why(iris: House):
    kept, lost = (
        await stored(iris, b"x"),
        ArtifactView(bytes=0, files=0, note="out is no longer a directory", upload=None),
    )
    responses = [
        await asked(iris),
        await asked(iris, ended(0, None, still_open=True)),
        await asked(iris, ended(0, None)),
        await asked(iris, ended(0, kept), ended(1, lost)),
        await asked(iris, ended(0, kept), path=f"{PATH}?attempt=-1"),
    ]
    assert [(response.status_code, response.json()["detail"]) for response in responses[:4]] == [
        (404, "/a/0 has no attempt yet"),
        (409, "attempt 0 of /a/0 has not ended; its output directory is stored then"),
        (404, "attempt 0 of /a/0 has no artifact: its job has no output directory, or it was lost"),
        (
            404,
            "attempt 1 of /a/0 has no artifact: out is no longer a directory; there is one of attempt 0",
        ),
    ]
    assert responses[4].status_code == 422


@pytest.mark.parametrize("missing", [1, 2])
async def test_what_has_lost_its_beginning_or_all_is_kept_no_longer(iris: House, missing: int):
    response = await asked(iris, ended(0, await stored(iris, b"one", b"two", missing=missing)))
    assert (response.status_code, response.json()["detail"]) == (
        410,
        "this artifact is kept no longer",
    )


async def test_what_loses_its_end_meanwhile_is_no_whole_answer(iris: House):
    artifact = msgspec.structs.replace(await stored(iris, b"one", b"two"), bytes=9)
    iris.state.tasks["/a/0"].attempts = [ended(0, artifact)]
    async with listening(iris) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(PATH, headers=ADA)


async def test_while_the_bus_is_away_it_is_unavailable(iris: House):
    artifact = await stored(iris, b"one")
    streams = iris.gateway.artifacts._streams
    found = streams.next

    async def away(*words: object, **named: object) -> object:
        iris.memory.away = True
        try:
            return await found(*words, **named)
        finally:
            iris.memory.away = False

    streams.next = away
    assert (await asked(iris, ended(0, artifact))).status_code == 503
