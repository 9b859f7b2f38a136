"""Upload and download of bundles by digest."""

import asyncio
from hashlib import sha256

from iris_bus.contract import DESCRIBED_BYTES
from iris_core.units import DAY_MS
from tests.support.gateway import House, house

DATA = b"code" * 1000
DIGEST = sha256(DATA).hexdigest()


async def test_a_bundle_is_stored_once(iris: House):
    statuses = [(await iris.http.head(f"/v1/bundles/{DIGEST}")).status_code]
    statuses += [
        (await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)).status_code for _ in range(2)
    ]
    statuses.append((await iris.http.head(f"/v1/bundles/{DIGEST}")).status_code)
    assert statuses == [404, 201, 200, 200]


async def test_a_wrong_digest_is_refused_and_nothing_is_stored(iris: House):
    response = await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA + b"!")
    assert (response.status_code, response.json()["code"]) == (422, "invalid")
    assert (await iris.http.head(f"/v1/bundles/{DIGEST}")).status_code == 404


async def test_what_is_no_digest_names_no_bundle(iris: House):
    for name in ("..", DIGEST.upper(), DIGEST[1:], "%2e%2e%2fx"):
        assert (await iris.http.put(f"/v1/bundles/{name}", content=DATA)).status_code == 404


async def test_a_bundle_over_the_limit_is_refused_as_it_comes():
    async def pieces():
        for _ in range(100):
            yield b"x" * 1000

    async with house(bundle_bytes=5000) as iris:
        assert (await iris.http.put(f"/v1/bundles/{DIGEST}", content=pieces())).status_code == 413


async def test_another_media_type_is_refused(iris: House):
    headers = {"content-type": "application/json"}
    assert (
        await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA, headers=headers)
    ).status_code == 415


async def test_a_job_may_only_name_code_that_is_stored(iris: House):
    first = await iris.submit("/a", bundle=DIGEST)
    assert first.json()["errors"][0]["pointer"] == "/bundle"
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
    assert (await iris.submit("/a", bundle=DIGEST)).status_code == 201


async def test_uploads_that_stand_still_keep_nobody_elses_waiting():
    still = asyncio.Event()

    async def idle():
        yield DATA[:10]
        await still.wait()

    async with house() as iris:
        users = [{"X-Iris-User": f"u{n}"} for n in range(8)]
        slow = [
            asyncio.create_task(
                iris.http.put(f"/v1/bundles/{DIGEST}", content=idle(), headers=user)
            )
            for user in users
        ]
        async with asyncio.timeout(5):
            while sum(iris.gateway.bundles.uploads.values()) < len(users):
                await asyncio.sleep(0)
            assert (await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)).status_code == 201
        still.set()
        assert {(await task).status_code for task in slow} == {422}
        assert not iris.gateway.bundles.uploads


async def test_an_upload_without_a_byte_for_too_long_is_let_go():
    async def idle():
        yield DATA[:10]
        await asyncio.Event().wait()

    async with house(body_idle_s=0.01) as iris:
        answer = await iris.http.put(f"/v1/bundles/{DIGEST}", content=idle())
        assert (answer.status_code, answer.json()["code"]) == (408, "timeout")


async def test_one_user_sends_only_so_many_bundles_at_once():
    still = asyncio.Event()

    async def idle():
        yield DATA[:10]
        await still.wait()

    async with house(uploads_per_user=1) as iris:
        task = asyncio.create_task(iris.http.put(f"/v1/bundles/{DIGEST}", content=idle()))
        async with asyncio.timeout(5):
            while not iris.gateway.bundles.uploads:
                await asyncio.sleep(0)
        more = await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
        other = await iris.http.put(
            f"/v1/bundles/{DIGEST}", content=DATA, headers={"X-Iris-User": "bob"}
        )
        still.set()
        await task
    assert (more.status_code, more.headers["retry-after"], other.status_code) == (429, "1", 201)


async def test_where_all_bundles_take_too_much_no_more_is_stored():
    async with house(bundles_bytes=len(DATA) - 1) as iris:
        assert (await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)).status_code == 503
        assert (await iris.http.head(f"/v1/bundles/{DIGEST}")).status_code == 404


async def send(iris: House, user: str, content: bytes) -> tuple[int, str]:
    place, headers = f"/v1/bundles/{sha256(content).hexdigest()}", {"X-Iris-User": user}
    answer = await iris.http.put(place, content=content, headers=headers)
    return answer.status_code, answer.json()["detail"] if answer.is_error else ""


async def test_what_is_sent_counts_among_the_bytes_of_a_day():
    most = 5 * (100_000 + DESCRIBED_BYTES)
    async with house() as iris:
        iris.gateway.bundles.now_ms = lambda: 100 * DAY_MS + 1
        await send(iris, "eve", b"e" * 500_000)
        iris.gateway.bundles.now_ms = lambda: 101 * DAY_MS + 1
        iris.state.pages["quota"] = {"max_stored_today": most, "stored_today": 1000}
        sent = [await send(iris, "eve", bytes([number]) * 100_000) for number in range(7)]
        iris.state.pages["quota"] = {"max_stored_today": most, "stored_today": most}
        sent += [await send(iris, "ada", b"a"), await send(iris, "eve", bytes(100_000))]
        iris.gateway.bundles.now_ms = lambda: 102 * DAY_MS + 1
        iris.state.pages["quota"] = {"max_stored_today": most, "stored_today": 0}
        sent.append(await send(iris, "eve", b"next"))
    assert [status for status, _ in sent] == [201] * 5 + [429] * 2 + [429, 200] + [201]
    assert sent[5][1].startswith(
        "eve may store 491.2KiB of bundles, artifacts, output and results a day and has stored 491.2KiB"
    )
    assert sent[5][1].endswith(
        "today; the next day, of UTC, begins in 24 h 0 min; this bundle has 98.24KiB"
    )


async def test_a_user_who_fills_half_of_the_room_leaves_the_rest_to_others():
    async with house(bundles_bytes=2_060_000) as iris:
        sent = [await send(iris, "eve", bytes([number]) * 204_800) for number in range(6)]
        others = [await send(iris, user, user.encode() * 1000) for user in ("ada", "bob", "cyd")]
        again = await send(iris, "eve", bytes(204_800))
    assert [status for status, _ in (*sent, *others, again)] == [201] * 5 + [429] + [201] * 3 + [
        200
    ]
    assert "eve has 1003KiB of bundles and sends 200.6KiB" in sent[5][1]
    assert "a user may have 402.3KiB" in sent[5][1]


async def test_a_job_whose_code_is_gone_is_not_run_again(iris: House):
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
    await iris.submit("/a", bundle=DIGEST)
    assert (await iris.http.post("/v1/jobs/j1/rerun", json={})).status_code == 201
    await iris.memory.connect().blobs("iris-bundles").delete(DIGEST)
    hour = iris.gateway.now_ms() + 3_600_000
    iris.gateway.bundles.now_ms = lambda: hour
    assert (await iris.http.post("/v1/jobs/j1/rerun", json={})).status_code == 410


async def test_a_bundle_that_was_deleted_meanwhile_is_asked_for_again(iris: House):
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
    await iris.memory.connect().blobs("iris-bundles").delete(DIGEST)
    hour = iris.gateway.now_ms() + 3_600_000
    iris.gateway.bundles.now_ms = lambda: hour
    assert (await iris.http.head(f"/v1/bundles/{DIGEST}")).status_code == 404
