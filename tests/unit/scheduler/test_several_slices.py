"""Gangs of several slices: a group for each slice, all slices or none, in one domain when they ask
for one.
"""

from __future__ import annotations

from iris_core.messages.scheduler_state import WorkerRow
from iris_core.placement.reasons import ReasonCode
from iris_core.states import WorkerState
from iris_scheduler.settings import SchedulerSettings
from tests.support.scheduling import Story, tpu, worker


def pods(*names: str, vms: int = 2, **attributes: str) -> list[WorkerRow]:
    return [tpu(name, number, **attributes) for name in names for number in range(vms)]


def train(story: Story, slices: int = 2, name: str = "/train", **options: object) -> None:
    story.gang(name, 2 * slices, slices=slices, **options)


def test_each_slice_of_tasks_has_a_slice_of_its_own() -> None:
    story = Story(*pods("s1", "s2", "s3"))
    train(story)
    assert story.cycle() == {
        "/train/0": "s1-0",
        "/train/1": "s1-1",
        "/train/2": "s2-0",
        "/train/3": "s2-1",
    }


def test_a_group_with_room_for_two_slices_holds_one() -> None:
    story = Story(*pods("s1", vms=4))
    train(story)
    assert story.cycle() == {}


def test_all_slices_are_placed_or_none() -> None:
    story = Story(*pods("s1", "s2"), tpu("s3", 0))
    train(story, slices=3)
    assert story.cycle() == {}
    assert story.mirror.hosts.free()[3].tolist() == [4] * 5


def test_the_slices_with_the_fewest_spare_hosts_are_taken() -> None:
    story = Story(*pods("a", vms=3), *pods("b", "c"))
    train(story)
    assert list(story.cycle().values()) == ["b-0", "b-1", "c-0", "c-1"]


def test_slices_within_a_zone_are_in_one_zone() -> None:
    story = Story(*pods("s1", zone="eu"), *pods("s2", "s3", zone="us"))
    train(story, within="zone")
    assert list(story.cycle().values()) == ["s2-0", "s2-1", "s3-0", "s3-1"]


def test_slices_wait_while_no_zone_has_enough_of_them() -> None:
    story = Story(*pods("s1", zone="eu"), *pods("s2", zone="us"), *pods("s3"))
    train(story, within="zone")
    assert story.cycle() == {}
    reason = story.reasons["/train"]
    assert reason.facts["domain"] == "zone eu"
    assert reason.message.startswith("1 of 2 slices free in zone eu")


def test_the_zone_with_the_fewest_spare_slices_is_taken() -> None:
    story = Story(*pods("s1", "s2", "s3", zone="eu"), *pods("s4", "s5", zone="us"))
    train(story, within="zone")
    assert list(story.cycle().values()) == ["s4-0", "s4-1", "s5-0", "s5-1"]


def test_the_reason_counts_slices_and_names_who_holds_the_nearest() -> None:
    story = Story(*pods("s1", "s2", "s3", "s4"))
    story.running("/other", ["s4-0"], cpu=4)
    story.running("/more", ["s3-0", "s3-1"], cpu=4)
    train(story, slices=4)
    story.cycle()
    reason = story.reasons["/train"]
    assert reason.code is ReasonCode.GANG_NEEDS_GROUP
    assert reason.message.startswith(
        "2 of 4 slices free; a slice is 2 workers free at once with the same tpu-name"
    )
    assert reason.facts["free"] == 2
    assert reason.facts["slices"] == 4
    assert reason.facts["held"] == {
        "s3-0": "held by /more",
        "s3-1": "held by /more",
        "s4-0": "held by /other",
    }


def test_a_gang_that_took_the_slices_is_the_reason_of_the_next() -> None:
    story = Story(*pods("s1", "s2", "s3"))
    train(story)
    train(story, name="/next")
    assert {name.rpartition("/")[0] for name in story.cycle()} == {"/train"}
    assert story.reasons["/next"].code is ReasonCode.BEHIND


def test_preemption_frees_every_slice_or_evicts_nobody() -> None:
    story = Story(*pods("s1", "s2"))
    story.running("/low", ["s1-0"], band="batch", cpu=4)
    story.running("/high", ["s2-0"], band="production", cpu=4)
    train(story)
    assert story.evict() == ([], ())
    story.end("/high", 0)
    victims, nominations = story.evict()
    assert victims == ["/low/0"]
    assert [one.worker for one in nominations] == ["s1-0", "s1-1", "s2-0", "s2-1"]


def test_preemption_takes_the_slices_that_cost_least() -> None:
    story = Story(*pods("s1", "s2", "s3"))
    story.running("/two", ["s1-0", "s1-1"], band="batch", cpu=4, spread="hosts")
    story.running("/one", ["s2-0"], band="batch", cpu=4)
    train(story)
    victims, nominations = story.evict()
    assert victims == ["/one/0"]
    assert [one.worker for one in nominations] == ["s2-0", "s2-1", "s3-0", "s3-1"]


def test_preemption_stays_in_one_zone() -> None:
    story = Story(*pods("s1", "s2", zone="eu"), *pods("s3", zone="us"))
    story.running("/low", ["s1-0"], band="batch", cpu=4)
    story.running("/more", ["s2-0", "s2-1"], band="batch", cpu=4)
    train(story, within="zone")
    victims, nominations = story.evict()
    assert victims == ["/low/0", "/more/0", "/more/1"]
    assert {one.worker.partition("-")[0] for one in nominations} == {"s1", "s2"}


def test_a_gang_of_several_slices_is_evicted_whole_for_one_slice() -> None:
    story = Story(*pods("s1", "s2"))
    train(story, band="batch", name="/low")
    story.cycle()
    story.gang("/train", 2)
    victims, nominations = story.evict()
    assert victims == ["/low/0", "/low/1", "/low/2", "/low/3"]
    assert [one.worker for one in nominations] == ["s1-0", "s1-1"]


def test_one_eviction_that_frees_two_slices_counts_once() -> None:
    story = Story(*pods("s1", "s2", "s3", "s4"))
    train(story, band="batch", name="/low")
    story.cycle()
    story.running("/a", ["s3-0", "s3-1"], band="batch", group_by="tpu-name", cpu=4)
    story.running("/b", ["s4-0", "s4-1"], band="interactive", group_by="tpu-name", cpu=4)
    train(story, band="production")
    victims, _ = story.evict()
    assert victims == ["/low/0", "/low/1", "/low/2", "/low/3"]


def test_nominated_slices_are_taken_when_their_victims_have_stopped() -> None:
    story = Story(*pods("s1", "s2"))
    story.running("/low", ["s1-0"], band="batch", cpu=4)
    train(story)
    story.evict()
    assert story.cycle() == {}
    story.stopped(*story.refs("/low"), again=False)
    assert list(story.cycle().values()) == ["s1-0", "s1-1", "s2-0", "s2-1"]


def test_nominations_of_slices_that_became_one_are_dropped() -> None:
    story = Story(*pods("s1", "s2", "s3"))
    story.running("/low", ["s1-0", "s2-0"], band="batch", cpu=4, spread="hosts")
    train(story)
    _, nominations = story.evict()
    assert {one.worker.partition("-")[0] for one in nominations} == {"s1", "s3"}
    for number in range(2):
        renamed = tpu("s1", number)
        story.worker(WorkerRow(f"s3-{number}", renamed.state, renamed.attributes, renamed.total))
    story.stopped(*story.refs("/low")[:1], again=False)
    assert story.cycle() == {}


def test_a_long_wait_reserves_as_many_groups_as_there_are_slices() -> None:
    story = Story(*pods("s1", "s2", "s3"), settings=SchedulerSettings(gang_reservation_after_s=10))
    story.running("/soon", ["s1-0"], cpu=4, timeout_s=100)
    story.running("/late", ["s2-0"], cpu=4, timeout_s=1000)
    story.running("/never", ["s3-0"], cpu=4)
    train(story)
    story.wait(11)
    story.submit("/small", 5, cpu=4)
    assert list(story.cycle().values()) == ["s3-1"]
    assert story.reasons["/small"].code is ReasonCode.RESERVED_FOR_GANG


def test_a_reservation_stays_in_one_zone() -> None:
    workers = [*pods("s1", "s2", zone="eu"), *pods("s3", zone="us")]
    story = Story(*workers, settings=SchedulerSettings(gang_reservation_after_s=10))
    story.running("/soon", ["s1-0"], cpu=4, timeout_s=100)
    story.running("/late", ["s2-0"], cpu=4, timeout_s=1000)
    train(story, within="zone")
    story.wait(11)
    story.submit("/small", 5, cpu=4)
    assert list(story.cycle().values()) == ["s3-0", "s3-1"]


def test_a_lost_host_leaves_its_slice_out() -> None:
    story = Story(*pods("s1", "s2", "s3"))
    story.worker(tpu("s1", 0, state=WorkerState.LOST))
    train(story)
    assert list(story.cycle().values()) == ["s2-0", "s2-1", "s3-0", "s3-1"]


def test_cpu_hosts_of_racks_can_be_slices() -> None:
    story = Story(*(worker(f"{rack}{number}", rack=rack) for rack in "ab" for number in range(3)))
    story.submit("/pair", 4, group_by="rack", slices=2)
    assert list(story.cycle().values()) == ["a0", "a1", "b0", "b1"]
