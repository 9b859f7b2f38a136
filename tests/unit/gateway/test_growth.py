"""Calls that are added to an open map over HTTP."""

from hashlib import sha256

from tests.support.gateway import House

DATA = b"arguments"
DIGEST = sha256(DATA).hexdigest()
BODY = {"offset": 1, "segments": [DIGEST], "firsts": [1], "count": 2}


async def test_calls_are_added_once_their_arguments_are_stored(iris: House):
    await iris.submit("/m")
    unstored = await iris.http.post("/v1/jobs/%2Fm/calls", json=BODY)
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
    added = await iris.http.post("/v1/jobs/%2Fm/calls", json=BODY)

    assert (unstored.status_code, unstored.json()["errors"][0]["pointer"]) == (422, "/segments")
    assert (added.status_code, added.json()["name"]) == (200, "/m")
    command = iris.state.commands[-1]
    assert (
        command.job,
        command.offset,
        command.segments,
        command.firsts,
        command.count,
        command.close,
    ) == (
        *("/m", 1, (DIGEST,), (1,), 2),
        False,
    )


async def test_a_map_is_closed_with_a_reason_and_kept_open_with_nothing(iris: House):
    await iris.submit("/m")
    answers = [
        await iris.http.post("/v1/jobs/j1/calls", json=body)
        for body in ({"close": True, "reason": "x"}, {})
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [(c.close, c.reason, c.count) for c in iris.state.commands[-2:]] == [
        (True, "x", 0),
        (False, "", 0),
    ]


async def test_calls_are_added_to_a_map_without_a_first_task(iris: House):
    """Whose the map is says its job, which is there from the submission on."""
    await iris.submit("/m")
    iris.state.tasks.clear()
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
    added = await iris.http.post("/v1/jobs/%2Fm/calls", json=BODY | {"offset": 0, "firsts": [0]})
    assert added.status_code == 200
