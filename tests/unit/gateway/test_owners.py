"""Who may read what of a record: its owner, whoever has its name by now.
docs/design/semantics.md#rights-and-names.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from iris_core import subjects
from iris_core.access import task_tokens
from iris_core.codec import to_json, unpack
from iris_core.messages.gateway_state import Answer, Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact, Ended, Stage
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_gateway.api import ENDPOINTS
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.dashboard.pages import PAGES
from iris_state.views.reads import answer
from tests.support import first_fit
from tests.support.gateway import House, house
from tests.support.world import Host, World
from tests.unit.gateway.test_task_tokens import HOUR_MS, KEY, write_keys

ANN, BOB = Caller("ann"), Caller("bob")
ROLES = {"ann": "user", "bob": "user", "root": "admin", "w": "worker"}
TOKENS = "\n".join(
    f"{user} {role} {sha256(user.encode()).hexdigest()}" for user, role in ROLES.items()
)
SECRETS = ("plain-env", "printed-to-stderr", "printed-line", "artifact-bytes", "c0de" * 16)
"""What only the owner and admins may read: a variable, the end of an attempt, output, an artifact,
a digest.
"""
ENV, TAIL, LINE, PART, DIGEST = SECRETS
OF_JOBS = ("{job}", "{task}", "{index}")
READS = [
    one.path
    for one in (*ENDPOINTS, *PAGES)
    if one.method == "GET" and set(re.findall(r"{\w+}", one.path)) & set(OF_JOBS)
]
"""Every read of one job or one task."""
_CHANGES = re.compile(
    r'<time.*?</time>|data-(version|at)="[^"]*"|name="key" value="[^"]*"|<p class="faint">It was run again as .*?</p>|'
    r'"next_run":("j2"|null)|"name_shared":(true|false)'
)
"""What differs between two readings of one page, and that there is a namesake."""


def by_id(path: str) -> str:
    for parameter, value in zip(OF_JOBS, ("j1", "j1%2F0", "0"), strict=True):
        path = path.replace(parameter, value)
    return f"{path}?user=ann" if path.startswith("/v1/") else path


@pytest.fixture
def world() -> World:
    """A job of ann has failed: one of its tasks has printed something and ended, the other one is
    being stopped.
    """
    world = World()
    spec = JobSpec(name="/train", command=("true",), replicas=2, env={"MODE": ENV}, bundle=DIGEST)
    world.submit(spec, ANN)
    world.register(Host("w0", Amount(2000, 0, 0, 0), {}))
    world.plan(first_fit.plan(world.snapshot()))
    for status in (KernelStatus.PREPARING, KernelStatus.RUNNING):
        world.say("w0", *(Stage(AttemptRef(1, index, 0), status, world.now_ms) for index in (0, 1)))
    ended = Ended(
        Cause.EXITED, exit_code=3, stderr_tail=TAIL, artifact=Artifact("u1", len(PART), 1)
    )
    world.say("w0", Stage(AttemptRef(1, 0, 0), KernelStatus.TERMINATED, world.now_ms, ended))
    return world


@pytest.fixture
async def iris(world: World) -> AsyncIterator[House]:
    """A gateway before these records."""
    async with house(parse_tokens(TOKENS)) as made:
        await write_keys(made, KEY)
        made.state.look = lambda query: unpack(answer(world.ledger, query, 1), Answer)
        await made.state.print(1, 0, f"{LINE}\n")
        subject = subjects.artifact("w0", 1, "u1")
        await made.memory.connect().streams.publish(
            subject, PART.encode(), headers={subjects.PART: "0"}
        )
        yield made


async def tell_events(iris: House, world: World) -> None:
    """Publish the events of the records that have happened since."""
    for subject, event in world.events:
        await iris.memory.connect().streams.publish(subject, to_json(event))
    world.events.clear()


def callers(iris: House) -> dict[str, dict[str, str]]:
    """The headers of every kind of caller; the attempt is of the owner's job."""
    grant = task_tokens.grant(KEY, 1, "ann", "w0", iris.gateway.now_ms() + HOUR_MS)
    tokens = {
        **{user: user for user in ROLES},
        "attempt": task_tokens.token(grant, AttemptRef(1, 1, 0)),
    }
    same = {"X-Request-Id": "same"}
    return {
        "": same,
        **{name: {**same, "Authorization": f"Bearer {token}"} for name, token in tokens.items()},
    }


async def read_all(iris: House, path: str) -> dict[str, tuple[int, str]]:
    """What each kind of caller gets."""
    found = {}
    for name, headers in callers(iris).items():
        response = await iris.http.get(by_id(path), headers=headers)
        found[name] = response.status_code, _CHANGES.sub("", response.text)
    return found


@pytest.mark.parametrize("path", READS)
async def test_a_read_by_id_does_not_ask_who_has_the_name(iris: House, world: World, path: str):
    await tell_events(iris, world)
    before = await read_all(iris, path)
    assert (
        world.submit(JobSpec(name="/train", command=("false",), env={"MODE": "other"}), BOB).status
        == "created"
    )
    await tell_events(iris, world)
    assert await read_all(iris, path) == before
    assert before["ann"][0] == before["root"][0] == 200
    assert before[""][0] in (303, 401)  # a page leads to the form for a token
    for name in ("bob", "w", ""):
        assert not [secret for secret in SECRETS if secret in before[name][1]], name
    told = [[secret in before[name][1] for secret in SECRETS] for name in ("ann", "root")]
    assert told[0] == told[1]


async def test_the_owner_reads_everything_of_an_old_record(iris: House, world: World):
    world.submit(JobSpec(name="/train", command=("false",)), BOB)
    everything = ""
    for path in READS:
        everything += (await read_all(iris, path))["ann"][1]
    assert [secret for secret in SECRETS if secret not in everything] == []


async def test_the_overview_shows_the_last_stderr_line_to_its_owner(iris: House, world: World):
    pages = {
        name: (await iris.http.get("/", headers=headers)).text
        for name, headers in callers(iris).items()
    }
    assert [name for name, page in pages.items() if TAIL in page] == ["ann", "root"]


async def test_the_overview_leaves_out_a_job_whose_name_has_run_again(iris: House, world: World):
    world.submit(JobSpec(name="/train", command=("false",)), ANN)
    pages = [(await iris.http.get("/", headers=headers)).text for headers in callers(iris).values()]
    assert not any(TAIL in page for page in pages)


@pytest.mark.parametrize(
    ("kind", "body"),
    [("executions", {"command": ["id"]}), ("terminal", {}), ("tunnels", {"port": 8888})],
)
async def test_who_has_the_name_now_executes_nothing_beside_the_old_task(
    iris: House, world: World, kind: str, body: dict[str, object]
):
    world.submit(JobSpec(name="/train", command=("false",)), BOB)
    path = f"/v1/tasks/j1%2F1/{kind}"
    sent = {
        name: await iris.http.post(path, json=body, headers=who)
        for name, who in callers(iris).items()
    }
    codes = {name: response.status_code for name, response in sent.items()}
    own = 409 if kind == "executions" else 403  # a task executes commands in its own job
    assert codes == {"": 401, "ann": 409, "bob": 403, "root": 409, "w": 403, "attempt": own}
    assert "/train belongs to ann" in sent["bob"].json()["detail"]


async def test_pages_of_an_old_record_link_to_its_own_tasks(iris: House, world: World):
    world.submit(JobSpec(name="/train", command=("false",)), ANN)
    await tell_events(iris, world)
    root = callers(iris)["root"]
    for path in ("/jobs/j1", "/tasks/j1/0"):
        page = (await iris.http.get(path, headers=root)).text
        links = re.findall(r'href="/(?:tasks|jobs)/([^"#?/]+)', page)
        assert set(links) <= {"j1", "j2"}
        assert TAIL in page
        assert LINE in page
    assert (
        'It was run again as <a href="/jobs/j2">j2</a>'
        in (await iris.http.get("/jobs/j1", headers=root)).text
    )
