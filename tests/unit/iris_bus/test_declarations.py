"""What a declaration changes of a stream that is there."""

import pytest

from iris_bus.contract import StoreStanding
from iris_bus.streams.api import Cluster, Peer, StreamInfo, StreamState, standing_of
from iris_bus.streams.declarations import changed, config_of, copies, differences
from iris_core import subjects

WANTED = config_of(subjects.JOURNAL, 3, clustered=True)
EVENTS = config_of(subjects.EVENTS, 3, clustered=True)
DAY_NS = subjects.DAY_S * 10**9


@pytest.mark.parametrize(
    ("replicas", "clustered", "number"), [(0, False, 1), (0, True, 3), (1, True, 1), (5, True, 5)]
)
def test_a_new_cluster_has_as_many_replicas_as_its_servers_allow(replicas, clustered, number):
    assert copies(replicas, clustered=clustered) == number


@pytest.mark.parametrize(
    ("key", "safer"),
    [
        ("num_replicas", 5),
        ("max_age", 0),
        ("max_age", 30 * DAY_NS),
        ("max_bytes", -1),
        ("max_bytes", 1 << 50),
        ("discard", "new"),
        ("deny_delete", True),
    ],
)
def test_what_is_safer_than_the_settings_say_stays_until_it_is_applied(key, safer):
    present = {**EVENTS, key: safer, "metadata": {"a": "b"}}
    [found] = differences(present, EVENTS)
    assert (found.key, found.lowers, found.fixed) == (key, True, False)
    assert changed(present, [found]) == present
    assert changed(present, [found], lower=True) == {**EVENTS, "metadata": {"a": "b"}}


@pytest.mark.parametrize(
    ("key", "less_safe"),
    [("num_replicas", 1), ("max_age", DAY_NS), ("max_bytes", 1), ("discard", "old")],
)
def test_what_is_less_safe_than_the_settings_say_is_raised_at_once(key, less_safe):
    wanted = WANTED if key == "discard" else EVENTS
    present = {**wanted, key: less_safe}
    assert changed(present, differences(present, wanted)) == wanted


def test_a_stream_that_is_not_synced_has_one_copy_for_good_and_says_so():
    """No server changes how a stream is synced, nor replicates one that is not."""
    present = {**EVENTS, "num_replicas": 1, "persist_mode": "async"}
    found = differences(present, EVENTS)
    assert {one.key: one.fixed for one in found} == {"num_replicas": True, "persist_mode": True}
    assert changed(present, found, lower=True) == present


def test_events_are_not_synced_on_a_single_server_only():
    assert [
        config_of(subjects.EVENTS, 1, clustered=on).get("persist_mode") for on in (False, True)
    ] == ["async", None]


def test_a_difference_is_said_in_the_units_of_the_settings():
    [found] = differences({**EVENTS, "max_age": 7 * DAY_NS}, EVENTS)
    assert str(found) == "IRIS_EVENTS: max_age is 7 days, the settings say 3 days"


def info(*peers: Peer, leader: str = "n0", name: str = "iris", replicas: int = 3) -> StreamInfo:
    config = {"num_replicas": replicas, "max_bytes": -1, "metadata": {"k": "v"}}
    return StreamInfo(config, state=StreamState(bytes=7), cluster=Cluster(name, leader, peers))


def test_a_copy_counts_while_its_server_answers_and_it_holds_everything():
    current, behind, silent = (
        Peer("n1", current=True),
        Peer("n2"),
        Peer("n2", current=True, active=6 * 10**9),
    )
    assert [standing_of(info(current, other), 3).current for other in (behind, silent)] == [2, 2]
    assert standing_of(info(current, silent), 3).servers == {"n0": True, "n1": True, "n2": False}
    assert standing_of(info(current, behind, leader=""), 3).current == 1  # an election


def test_more_copies_than_the_settings_say_are_wanted_too():
    assert standing_of(info(Peer("n1", current=True), Peer("n2", current=True)), 1).wanted == 3
    alone = StoreStanding(
        7, wanted=3, declared=1, current=1, servers={"n0": True}, notes={"k": "v"}
    )
    assert standing_of(info(replicas=1), 3) == alone
    assert standing_of(info(leader="", name="", replicas=1), 1).current == 1
