"""What pages offer to an admin of the cluster, an admin and a member of a project, and a stranger:
what the state service, which is a real one here, lets them do.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest

from iris_core import subjects
from iris_core.messages.gateway_state import Answer, Caller
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import MAX_NAMES
from iris_core.spec.resources import ResourceLimits
from iris_gateway.auth.bearer import parse_tokens
from tests.support.fake_state import COMMANDS
from tests.support.gateway import House, house
from tests.support.world import World

PEOPLE = {"mia": "admin", "lin": "user", "ada": "user", "bob": "user"}
"""An admin of the cluster and of a project, a member, and a stranger."""
TOKENS = "\n".join(
    f"{who} {role} {sha256(who.encode()).hexdigest()}" for who, role in PEOPLE.items()
)
AS_FORM = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin", "accept": "text/html"}
SUBJECTS = {kind: subject for subject, kind in COMMANDS.items()}
PROJECTS = ("/", "/research", "/research/nlp")
WAITS, ENDED = "/train", "/done"


@dataclass
class Team:
    """A gateway before a real state machine."""

    iris: House
    world: World

    def answer(self) -> None:
        """Let the state machine answer what the gateway asks."""
        world = self.world
        state: Any = self.iris.state
        state.look = lambda query: world.ask(subjects.STATE_QUERY, query, Answer)
        state.decide = lambda command: world.command(SUBJECTS[type(command)], command)

    async def page(self, who: str, path: str) -> str:
        answer = await self.iris.http.get(path, headers={"cookie": f"iris_token={who}"})
        assert answer.status_code == 200, answer.text
        return answer.text

    async def send(self, who: str, path: str, **fields: str) -> tuple[int, str]:
        """Send a form; the status of the answer, and where it leads or what it says."""
        headers = {**AS_FORM, "cookie": f"iris_token={who}"}
        answer = await self.iris.http.post(path, data=fields, headers=headers)
        return answer.status_code, answer.headers.get("location", "") or answer.text

    def id_of(self, job: str) -> str:
        return str(self.world.query("job", job=job)["id"])

    def project(self, path: str) -> Any:
        return self.world.query("project", project=path)


@pytest.fixture
async def team() -> AsyncIterator[Team]:
    """eve has a job that waits and one that has ended, in a project of which ada is a member and lin,
    above it, an admin.
    """
    world = World()
    world.change_project("/research", admins=("lin",))
    world.change_project("/research/nlp", members=("ada", "eve", "@talk"))
    eve = Caller("eve", "user")
    for name in (WAITS, ENDED):
        spec = JobSpec(name=name, command=("true",), project="/research/nlp", user="eve")
        assert world.submit(spec, eve).status == "created"
    world.cancel(ENDED, eve)
    async with house(parse_tokens(TOKENS)) as iris:
        made = Team(iris, world)
        made.answer()
        yield made


def offered(text: str) -> set[str]:
    """The changes of a job that its page offers."""
    found = set(re.findall(r'<button name="action" value="(\w+)"', text))
    found |= {"cancel"} if 'href="/cancel?job=' in text else set()
    return found | ({"rerun"} if "/rerun" in text else set())


async def test_a_jobs_page_offers_what_its_reader_may_do(team: Team):
    waiting, ended = (f"/jobs/{team.id_of(name)}" for name in (WAITS, ENDED))
    changes = {"cancel", "update", "hold"}
    assert {who: offered(await team.page(who, waiting)) for who in PEOPLE} == {
        "mia": changes,
        "lin": changes,
        "ada": set(),
        "bob": set(),
    }
    assert {who: offered(await team.page(who, ended)) for who in PEOPLE} == {
        "mia": {"rerun"},
        "lin": set(),
        "ada": set(),
        "bob": set(),
    }


async def test_what_a_jobs_page_offers_is_done_and_nothing_else_is(team: Team):
    path = f"/jobs/{team.id_of(WAITS)}"
    for who in PEOPLE:
        is_offered = "hold" in offered(await team.page(who, path))
        for action in ("hold", "release"):
            status, _ = await team.send(who, f"{path}/change", key=f"{who}-1", action=action)
            assert (who, action, status) == (who, action, 303 if is_offered else 403)


async def test_the_list_of_jobs_lets_choose_what_its_reader_may_cancel(team: Team):
    row = rf'<input type="checkbox" name="job" value="{team.id_of(WAITS)}"[^>]*>'
    chosen = {}
    for who in PEOPLE:
        [box] = re.findall(row, await team.page(who, "/jobs?project=%2Fresearch"))
        chosen[who] = " disabled" not in box
        text = await team.page(who, f"/cancel?job={team.id_of(WAITS)}")
        assert (who, "belongs to eve" in text) == (who, not chosen[who])
    assert chosen == {"mia": True, "lin": True, "ada": False, "bob": False}
    status, _ = await team.send("lin", "/cancel", job=team.id_of(WAITS))
    assert (status, team.world.query("job", job=WAITS)["state"]) == (303, "killed")


async def test_the_page_of_projects_offers_what_its_reader_may_set(team: Team):
    found = {}
    for who in PEOPLE:
        text = await team.page(who, "/projects")
        found[who] = set(re.findall(r'aria-label="Change ([^"]*)"', text))
    assert found == {
        "mia": set(PROJECTS),
        "lin": {"/research", "/research/nlp"},
        "ada": set(),
        "bob": set(),
    }


def rows_of(text: str) -> list[str]:
    """What a reader sees of each row of a page's tables, on one line."""
    rows = re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in rows]


async def test_pages_show_guarantees_weights_and_the_side_of_what_waits(team: Team):
    [waits] = [row for row in rows_of(await team.page("bob", "/queue")) if WAITS in row]
    assert " side " not in waits
    assert "steps" not in waits
    team.world.change_project(
        "/research", admins=("lin",), weight=3, guarantee=ResourceLimits(cpu_millis=2000)
    )
    team.world.change_project("/web", weight=0.5)
    shown = {row.split()[0]: row for row in rows_of(await team.page("bob", "/projects"))}
    assert "cpu 0 2 guaranteed" in shown["/research"]
    assert "weight 3 share 0 " in shown["/research"]
    assert "weight 0.5 share 0 " in shown["/web"]
    assert "guaranteed" not in shown["/web"]
    [waits] = [row for row in rows_of(await team.page("bob", "/queue")) if WAITS in row]
    assert "band interactive near side" in waits
    assert re.search(r"steps -?\d+/-?\d+/-?\d+ ", waits)


@pytest.mark.parametrize("path", PROJECTS)
async def test_the_form_of_a_project_has_the_fields_that_the_state_service_takes(
    team: Team, path: str
):
    place = f"/projects/{quote(path, safe='')}/update"
    for number, who in enumerate(PEOPLE):
        answer = await team.iris.http.get(place, headers={"cookie": f"iris_token={who}"})
        if answer.status_code == 403:
            status, _ = await team.send(who, place, key=who, specification="{}")
            assert status == 403
            continue
        fields = form_of(answer.text)
        assert "guarantee" not in fields or path != "/"
        for field, value in {"max_pending_tasks": number + 1, "members": ["eve", who]}.items():
            given = json.dumps({field: value})
            version = str(team.project(path)["version"])
            status, _ = await team.send(
                who, place, key=f"{who}{field}", version=version, specification=given
            )
            assert (who, path, field, status == 303) == (who, path, field, field in fields)


def form_of(text: str) -> Any:
    """The JSON in the form of a project."""
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", text, re.DOTALL)
    assert found is not None, text
    return json.loads(html.unescape(found[1]))


async def test_an_admin_of_a_project_sets_its_members_and_all_of_what_is_below(team: Team):
    own, below = (f"/projects/{quote(path, safe='')}/update" for path in PROJECTS[1:])
    assert form_of(await team.page("lin", own)) == {"members": [], "default_for": []}
    shown = form_of(await team.page("lin", below))
    assert shown["members"] == ["ada", "eve", "@talk"]
    changed = json.dumps({"limit": {"cpu_millis": 4000}})
    assert await team.send("lin", below, key="1", specification=changed) == (303, "/projects")
    project = team.project("/research/nlp")
    assert (project["limit"], project["members"]) == ({"cpu_millis": 4000}, shown["members"])


async def test_a_project_is_removed_by_who_may_set_what_is_above_it(team: Team):
    """With the version that its page has shown, once nothing of it lives."""
    team.world.change_project("/research/nlp/small")
    place = f"/projects/{quote('/research/nlp/small', safe='')}"
    for who, may in {"mia": True, "lin": True, "ada": False, "bob": False}.items():
        cookie = {"cookie": f"iris_token={who}"}
        for path in ("update", "remove"):
            answer = await team.iris.http.get(f"{place}/{path}", headers=cookie)
            offers = f'href="{place}/remove"' in answer.text or "Remove the project" in answer.text
            assert (who, path, answer.status_code, offers) == (
                *(who, path),
                *((200, True) if may else (403, False)),
            )
    status, _ = await team.send("ada", f"{place}/remove", key="1", version="1")
    assert status == 403
    status, text = await team.send("lin", f"{place}/remove", key="2", version="7")
    assert (status, "has been changed since" in text) == (412, True)
    above = f"/projects/{quote('/research/nlp', safe='')}/remove"
    status, text = await team.send("lin", above, key="3", version="1")
    assert (status, "has 1 project below it" in text) == (409, True)
    assert await team.send("lin", f"{place}/remove", key="4", version="1") == (303, "/projects")
    assert "/research/nlp/small" not in await team.page("lin", "/projects")
    own = await team.iris.http.get(
        f"/projects/{quote('/research', safe='')}/update", headers={"cookie": "iris_token=lin"}
    )
    assert "Remove it" not in own.text
    whole = await team.page("mia", f"/projects/{quote('/', safe='')}/update")
    assert "Remove it" not in whole


async def test_the_form_of_a_project_takes_as_many_members_as_it_may_have(team: Team):
    own = f"/projects/{quote('/research', safe='')}/update"
    members = [f"user-{number:0>50}" for number in range(MAX_NAMES)]
    changed = json.dumps({"members": members})
    assert await team.send("lin", own, key="1", specification=changed) == (303, "/projects")
    assert team.project("/research")["members"] == members
    assert form_of(await team.page("lin", own))["members"] == members


async def test_a_refused_change_of_a_project_is_shown_with_what_was_written(team: Team):
    place = f"/projects/{quote('/research/nlp', safe='')}/update"
    written = '{"limit": {"gpus": 1}}'
    status, text = await team.send("lin", place, key="1", version="1", specification=written)
    assert (status, "/limit/gpus" in text, "{&#34;limit&#34;" in text) == (422, True, True)
    team.world.change_project("/research/nlp", members=("ada", "eve"), max_pending_tasks=3)
    written = '{"max_pending_tasks": 9}'
    status, text = await team.send("lin", place, key="2", version="1", specification=written)
    assert (status, "has been changed since" in text) == (412, True)
    status, text = await team.send("lin", place, key="3", version="2", specification="{")
    assert (status, "the body is not JSON" in text) == (400, True)


async def test_groups_of_a_token_count_where_the_state_service_knows_them(team: Team):
    team.world.change_project("/research", admins=("@heads",))
    asked = {"projects": ["/research"], "groups": ["heads"]}
    assert team.world.query("memberships", **asked) == {"memberships": {"/research": 2}}
    asked["groups"] = ["talk"]
    assert team.world.query("memberships", **asked) == {"memberships": {"/research": 0}}


async def test_memberships_are_asked_for_only_where_there_are_projects(team: Team):
    async def asked() -> set[str]:
        team.iris.state.queries.clear()
        await team.page("bob", "/jobs")
        return {one.what for one in team.iris.state.queries}

    assert "memberships" in await asked()
    team.world = World()
    team.answer()
    team.world.submit(JobSpec(name=WAITS, command=("true",), user="eve"), Caller("eve", "user"))
    assert "memberships" not in await asked()


async def test_a_job_leads_to_the_jobs_of_its_project(team: Team):
    text = await team.page("bob", f"/jobs/{team.id_of(WAITS)}")
    [path] = re.findall(r'<a href="([^"]*)">/research/nlp</a>', text)
    assert WAITS in await team.page("bob", path)
