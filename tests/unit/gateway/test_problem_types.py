"""Every refusal has a type of the table, whose URI is a page of the gateway."""

import ast
import re

import pytest

from iris_core.errors import Code
from iris_gateway.api import ENDPOINTS
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.http.problem_types import PROBLEM_TYPES, uri_of
from tests.house.repository import sources
from tests.support.gateway import House, house


def codes_raised() -> set[str]:
    """The codes that the gateway's modules pass to `ProblemResponse`."""
    calls = [
        node
        for source in sources()
        if source.module.startswith("iris_gateway.")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ProblemResponse"
    ]
    return {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}


def test_every_refusal_is_a_row_of_the_table_and_every_row_is_used():
    documented = {code for endpoint in ENDPOINTS for code in endpoint.problems}
    assert documented <= set(PROBLEM_TYPES)
    assert codes_raised() | set(Code) == set(PROBLEM_TYPES)


@pytest.mark.parametrize("code", PROBLEM_TYPES)
def test_a_title_a_meaning_and_a_remedy_are_plain_text(code: str):
    row = PROBLEM_TYPES[code]
    assert row.title
    assert row.meaning.endswith(".")
    assert row.remedy.endswith(".")
    assert not re.search(r"[<>|*`]", row.title + row.meaning + row.remedy)


async def test_the_type_of_a_refusal_is_the_address_of_a_page_about_it(iris: House):
    refused = await iris.http.get("/v1/jobs/%2Fnope")
    assert refused.json()["type"] == "/problems/not_found"
    page = await iris.http.get(refused.json()["type"])
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert PROBLEM_TYPES["not_found"].remedy in page.text
    assert PROBLEM_TYPES["conflict"].remedy not in page.text


async def test_who_is_not_signed_in_can_read_what_every_type_means():
    async with house(parse_tokens("ada user " + "0" * 64)) as iris:
        refused = (await iris.http.get("/v1/jobs")).json()
        assert refused["type"] == uri_of("unauthenticated")
        assert [(await iris.http.get(uri_of(code))).status_code for code in PROBLEM_TYPES] == [
            200
        ] * len(PROBLEM_TYPES)
        text = (await iris.http.get("/problems")).text
        assert [code for code, row in PROBLEM_TYPES.items() if row.title not in text] == []


async def test_a_type_that_does_not_exist_is_not_found(iris: House):
    refused = await iris.http.get("/problems/nope")
    assert (refused.status_code, refused.headers["content-type"]) == (
        404,
        "text/html; charset=utf-8",
    )
    assert "/problems lists them" in refused.text
