"""Which specifications of pools are refused, and what a pool is to work and to its hosts."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core import codec
from iris_core.admission.pool_options import PROCESS_NUMBERS, TPU_OPTIONS, TPU_SWITCHES
from iris_core.admission.pools import validate_pool
from iris_core.placement.pools import differences, host_attributes, is_eligible
from iris_core.spec.jobs import Constraint
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.states import ConstraintOp

CPU: dict[str, Any] = {
    "name": "cpu",
    "provider": "process",
    "max": 4,
    "resources": {"cpu_millis": 4000, "memory_bytes": 16 << 30},
}
TPU: dict[str, Any] = {
    "name": "v5e",
    "provider": "exec",
    "options": {"program": "cloud"},
    "max": 2,
    "hosts": 4,
    "resources": {"cpu_millis": 8000, "chips": 4},
    "attributes": {"device-type": "tpu", "device-variant": "v5litepod-16", "zone": "a"},
    "reservation": {"name": "all", "chips": 32},
}


def pool(base: dict[str, Any] = CPU, **given: Any) -> PoolSpec:
    return codec.from_builtins({**base, **given}, PoolSpec)


def refused(spec: PoolSpec, *others: PoolSpec) -> list[tuple[str, str]]:
    return [(one.pointer, one.code) for one in validate_pool(spec, others)]


@pytest.mark.parametrize("base", [CPU, TPU])
def test_a_pool_as_in_the_manual_is_accepted(base: dict[str, Any]) -> None:
    assert refused(pool(base)) == []
    assert codec.from_builtins(codec.to_builtins(pool(base)), PoolSpec) == pool(base)


@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ({"name": "Cpu"}, "/name", "bad_name"),
        ({"name": "cpu-"}, "/name", "bad_name"),
        ({"name": "a" * 41}, "/name", "bad_name"),
        ({"provider": "cloud"}, "/provider", "unknown_provider"),
        ({"min": 5}, "/min", "out_of_range"),
        ({"buffer": 5}, "/buffer", "out_of_range"),
        ({"max": 10_001}, "/max", "out_of_range"),
        ({"max": -1}, "/max", "out_of_range"),
        ({"hosts": 0}, "/hosts", "out_of_range"),
        ({"price": float("nan")}, "/price", "out_of_range"),
        ({"price": float("inf")}, "/price", "out_of_range"),
        ({"price": -1.0}, "/price", "out_of_range"),
        ({"idle_s": -1.0}, "/idle_s", "out_of_range"),
        ({"boot_timeout_s": 0.0}, "/boot_timeout_s", "out_of_range"),
        ({"create_rate": 0}, "/create_rate", "out_of_range"),
        ({"provider": "exec"}, "/options/program", "missing"),
        ({"provider": "exec", "options": {"program": True}}, "/options/program", "bad_value"),
        ({"options": {"boots": 1}}, "/options/boots", "unknown_field"),
        ({"options": {"boot_s": "2s"}}, "/options/boot_s", "bad_value"),
        ({"options": {"boot_s": -1}}, "/options/boot_s", "bad_value"),
        ({"options": {"boot_s": 1e300}}, "/options/boot_s", "bad_value"),
        ({"options": {"boot_s": float("nan")}}, "/options/boot_s", "bad_value"),
        ({"options": {"refusal_chance": 1.5}}, "/options/refusal_chance", "bad_value"),
        ({"options": {"preemption_chance": True}}, "/options/preemption_chance", "bad_value"),
        ({"attributes": {"Zone": "a"}}, "/attributes/Zone/key", "not_lower_case"),
        ({"attributes": {"tpu-name": "x"}}, "/attributes/tpu-name", "not_settable"),
        (
            {"resources": {"cpu_millis": 1, "chips": 4}, "attributes": {"device-type": "gpu"}},
            "/attributes/device-variant",
            "missing",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(given: dict[str, Any], pointer: str, code: str) -> None:
    found = refused(pool(CPU, **given))
    assert (pointer, code) in found or (pointer.removesuffix("/key"), code) in found


def test_all_options_of_processes_are_accepted() -> None:
    lowest: dict[str, Any] = dict.fromkeys(PROCESS_NUMBERS, 0)
    assert refused(pool(CPU, options={**lowest, "seed": "a"})) == []
    assert refused(pool(CPU, options={**PROCESS_NUMBERS, "seed": 7})) == []


CLOUD_TPU: dict[str, Any] = {
    **TPU,
    "provider": "tpu",
    "options": {
        "project": "mine",
        "zone": "us-central2-b",
        "runtime_version": "tpu-ubuntu2204-base",
    },
}


def test_all_options_of_cloud_tpu_are_accepted() -> None:
    more = {
        "method": "queued",
        "network": "projects/mine/global/networks/net",
        "subnetwork": "sub",
        "external_ips": False,
        "service_account": "iris@mine.iam.gserviceaccount.com",
        "reservation": "projects/mine/locations/us-central2-b/reservations/r1",
        "iris_version": "0.2.0",
        "wheels": "/opt/wheels",
    }
    options = {**CLOUD_TPU["options"], **more}
    assert set(options) == TPU_OPTIONS.keys() | TPU_SWITCHES
    assert refused(pool(CLOUD_TPU, options=options, capacity="reserved")) == []


@pytest.mark.parametrize(
    ("options", "pointer", "code"),
    [
        ({"project": None}, "/options/project", "missing"),
        ({"zone": None}, "/options/zone", "missing"),
        ({"runtime_version": None}, "/options/runtime_version", "missing"),
        ({"project": "My Project"}, "/options/project", "bad_value"),
        ({"project": "a/../b"}, "/options/project", "bad_value"),
        ({"project": 7}, "/options/project", "bad_value"),
        ({"zone": "us-central2"}, "/options/zone", "bad_value"),
        ({"zone": "us-central2-b\n"}, "/options/zone", "bad_value"),
        ({"runtime_version": ""}, "/options/runtime_version", "bad_value"),
        ({"method": "both"}, "/options/method", "bad_value"),
        ({"network": "a b"}, "/options/network", "bad_value"),
        ({"service_account": "iris"}, "/options/service_account", "bad_value"),
        ({"external_ips": "no"}, "/options/external_ips", "bad_value"),
        ({"wheels": "wheels"}, "/options/wheels", "bad_value"),
        ({"iris_version": "newest"}, "/options/iris_version", "bad_value"),
        ({"reservation": "r1"}, "/options/reservation", "conflict"),
        ({"runtime": "x"}, "/options/runtime", "unknown_field"),
    ],
)
def test_a_wrong_option_of_cloud_tpu_is_named(
    options: dict[str, Any], pointer: str, code: str
) -> None:
    merged = {**CLOUD_TPU["options"], **options}
    given = {key: value for key, value in merged.items() if value is not None}
    assert refused(pool(CLOUD_TPU, options=given)) == [(pointer, code)]


@pytest.mark.parametrize(
    ("attributes", "mistakes"),
    [
        ({"device-type": "tpu", "device-variant": "v9-16"}, [("/attributes/device-variant", "unknown_variant")]),
        ({"device-type": "gpu", "device-variant": "v5litepod-16"}, [("/attributes/device-type", "bad_value")]),
    ],
)  # fmt: skip
def test_cloud_tpu_makes_known_tpus_only(
    attributes: dict[str, Any], mistakes: list[tuple[str, str]]
) -> None:
    assert refused(pool(CLOUD_TPU, attributes=attributes)) == mistakes


def test_a_slice_of_a_known_variant_has_its_hosts_and_chips() -> None:
    assert refused(pool(TPU, hosts=2)) == [("/hosts", "not_of_variant")]
    small = pool(TPU, resources={"cpu_millis": 8000, "chips": 1})
    assert refused(small) == [("/resources/chips", "not_of_variant")]


def test_pools_whose_slices_could_have_one_name_are_refused() -> None:
    assert refused(pool(CPU, name="cpu-1"), pool()) == [("/name", "conflict")]
    assert refused(pool(), pool(CPU, name="cpu-1-0")) == [("/name", "conflict")]
    assert refused(pool(), pool(CPU, name="cpu-large")) == []
    assert refused(pool(CPU, max=5), pool()) == []  # it replaces itself


def test_pools_agree_about_the_chips_of_a_reservation() -> None:
    other = pool(TPU, name="v5e-b", reservation={"name": "all", "chips": 64})
    assert refused(pool(TPU), other) == [("/reservation/chips", "conflict")]


def test_what_a_host_will_report_is_known_before_it_is_made() -> None:
    assert host_attributes(pool(TPU), slot=3, index=2) == {
        "device-type": "tpu",
        "device-variant": "v5litepod-16",
        "zone": "a",
        "tpu-name": "v5e-3",
        "tpu-worker-id": 2,
        "capacity": "on_demand",
    }


def test_a_host_that_falls_short_of_its_pool_is_told_in_words() -> None:
    spec = pool()
    attributes = host_attributes(spec, slot=0, index=0)
    whole = Amount(cpu_millis=4000, memory_bytes=16 << 30)
    assert differences(spec, 0, 0, whole, attributes) == ()
    more = Amount(cpu_millis=8000, memory_bytes=64 << 30, disk_bytes=1)
    assert differences(spec, 0, 0, more, {**attributes, "rack": "r"}) == ()
    kept_by_the_kernel = Amount(cpu_millis=4000, memory_bytes=(16 << 30) - (200 << 20))
    assert differences(spec, 0, 0, kept_by_the_kernel, attributes) == ()
    small = Amount(cpu_millis=2000, memory_bytes=8 << 30)
    assert differences(spec, 0, 0, small, {**attributes, "capacity": "spot"}) == (
        "cpu_millis 2000, not 4000",
        f"memory_bytes {8 << 30}, not {16 << 30}",
        "capacity spot, not on_demand",
    )


def could_hold(
    spec: PoolSpec, constraints: tuple[Constraint, ...], request: ResourceRequest, group_by: str
) -> bool:
    """As the packing of waiting work asks."""
    fits = request.amount.fits(spec.resources.amount)
    return fits and is_eligible(spec, constraints, request, group_by)


@pytest.mark.parametrize(
    ("base", "given", "constraints", "device", "holds"),
    [
        (CPU, {}, (), None, True),
        (CPU, {"only": "device"}, (), None, False),
        (CPU, {}, (), Device("tpu", "v5litepod-16", 4), False),
        (TPU, {}, (), None, False),
        (TPU, {"only": "any"}, (), None, True),
        (TPU, {}, (), Device("tpu", "v5litepod-16", 4), True),
        (TPU, {}, (), Device("tpu", "v5litepod-16", 8), False),
        (TPU, {}, (), Device("tpu", "v6e-4", 4), False),
        (TPU, {}, (Constraint("zone", ConstraintOp.EQ, "b"),), Device("tpu"), False),
        (TPU, {}, (Constraint("device-type", ConstraintOp.EQ, "tpu"),), None, True),
        (TPU, {}, (Constraint("device-type", ConstraintOp.NE, "gpu"),), None, False),
    ],
)
def test_which_work_a_pool_could_hold(
    base: dict[str, Any],
    given: dict[str, Any],
    constraints: tuple[Constraint, ...],
    device: Device | None,
    holds: bool,
) -> None:
    request = ResourceRequest(cpu_millis=1000, device=device)
    assert could_hold(pool(base, **given), constraints, request, group_by="") is holds


def test_a_pool_without_the_attribute_that_a_gang_shares_holds_none_of_it() -> None:
    assert could_hold(pool(TPU), (), ResourceRequest(device=Device("tpu")), group_by="zone")
    assert not could_hold(pool(TPU), (), ResourceRequest(device=Device("tpu")), group_by="rack")
