"""Alternatives of a device: whichever is free, and of a gang always one."""

from __future__ import annotations

from iris_core.messages.gateway_scheduler import PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.spec.jobs import Coscheduling, JobSpec
from iris_core.spec.resources import Device, ResourceRequest
from iris_scheduler.preview import preview
from tests.support.scheduling import Story, tpu, tpus, worker

EITHER = tpus(("v4-16", "v5p-16"))


def gpu(name: str, variant: str, rack: str = "r") -> object:
    return worker(name, chips=8, device_type="gpu", device_variant=variant, rack=rack)


def slices(**variants: str) -> list[object]:
    return [tpu(name, number, variant) for name, variant in variants.items() for number in range(2)]


def test_any_variant_that_is_free_is_taken() -> None:
    story = Story(*slices(s1="v4-16", s2="v5p-16", s3="v6e-16"))
    story.running("/other", ["s1-0"], cpu=4)
    story.gang("/train", 2, device=EITHER)
    assert list(story.cycle().values()) == ["s2-0", "s2-1"]
    story.gang("/more", 2, device=EITHER)
    assert story.cycle() == {}


def test_a_gang_is_of_one_variant_also_where_a_group_has_two() -> None:
    either = Device("gpu", ("H100", "A100"), 8)
    story = Story(gpu("a", "H100"), gpu("b", "A100"))
    story.submit("/pair", 2, device=either, group_by="rack")
    assert story.cycle() == {}
    story.worker(gpu("c", "A100"))
    assert list(story.cycle().values()) == ["b", "c"]


def test_slices_of_a_gang_are_of_one_variant() -> None:
    story = Story(*slices(s1="v4-16", s2="v5p-16", s3="v5p-16"))
    story.gang("/train", 4, slices=2, device=EITHER)
    assert list(story.cycle().values()) == ["s2-0", "s2-1", "s3-0", "s3-1"]


def test_preemption_frees_hosts_of_one_variant() -> None:
    story = Story(gpu("a", "H100"), gpu("b", "A100"), gpu("c", "A100"))
    story.running("/low", ["b"], band="batch", cpu=4)
    story.submit("/pair", 2, device=Device("gpu", ("H100", "A100"), 8), group_by="rack", cpu=4)
    victims, nominations = story.evict()
    assert victims == ["/low/0"]
    assert [one.worker for one in nominations] == ["b", "c"]


def test_the_reason_counts_free_workers_of_each_variant() -> None:
    story = Story(*slices(s1="v4-16", s2="v5p-16"))
    story.running("/a", ["s1-0"], cpu=4)
    story.running("/b", ["s2-0", "s2-1"], cpu=4)
    story.gang("/train", 2, device=EITHER)
    story.cycle()
    assert story.reasons["/train"].facts["variants"] == {
        "v4-16": {"free": 1, "of": 2},
        "v5p-16": {"free": 0, "of": 2},
    }
    assert story.reasons["/train"].message.endswith(
        "workers free by variant: v4-16 1 of 2, v5p-16 0 of 2"
    )


def test_a_dry_run_answers_for_each_variant() -> None:
    story = Story(*slices(s1="v4-16"))
    resources = ResourceRequest(1000, 0, 0, EITHER)
    spec = JobSpec(
        name="/a",
        command=("x",),
        replicas=2,
        resources=resources,
        coscheduling=Coscheduling("tpu-name"),
        user="ann",
    )
    found = preview(
        story.mirror, story.cache, PlanRequest(spec, Caller("ann"), 0), story.now_ms, story.settings
    )
    assert (found.verdict, found.variants) == ("now", (("v4-16", "now"), ("v5p-16", "never")))
