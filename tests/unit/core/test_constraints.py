"""Which hosts a job may use: operators and types of values, taints, preferences, devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.placement import constraints
from iris_core.placement.constraints import eligible, matches, validate
from iris_core.spec.jobs import Attribute, Constraint
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import ConstraintOp as Op

CPU = ResourceRequest()
attributes = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.0]))


def where(key: str, op: Op, value: Attribute | None = None, *values: Attribute) -> Constraint:
    return Constraint(key, op, value, values)


@pytest.mark.parametrize(
    ("op", "wanted", "has", "expected"),
    [
        (Op.EQ, "a", "a", True),
        (Op.EQ, "a", "A", False),
        (Op.EQ, 1, 1.0, True),
        (Op.EQ, 1, "1", False),
        (Op.NE, "a", "b", True),
        (Op.NE, 1, "1", True),
        (Op.NE, 1, 1.0, False),
        (Op.GT, 3, 4, True),
        (Op.GT, 3, 3, False),
        (Op.GE, 3, 3.0, True),
        (Op.LT, 2.5, 2, True),
        (Op.LE, 2, 2.5, False),
        (Op.GE, 3, "4", False),
        (Op.LT, 3, "2", False),
        (Op.EXISTS, None, 0, True),
        (Op.NOT_EXISTS, None, "", False),
    ],
)
def test_an_operator_compares_what_the_host_has(
    op: Op, wanted: Attribute | None, has: Attribute, expected: bool
) -> None:
    assert matches(where("k", op, wanted), {"k": has}) is expected


@pytest.mark.parametrize("op", list(Op))
def test_a_missing_attribute_satisfies_not_exists_and_ne_only(op: Op) -> None:
    assert matches(where("k", op, 1, 1), {"other": 1}) is (op in (Op.NOT_EXISTS, Op.NE))


def test_in_holds_when_one_of_the_values_is_equal() -> None:
    assert matches(where("zone", Op.IN, None, "eu", "us"), {"zone": "us"})
    assert not matches(where("zone", Op.IN, None, "eu", "us"), {"zone": "asia"})


@given(st.sampled_from([Op.GT, Op.GE, Op.LT, Op.LE]), attributes, attributes)
def test_ordering_never_matches_a_string_on_either_side(
    op: Op, wanted: Attribute, has: Attribute
) -> None:
    if isinstance(wanted, str) or isinstance(has, str):
        assert not matches(where("k", op, wanted), {"k": has})


@given(attributes, attributes)
def test_eq_and_ne_are_opposites_where_the_attribute_is_there(
    wanted: Attribute, has: Attribute
) -> None:
    assert matches(where("k", Op.EQ, wanted), {"k": has}) != matches(
        where("k", Op.NE, wanted), {"k": has}
    )


def test_a_taint_repels_a_job_that_does_not_mention_it() -> None:
    assert not eligible([], CPU, {"taint:maintenance": "true"})


@pytest.mark.parametrize("tolerant", [where("taint:m", Op.EXISTS), where("taint:m", Op.EQ, "yes")])
def test_a_job_that_mentions_the_taint_tolerates_it(tolerant: Constraint) -> None:
    assert eligible([tolerant], CPU, {"taint:m": "yes"})


@pytest.mark.parametrize(
    ("device", "may"), [(None, False), (Device("gpu"), True), (Device("tpu"), False)]
)
def test_a_taint_for_a_device_repels_only_jobs_without_that_device(
    device: Device | None, may: bool
) -> None:
    host = {"device-type": "gpu", "taint:gpu": "reserved"}
    assert eligible([], ResourceRequest(device=device), host) is may
    assert not eligible([], ResourceRequest(device=device), {**host, "taint:maintenance": "yes"})


def test_a_device_job_needs_its_kind_and_its_variant() -> None:
    ask = ResourceRequest(device=Device("tpu", "v4-8", 4))
    assert eligible([], ask, {"device-type": "tpu", "device-variant": "v4-8"})
    assert not eligible([], ask, {"device-type": "tpu", "device-variant": "v4-16"})
    assert not eligible([], ask, {"device-type": "gpu", "device-variant": "v4-8"})


def test_any_variant_will_do_for_auto() -> None:
    assert eligible(
        [], ResourceRequest(device=Device("gpu")), {"device-type": "gpu", "device-variant": "H100"}
    )


def test_a_cpu_job_may_run_anywhere() -> None:
    assert eligible([], CPU, {"device-type": "tpu", "device-variant": "v4-8"})


def test_a_preference_never_filters() -> None:
    prefers = [Constraint("zone", Op.EQ, "eu", mode="preferred")]
    assert eligible(prefers, CPU, {"zone": "us"})


# ── at submission ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("constraint", "pointer", "code"),
    [
        (where("zone", Op.GT, "eu"), "/constraints/0/value", "ordering_on_string"),
        (where("Zone", Op.EQ, "eu"), "/constraints/0/key", "not_lower_case"),
        (where("", Op.EXISTS), "/constraints/0/key", "bad_key"),
        (where("a b", Op.EXISTS), "/constraints/0/key", "bad_key"),
        (where("k\n", Op.EXISTS), "/constraints/0/key", "bad_key"),
        (where("k", Op.EQ), "/constraints/0/value", "missing"),
        (where("k", Op.IN), "/constraints/0/values", "missing"),
        (where("k", Op.EXISTS, 1), "/constraints/0/value", "unexpected"),
        (where("k", Op.EQ, 1, 2), "/constraints/0/values", "unexpected"),
        (where("k", Op.EQ, True), "/constraints/0/value", "bad_type"),
        (where("k", Op.IN, None, 1, False), "/constraints/0/values/1", "bad_type"),
        (where("k", Op.LT, float("nan")), "/constraints/0/value", "not_finite"),
    ],
)
def test_a_mistaken_constraint_is_refused_at_its_field(
    constraint: Constraint, pointer: str, code: str
) -> None:
    assert [(m.pointer, m.code) for m in validate([constraint])] == [(pointer, code)]


def test_good_constraints_have_no_mistakes() -> None:
    good = [
        where("zone", Op.IN, None, "eu", 1),
        where("ram", Op.GE, 2.5),
        where("taint:m", Op.EXISTS),
    ]
    assert validate(good) == []


def test_a_constraint_reads_as_words() -> None:
    words = [
        constraints.describe(c)
        for c in (where("zone", Op.EQ, "eu"), where("k", Op.EXISTS), where("n", Op.IN, None, 1, 2))
    ]
    assert words == ["zone eq eu", "k exists", "n in 1,2"]
