"""The gateway redirects requests for deployments to the proxy."""

import hashlib

import pytest

from iris_gateway.auth.bearer import parse_tokens
from tests.support.gateway import house


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_request_to_a_deployment_is_redirected_with_its_raw_target(method: str):
    async with house(proxy_url="http://127.0.0.1:2/") as made:
        answer = await made.http.request(method, "http://127.0.0.1/d/chat/a%2Fb/..%2f?q=%20x&y")
    assert (answer.status_code, answer.headers["location"]) == (
        307,
        "http://127.0.0.1:2/d/chat/a%2Fb/..%2f?q=%20x&y",
    )


async def test_nobody_is_asked_who_calls_a_deployment():
    keyring = parse_tokens(f"ann user {hashlib.sha256(b'secret').hexdigest()}")
    async with house(keyring, proxy_url="http://127.0.0.1:2") as made:
        assert (await made.http.get("/d/chat/")).status_code == 307
        assert (await made.http.get("/v1/jobs")).status_code == 401


async def test_a_gateway_that_knows_no_proxy_says_so():
    async with house() as made:
        answer = await made.http.get("/d/chat/")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "proxy_url" in answer.json()["detail"]
