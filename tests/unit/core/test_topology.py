"""The table of TPU topologies, and what it requires of coscheduled jobs."""

from __future__ import annotations

from math import prod

import pytest

from iris_core.placement.topology import (
    TOPOLOGIES,
    parts_of,
    topology_of,
    validate_coscheduling,
    validate_device,
    vm_grid,
)
from iris_core.spec.jobs import Coscheduling, JobSpec, Level
from iris_core.spec.resources import Device, ResourceRequest

V5E = Device("tpu", "v5litepod-16", 4)


def gang(
    replicas: int,
    device: Device | None,
    group_by: str | tuple[Level, ...] = "tpu-name",
    slices: int = 1,
    within: str = "",
) -> JobSpec:
    return JobSpec(
        name="/gang",
        command=("true",),
        replicas=replicas,
        resources=ResourceRequest(device=device),
        coscheduling=Coscheduling(group_by, slices=slices, within=within),
    )


def test_every_slice_has_as_many_chips_as_its_machines_hold() -> None:
    assert all(t.chips == t.vm_count * t.chips_per_vm for t in TOPOLOGIES.values())


def test_the_table_has_every_variant() -> None:
    families = [name.rpartition("-")[0] for name in TOPOLOGIES]
    assert {f: families.count(f) for f in set(families)} == {
        "v4": 10,
        "v5p": 12,
        "v5litepod": 9,
        "v6e": 8,
    }


@pytest.mark.parametrize(
    ("variant", "row"),
    [
        ("v4-8", (4, 1, 1, 4)),
        ("v4-4096", (2048, 512, 512, 4)),
        ("v5p-12288", (6144, 1536, 1536, 4)),
        ("v5litepod-16", (16, 2, 4, 4)),
        ("v6e-256", (256, 64, 64, 4)),
    ],
)
def test_a_variant_has_the_numbers_of_its_row(variant: str, row: tuple[int, int, int, int]) -> None:
    topology = topology_of(variant)
    assert topology is not None
    assert topology[1:] == row


def test_the_vms_of_every_slice_fill_its_grid() -> None:
    assert all(prod(vm_grid(t)) == t.vm_count for t in TOPOLOGIES.values())
    expected = {
        "v5litepod-8": (1, 1, 1),
        "v5litepod-32": (4, 2, 1),
        "v6e-256": (8, 8, 1),
        "v4-64": (2, 1, 4),
        "v5p-12288": (8, 8, 24),
    }
    assert {name: vm_grid(TOPOLOGIES[name]) for name in expected} == expected


@pytest.mark.parametrize(
    ("spec", "pointer", "code"),
    [
        (gang(4, None), "/resources/device", "needs_tpu"),
        (gang(4, Device("gpu", "H100", 8)), "/resources/device", "needs_tpu"),
        (gang(3, Device("tpu", "v5litepod-16", 4)), "/replicas", "replicas_not_vm_count"),
        (gang(4, Device("tpu")), "/resources/device/variant", "needs_variant"),
        (gang(4, None, group_by="Rack"), "/coscheduling/group_by", "not_lower_case"),
        (gang(4, None, ()), "/coscheduling/group_by", "number_of_levels"),
        (
            gang(4, None, tuple(Level(f"l{n}") for n in range(9))),
            "/coscheduling/group_by",
            "number_of_levels",
        ),
        (
            gang(4, None, (Level("rack"), Level("Block"))),
            "/coscheduling/group_by/1/key",
            "not_lower_case",
        ),
        (
            gang(4, None, (Level("rack"), Level("rack", "preferred"))),
            "/coscheduling/group_by/1/key",
            "twice",
        ),
        (
            gang(4, None, (Level("rack"), Level("zone")), slices=2, within="zone"),
            "/coscheduling/group_by/1/key",
            "twice",
        ),
        (
            gang(4, V5E, (Level("tpu-name", "preferred"),)),
            "/coscheduling/group_by/0",
            "tpu_is_innermost",
        ),
        (
            gang(4, V5E, (Level("rack"), Level("tpu-name"))),
            "/coscheduling/group_by/1",
            "tpu_is_innermost",
        ),
        (
            gang(4, None, (Level("rack", "preferred"),), slices=2),
            "/coscheduling/group_by/0/mode",
            "slices_need_a_group",
        ),
        (gang(3, V5E, (Level("tpu-name"), Level("block"))), "/replicas", "replicas_not_vm_count"),
    ],
)
def test_a_gang_that_cannot_be_is_refused(spec: JobSpec, pointer: str, code: str) -> None:
    assert [(m.pointer, m.code) for m in validate_coscheduling(spec)] == [(pointer, code)]


@pytest.mark.parametrize(
    "spec",
    [
        gang(4, Device("tpu", "v5litepod-16", 4)),
        gang(3, None, group_by="rack"),
        gang(5, Device("gpu", "H100", 8), group_by="nvlink-domain"),
        gang(8, V5E, (Level("tpu-name"), Level("block", "preferred")), slices=2),
        gang(8, None, (Level("rack", "preferred"), Level("block"))),
    ],
)
def test_a_gang_that_can_be_has_no_mistakes(spec: JobSpec) -> None:
    assert validate_coscheduling(spec) == []


@pytest.mark.parametrize(
    ("variant", "parts"),
    [
        ("v5litepod-8", (1, 2, 4, 8)),
        ("v5litepod-2", (1, 2)),
        ("v6e-8", (1, 4, 8)),
        ("v4-8", (4,)),
        ("v5litepod-16", (4,)),
        ("v9-8", ()),
    ],
)
def test_a_task_may_have_the_chips_of_a_smaller_single_vm_slice(
    variant: str, parts: tuple[int, ...]
) -> None:
    assert parts_of(variant) == parts


@pytest.mark.parametrize(
    ("device", "code", "hint"),
    [
        (Device("tpu", "v5litepod-8", 3), "no_such_part", "a task may have 1 or 2 or 4 or 8"),
        (Device("tpu", "v5litepod-16", 1), "no_such_part", "a task may have 4"),
        (Device("tpu", "v4-8", 0), "no_such_part", "a task may have 4"),
        (
            Device("tpu", "v4-8", 8),
            "too_many_chips",
            "4 chips a task and 1 replica take the whole slice",
        ),
        (Device("tpu", "auto", 3), "no_such_part", "a task may have 1 or 2 or 4 or 8"),
        (Device("tpu", "auto", 16), "too_many_chips", ""),
    ],
)
def test_a_part_of_a_vm_that_cannot_be_is_refused(device: Device, code: str, hint: str) -> None:
    [mistake] = validate_device(device)
    assert (mistake.pointer, mistake.code, mistake.hint) == ("/resources/device/count", code, hint)


@pytest.mark.parametrize(
    "device",
    [
        Device("tpu", "v5litepod-8", 2),
        Device("tpu", "v5litepod-16", 4),
        Device("tpu"),
        Device("gpu", "H100", 3),
    ],
)
def test_a_device_that_can_be_has_no_mistakes(device: Device) -> None:
    assert validate_device(device) == []
