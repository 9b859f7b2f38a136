"""Code stored under its digest."""

from hashlib import sha256

from tests.support.gateway import House, house

DATA = b"code" * 1000
DIGEST = sha256(DATA).hexdigest()


async def test_a_bundle_is_stored_once(iris: House):
    statuses = [(await iris.http.head(f"/v1/bundles/{DIGEST}")).status_code]
    statuses += [(await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)).status_code for _ in range(2)]
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
    assert (await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA, headers=headers)).status_code == 415


async def test_a_job_may_only_name_code_that_is_stored(iris: House):
    first = await iris.submit("/a", bundle=DIGEST)
    assert first.json()["errors"][0]["pointer"] == "/bundle"
    await iris.http.put(f"/v1/bundles/{DIGEST}", content=DATA)
    assert (await iris.submit("/a", bundle=DIGEST)).status_code == 201
