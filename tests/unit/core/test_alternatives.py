"""Alternatives of a device: what is admitted, and how the options read."""

from __future__ import annotations

import msgspec
import pytest

from iris.client.options.jobs import job_spec
from iris.client.problems import InvalidOption
from iris_core.admission.jobs import validate_spec
from iris_core.codec import pack, unpack
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Device, ResourceRequest
from iris_gateway.dashboard.snippets import options_of


def job(*variants: str, kind: str = "tpu", count: int = 4) -> JobSpec:
    made = Device(kind, variants, count)  # type: ignore[arg-type]
    return JobSpec(name="/a", command=("x",), resources=ResourceRequest(1000, 0, 0, made))


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (job(), "bad_alternatives"),
        (job("v4-16", "v4-16"), "bad_alternatives"),
        (job("v4-16", "auto"), "bad_alternatives"),
        (job("v4-16", "v4-32"), "unlike_alternatives"),
        (job("v4-16", "v99-16"), "unknown_variant"),
        (job("H 100", "A100", kind="gpu"), "bad_variant"),
    ],
)
def test_alternatives_that_are_no_alternatives_are_refused(spec: JobSpec, code: str) -> None:
    assert [mistake.code for mistake in validate_spec(spec)] == [code]


@pytest.mark.parametrize(
    "spec", [job("v6e-16", "v5litepod-16"), job("H100", "A100", kind="gpu"), job("v4-16")]
)
def test_alternatives_of_one_shape_are_admitted_and_read_back(spec: JobSpec) -> None:
    assert validate_spec(spec) == []
    assert unpack(pack(spec), JobSpec) == spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


@pytest.mark.parametrize("text", ["v6e-16,v5litepod-16"])
def test_a_tpu_option_names_alternatives(text: str) -> None:
    spec = job_spec(["x"], {"tpu": text, "name": "a"}, {})
    assert (spec.replicas, spec.resources.device) == (
        4,
        Device("tpu", ("v6e-16", "v5litepod-16"), 4),
    )
    assert options_of(spec)["tpu"] == text


def test_a_gpu_option_names_alternatives_of_one_number() -> None:
    spec = job_spec(["x"], {"gpu": "H100x8,A100x8", "name": "a"}, {})
    assert spec.resources.device == Device("gpu", ("H100", "A100"), 8)
    assert options_of(spec)["gpu"] == "H100x8,A100x8"
    with pytest.raises(InvalidOption, match="as many of each"):
        job_spec(["x"], {"gpu": "H100x8,A100x4", "name": "a"}, {})
