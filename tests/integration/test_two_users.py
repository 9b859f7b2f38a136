"""Two users of one cluster with authentication: rights follow the record and its owner, never a
name.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris import AsyncClient, Client, Executor, Job
from iris.client.maps.mapping import Mapped
from iris.client.problems import Conflict, InvalidOption, NotAllowed, NotFound
from tests.support.cluster import Cluster, cluster_on, settings, until

pytestmark = pytest.mark.integration
WITHIN_S = 60
WINDOW = 2
NOT_OURS = r"belongs to ann, not to .*of_user='ann'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = tmp_path_factory.mktemp("users")
    narrow = settings(place, f"[state]\nmax_building = {WINDOW}\n")
    with cluster_on(place / "data", "--workers", "1", *narrow) as running:
        yield running


@pytest.fixture(scope="module")
def ann(cluster: Cluster) -> Iterator[Client]:
    """A client of a user without further rights; that of the cluster is an admin's."""
    added = cluster.iris("admin", "token", "add", "ann", "--file", cluster.data / "tokens")
    with Client(cluster.url, token=added.out.strip()) as client:
        until(lambda: _is_known(client), "the gateway knows the token")
        yield client


def _is_known(client: Client) -> bool:
    try:
        return bool(client.get("/v1/whoami", dict))
    except NotAllowed:
        return False


class Trap:
    """A function for a map whose results run code where they are unpickled: they make a file."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @property
    def function(self) -> Callable[[object], object]:
        place = str(self._place)

        def call(_: object) -> object:
            class Planted:
                def __reduce__(self) -> tuple[Any, ...]:
                    return os.mknod, (place,)

            return Planted()

        return call

    def sprung(self) -> bool:
        """Whether it was unpickled since the last call."""
        was = self._place.exists()
        self._place.unlink(missing_ok=True)
        return was


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "planted")


def set_by(ann: Client, trap: Trap, name: str) -> Mapped[object]:
    """A map of ann that has ended, and whose owner has read what it returns."""
    mapped = ann.map(trap.function, [0], name=name, cpu=0.1)
    assert mapped.results(WITHIN_S) == [None]
    assert trap.sprung()
    return mapped


def found_by_twin(client: Client, job: str) -> list[object]:
    """The results of a map by the asynchronous client."""

    async def read() -> list[object]:
        async with AsyncClient(client.address.url, token=client.address.bearer()) as twin:
            mapped = await twin.map_of(job)
            return await mapped.results(WITHIN_S)

    return asyncio.run(read())


def found(client: Client, job: str) -> list[object]:
    return client.map_of(job).results(WITHIN_S)


@pytest.mark.parametrize("find", [found, found_by_twin])
def test_results_of_a_map_run_code_of_its_owner_only_where_that_is_named(
    cluster: Cluster, ann: Client, trap: Trap, find: Callable[[Client, str], list[object]]
):
    """A shell command of a user ran as the admin who looked for a map of that name."""
    theirs = set_by(ann, trap, f"trap-{find.__name__.replace('_', '-')}").job
    again = cluster.client.rerun(theirs.id)
    assert again.wait(WITHIN_S).user == "ann"
    for job in (theirs.name, theirs.id, again.id):
        with pytest.raises(InvalidOption, match=NOT_OURS):
            find(cluster.client, job)
        assert not trap.sprung()

    assert cluster.client.map_of(again.id, of_user="ann").results(WITHIN_S) == [None]
    assert trap.sprung()
    with pytest.raises(NotFound, match=f"there is no job {theirs.id}@bob"):
        cluster.client.map_of(theirs.id, of_user="bob")
    with pytest.raises(InvalidOption, match="not a map, or not yours"):
        ann.map_of(cluster.client.map(len, ["a"], cpu=0.1).job.id)


def test_the_gateway_refuses_results_of_others_that_are_not_named(
    cluster: Cluster, ann: Client, trap: Trap
):
    """A client of an earlier release does not look whose they are."""
    job = set_by(ann, trap, "trap-raw").job
    unnamed = Mapped[object](cluster.client.job(job.id), cluster.client, job.view.spec.calls)
    with pytest.raises(NotAllowed, match="user=ann asks for them"):
        unnamed.results(WITHIN_S)
    assert not trap.sprung()


def test_calls_that_an_admin_makes_for_a_user_return_their_results(cluster: Cluster, ann: Client):
    """Who says `user=` has named the owner."""
    assert cluster.client.map(len, ["a"], user="ann", cpu=0.1).results(WITHIN_S) == [1]
    with Executor(cluster.client, user="ann", cpu=0.1) as executor:
        assert executor.submit(len, "ab").result(WITHIN_S) == 2


def test_a_name_is_ones_own_first_and_with_its_owner_anybodys(cluster: Cluster, ann: Client):
    """Of seven users who chose the name `ten`, six were refused."""
    hers, ours = (
        client.run(["sleep", "1000"], name="ten", cpu=0.1) for client in (ann, cluster.client)
    )
    assert [client.job("/ten").id for client in (ann, cluster.client)] == [hers.id, ours.id]
    assert [cluster.client.job("ten@ann").id, ann.job("ten", user="root").id] == [hers.id, ours.id]
    listed = cluster.iris("ls", "-o", "name", "--prefix", "ten").out.split()
    assert listed == [ours.id, hers.id]
    waits = ann.run(["true"], name="next", after=["ten:any"], cpu=0.1)
    assert [gate.job.id for gate in waits.view.gates if gate.job] == [hers.id]
    cancelled = cluster.iris("cancel", "ten@ann")
    assert (cancelled.code, cancelled.err) == (0, "/ten killed\n")
    assert (hers.wait(WITHIN_S).state, ours.refresh().state == "killed") == ("killed", False)
    kept = ann.run(["true"], name="ten", if_exists="keep", cpu=0.1)
    assert kept.id not in (hers.id, ours.id)
    ours.cancel()


def test_a_note_says_whose_job_a_plain_name_has_found(cluster: Cluster, ann: Client):
    hers = ann.run(["true"], name="hers-alone", cpu=0.1)
    shown = cluster.iris("show", "hers-alone", "-o", "json")
    note = f"/hers-alone ({hers.id}) is a job of ann: root has none of that name\n"
    assert (shown.code, shown.err) == (0, note)
    assert cluster.iris("wait", hers.id).err.count("is a job of ann") == 0


def test_a_name_of_several_others_says_whose_there_are(cluster: Cluster, ann: Client):
    for user in ("bob", "eve"):
        cluster.client.run(["true"], name="both", user=user, cpu=0.1)
    with pytest.raises(Conflict, match="say /both@bob or /both@eve, or use the id"):
        ann.job("both")
    with pytest.raises(Exception, match="of bob, eve, and none of ann's"):
        ann.run(["true"], after=["both"], cpu=0.1)


def test_builds_of_one_user_keep_no_other_user_from_starting(cluster: Cluster, ann: Client):
    """They wait for what never comes, and fill the building window of the only host."""
    builds = [
        ann.run(["true"], setup=f"sleep 10000 # {number}", cpu=0.001)
        for number in range(WINDOW + 1)
    ]
    last = builds[-1]
    until(lambda: is_kept_out(last), "the window is full")
    ours = cluster.client.run(["true"], cpu=0.001)
    assert ours.wait(WITHIN_S).state == "succeeded"
    assert not any(job.refresh().finished_at for job in builds)
    assert "most of those that prepare are ann's" in cluster.iris("why", last.id).out
    for job in builds:
        job.cancel(now=True)


def is_kept_out(job: Job) -> bool:
    reason = job.refresh().pending_reason
    return reason is not None and reason.code == "building_window_full"
