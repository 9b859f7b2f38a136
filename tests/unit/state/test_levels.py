"""Gangs by levels of the topology: what a plan must keep to, what schedulers are told, what a task
shows.

docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

import pytest

from iris_core import codec
from iris_core.spec.jobs import Coscheduling, JobSpec, Level
from iris_state.effects.deltas import job_row
from iris_state.views.work.tasks import task_view

HOSTS = """
    worker a0 rack=r1 block=b1
    worker a1 rack=r1 block=b1
    worker a2 rack=r2 block=b1
    worker b0 rack=r3 block=b2
    worker b1 rack=r3 block=b2
    worker c0 rack=r4
"""


@pytest.mark.parametrize(
    ("gang", "hosts", "verdict"),
    [
        ("rack,block", "a0 a1", "placed"),
        ("rack,block", "a0 a2", "gang_split"),
        ("rack:preferred,block", "a0 a2", "placed"),
        ("rack:preferred,block", "a0 b0", "gang_split"),
        ("rack:preferred,block", "a0 c0", "gang_split"),
        ("rack:preferred,block:preferred", "a0 c0", "placed"),
        ("rack:preferred", "a0 a0", "gang_split"),
    ],
)
def test_a_gang_is_within_one_domain_of_each_required_level(script, gang, hosts, verdict):
    script.play(f"{HOSTS}\n submit /g replicas=2 gang={gang}\n place /g {hosts} -> {verdict}")


@pytest.mark.parametrize(
    ("gang", "hosts", "verdict"),
    [
        ("rack,block", "a0 a2", "placed"),
        ("rack,block", "a0 a1", "gang_split"),
        ("rack,block", "a0 b0", "gang_split"),
        ("rack,block:preferred", "a0 b0", "placed"),
        ("rack,block:preferred", "a0 c0", "placed"),
    ],
)
def test_slices_are_apart_on_the_innermost_level_only(script, gang, hosts, verdict):
    script.play(
        f"{HOSTS}\n submit /g replicas=2 slices=2 gang={gang}\n place /g {hosts} -> {verdict}"
    )


def test_levels_that_make_no_sense_are_refused(script):
    script.play("""
        submit /g replicas=2 gang=rack,rack                      -> invalid ~rack is a level twice
        submit /g replicas=2 gang=rack,zone slices=2 within=zone -> invalid ~zone is in 'within' too
        submit /g replicas=2 gang=rack:preferred slices=2        -> invalid ~each of 2 slices is in one rack
        submit /g replicas=4 gang=rack,tpu-name tpu=v5litepod-16 -> invalid ~tpu-name is innermost and required
        submit /g replicas=2 gang=rack,Zone                      -> invalid ~not lower case
    """)


def test_each_member_shows_where_it_is_on_each_level(script):
    script.play(
        f"{HOSTS}\n submit /g replicas=2 gang=rack:preferred,block:preferred\n place /g a2 c0 -> placed"
    )
    ledger = script.world.machine.ledger
    job = next(iter(ledger.jobs.values()))
    assert [task_view(ledger, job, index).levels for index in range(2)] == [
        {"rack": "r2", "block": "b1"},
        {"rack": "r4"},
    ]


def test_one_required_key_is_told_as_before(script):
    script.play(f"{HOSTS}\n submit /g replicas=2 gang=rack\n submit /h replicas=2 gang=rack,block")
    ledger = script.world.ledger
    plain, levelled = [job_row(ledger, job) for job in ledger.jobs.values()]
    assert (plain.group_by, plain.levels) == ("rack", ())
    assert (levelled.group_by, levelled.levels) == ("rack", (Level("rack"), Level("block")))
    assert b"levels" not in codec.pack(plain)


@pytest.mark.parametrize("group_by", ["rack", (Level("rack", "preferred"), Level("block"))])
def test_a_specification_is_read_as_it_was_written(group_by):
    spec = JobSpec(name="/g", command=("true",), replicas=2, coscheduling=Coscheduling(group_by))
    assert codec.unpack(codec.pack(spec), JobSpec) == spec
    assert codec.from_json(codec.to_json(spec), JobSpec) == spec
