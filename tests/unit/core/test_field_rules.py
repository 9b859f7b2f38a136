"""Limits of fields: found by the check, shown in the schema, and not enforced by the decoder."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from iris_core import codec
from iris_core.admission.deployments import validate_deployment
from iris_core.admission.jobs import validate_spec
from iris_core.spec.field_rules import at_most, between, filled, mistakes, seconds, text
from iris_core.spec.jobs import JobSpec
from iris_core.spec.serving import DeploymentSpec, RouteTemplate


class Part(msgspec.Struct):
    share: (
        Annotated[int, between(0, 9)] | Annotated[str, text("[0-9]%", "bad_share", "is no share")]
    ) = 1


class Whole(msgspec.Struct):
    names: Annotated[
        tuple[Annotated[str, filled("it is empty")], ...], at_most(2, "at most 2 names")
    ] = ()
    tags: Annotated[dict[str, str], text("[a-z]+", "bad_tag", "is no tag", "a", of_keys=True)] = {}
    wait_s: Annotated[float, seconds(1, 60)] | None = None
    part: Part | None = None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Whole(), []),
        (Whole(names=("a", "b"), tags={"a": "1"}, wait_s=60.0, part=Part("5%")), []),
        (Whole(names=("a", "", "c")), [("/names", "too_many"), ("/names/1", "empty")]),
        (Whole(tags={"A/b": "1"}), [("/tags/A~1b", "bad_tag")]),
        (Whole(wait_s=float("nan")), [("/wait_s", "out_of_range")]),
        (Whole(part=Part(10)), [("/part/share", "out_of_range")]),
        (Whole(part=Part("10%")), [("/part/share", "bad_share")]),
    ],
)
def test_what_breaks_a_limit_is_told_with_its_pointer(value: Whole, found: list[tuple[str, str]]):
    assert [(one.pointer, one.code) for one in mistakes(value)] == found


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"resources": {"cpu_millis": 10**12}}, "1000000000 is not between 0 and 10000 cores"),
        ({"resources": {"memory_bytes": 3 << 50}}, "3PiB is not between 0B and 1PiB"),
        ({"resources": {"disk_bytes": 99_999_999 << 40}}, "97656PiB is not between 0B and 8PiB"),
        ({"timeout_s": 9999 * 86_400}, "9999d is not a time of more than 0 and at most 3650d"),
        ({"stop": {"grace_s": 7200}}, "2h is not a time of more than 0 and at most 1h"),
        (
            {"timeout_s": 3600, "notice": {"before_s": 5400}},
            "a notice 90m before the time limit does not fit into a",
        ),
    ],
)
def test_a_refusal_speaks_in_units_that_people_write(fields: Any, said: str):
    spec = codec.from_builtins({"name": "/a", "command": ["true"], **fields}, JobSpec)
    [mistake] = validate_spec(spec)
    assert mistake.message.startswith(said)


def test_the_schema_shows_limits():
    properties = msgspec.json.schema(Whole)["$defs"]["Whole"]["properties"]
    assert properties["names"] | {"default": 0} == {
        "type": "array",
        "maxItems": 2,
        "items": {"type": "string", "minLength": 1},
        "default": 0,
    }
    assert properties["tags"]["propertyNames"] == {"pattern": "^([a-z]+)$"}


@pytest.mark.parametrize("kind", [JobSpec, DeploymentSpec])
def test_what_was_stored_under_other_limits_is_read(kind: Any):
    beyond = {
        JobSpec: {
            "name": "",
            "command": [],
            "replicas": 10**6,
            "timeout_s": -1.0,
            "ports": ["1"] * 99,
        }
    }
    beyond[DeploymentSpec] = {
        "name": "",
        "template": {"command": [], "ports": ["1"]},
        "replicas": 10**6,
        "grace_s": -1,
    }
    assert codec.from_builtins(beyond[kind], kind) == codec.unpack(codec.pack(beyond[kind]), kind)


def test_a_deployment_tells_mistakes_of_its_template_once():
    wrong = DeploymentSpec(
        "1", RouteTemplate(("true",), ports=("http", "1"), labels={"": ""}), replicas=-1, user="\n"
    )
    pointers = [mistake.pointer for mistake in validate_deployment(wrong)]
    assert pointers == ["/name", "/replicas", "/template/ports/1", "/template/labels/", "/user"]
