"""Validation of job specifications: every mistake is reported at once with its field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from iris_core.admission.jobs import admit, validate_spec
from iris_core.errors import Invalid
from iris_core.spec.calls import Calls, inline
from iris_core.spec.exit_rules import ExitRule
from iris_core.spec.jobs import (
    Constraint,
    Coscheduling,
    Environment,
    JobSpec,
    NoticePolicy,
    Probe,
    StopPolicy,
)
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import ConstraintOp

GOOD = JobSpec(name="/train", command=("python", "train.py"))


def of_arguments(*segments: str) -> Calls:
    firsts = tuple(range(len(segments)))
    return Calls(
        runner="0" * 64, function="1" * 64, segments=segments, firsts=firsts, count=len(segments)
    )


def but(**changes: Any) -> JobSpec:
    return msgspec.structs.replace(GOOD, **changes)


def calls(reuse: int) -> Calls:
    return Calls(
        runner="0" * 64, function="1" * 64, segments=("2" * 64,), firsts=(0,), count=1, reuse=reuse
    )


def test_a_map_may_reuse_processes() -> None:
    assert [validate_spec(but(calls=calls(reuse=n))) for n in (1, 10_000)] == [[], []]


def test_a_plain_job_may_be_admitted() -> None:
    assert validate_spec(GOOD) == []


def test_the_largest_and_the_smallest_job_may_be_admitted() -> None:
    nothing = ResourceRequest(cpu_millis=0)
    assert [validate_spec(but(replicas=n, resources=nothing)) for n in (1, 10_000)] == [[], []]


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"name": "train"}, "/name", "bad_name"),
        ({"name": "/a/../b"}, "/name", "bad_name"),
        ({"name": "/a*"}, "/name", "bad_name"),
        ({"name": "/a b"}, "/name", "bad_name"),
        ({"name": "/a\n"}, "/name", "bad_name"),
        ({"name": "/train/0"}, "/name", "bad_name"),
        ({"name": "/a" * 20}, "/name", "bad_name"),
        ({"command": ()}, "/command", "empty"),
        ({"command": ("",)}, "/command", "empty"),
        ({"command": ("a", "b\0")}, "/command/1", "nul_byte"),
        ({"command": ("a", "x" * 200_000)}, "/command", "too_long"),
        ({"env": {"A=B": ""}}, "/env/A=B", "bad_env_key"),
        ({"env": {"a/b~": ""}}, "/env/a~1b~0", "bad_env_key"),
        ({"env": {"": ""}}, "/env/", "bad_env_key"),
        ({"env": {"A": "\0"}}, "/env/A", "nul_byte"),
        ({"env": {"A": "x" * 300_000}}, "/env", "too_long"),
        ({"calls": calls(reuse=0)}, "/calls/reuse", "out_of_range"),
        ({"calls": calls(reuse=10_001)}, "/calls/reuse", "out_of_range"),
        (
            {"calls": calls(reuse=2), "environment": Environment(image="a:1")},
            "/calls/reuse",
            "unexpected",
        ),
        ({"replicas": 0}, "/replicas", "out_of_range"),
        ({"replicas": 10_001}, "/replicas", "out_of_range"),
        ({"replicas": 6, "indexes": "1,3-"}, "/indexes", "bad_indexes"),
        ({"replicas": 6, "indexes": "1,6"}, "/indexes", "out_of_range"),
        (
            {"replicas": 2, "indexes": "1", "coscheduling": Coscheduling("rack")},
            "/indexes",
            "unexpected",
        ),
        ({"replicas": 5, "array": "0-15:4,x"}, "/array", "bad_indexes"),
        ({"replicas": 4, "array": "0-15:4,20"}, "/replicas", "wrong_size"),
        (
            {"replicas": 2, "array": "1,2", "coscheduling": Coscheduling("rack")},
            "/array",
            "unexpected",
        ),
        (
            {"replicas": 2, "max_parallel": 1, "coscheduling": Coscheduling("rack")},
            "/max_parallel",
            "unexpected",
        ),
        ({"max_parallel": 0}, "/max_parallel", "out_of_range"),
        (
            {"preload": ("os.path", "a-b"), "command": ("python", "t.py")},
            "/preload/1",
            "bad_module",
        ),
        ({"preload": ("__main__",), "command": ("python", "t.py")}, "/preload/0", "bad_module"),
        ({"preload": ("os", ""), "command": ("python", "t.py")}, "/preload/1", "bad_module"),
        ({"preload": ("os",) * 65, "command": ("python", "t.py")}, "/preload", "too_many"),
        ({"preload": ("os",), "command": ("python", "-u", "t.py")}, "/preload", "not_a_script"),
        ({"preload": ("os",), "command": ("sh", "t.py")}, "/preload", "not_a_script"),
        (
            {
                "preload": ("os",),
                "command": ("python3", "-m", "t"),
                "environment": Environment(image="python:3"),
            },
            "/preload",
            "unexpected",
        ),
        ({"max_parallel": 10_001}, "/max_parallel", "out_of_range"),
        ({"on_exit": (ExitRule((75, "0-3"), "requeue"),)}, "/on_exit/0/codes", "bad_code"),
        ({"on_exit": (ExitRule((75,), "requeue"),) * 33}, "/on_exit", "too_many"),
        ({"stop": StopPolicy(signal="SIGX")}, "/stop/signal", "bad_signal"),
        ({"terminal": True, "replicas": 2}, "/replicas", "unexpected"),
        ({"terminal": True, "max_retries_failure": 1}, "/max_retries_failure", "unexpected"),
        ({"terminal": True, "on_exit": (ExitRule((75,), "requeue"),)}, "/on_exit", "unexpected"),
        ({"stop": StopPolicy(signal="SIGKILL")}, "/stop/signal", "bad_signal"),
        ({"stop": StopPolicy(grace_s=3601.0)}, "/stop/grace_s", "out_of_range"),
        ({"stop": StopPolicy(grace_s=0.0)}, "/stop/grace_s", "out_of_range"),
        ({"notice": NoticePolicy(signal="SIGX")}, "/notice/signal", "bad_signal"),
        ({"notice": NoticePolicy(signal="SIGKILL")}, "/notice/signal", "bad_signal"),
        ({"notice": NoticePolicy(before_s=0.0)}, "/notice/before_s", "out_of_range"),
        (
            {"notice": NoticePolicy(before_s=31.0), "timeout_s": 30.0},
            "/notice/before_s",
            "out_of_range",
        ),
        ({"on_timeout": "requeue"}, "/on_timeout", "unexpected"),
        ({"protect_s": 0.0}, "/protect_s", "out_of_range"),
        ({"protect_s": 8 * 86_400.0}, "/protect_s", "out_of_range"),
        ({"backoff_s": 0.0}, "/backoff_s", "out_of_range"),
        ({"max_backoff_s": -1.0}, "/max_backoff_s", "out_of_range"),
        ({"backoff_s": 10.0, "max_backoff_s": 5.0}, "/max_backoff_s", "out_of_range"),
        ({"max_requeues": -1}, "/max_requeues", "out_of_range"),
        ({"each_line": "lines"}, "/each_line", "no_bundle"),
        ({"each_line": "../lines", "bundle": "a" * 64}, "/each_line", "bad_path"),
        ({"each_line": "lines", "bundle": "a" * 64, "array": "7"}, "/each_line", "unexpected"),
        ({"resources": ResourceRequest(cpu_millis=-1)}, "/resources/cpu_millis", "out_of_range"),
        (
            {"resources": ResourceRequest(cpu_limit_millis=-1)},
            "/resources/cpu_limit_millis",
            "out_of_range",
        ),
        (
            {"resources": ResourceRequest(cpu_limit_millis=999)},
            "/resources/cpu_limit_millis",
            "out_of_range",
        ),
        (
            {"resources": ResourceRequest(memory_bytes=1 << 60)},
            "/resources/memory_bytes",
            "out_of_range",
        ),
        ({"resources": ResourceRequest(disk_bytes=-5)}, "/resources/disk_bytes", "out_of_range"),
        (
            {"resources": ResourceRequest(device=Device("gpu", "H100", 0))},
            "/resources/device/count",
            "out_of_range",
        ),
        (
            {"resources": ResourceRequest(device=Device("tpu", "v9-8"))},
            "/resources/device/variant",
            "unknown_variant",
        ),
        (
            {"resources": ResourceRequest(device=Device("tpu", "v4-8", 5))},
            "/resources/device/count",
            "too_many_chips",
        ),
        (
            {"resources": ResourceRequest(device=Device("gpu", ""))},
            "/resources/device/variant",
            "bad_variant",
        ),
        (
            {"constraints": (Constraint("z", ConstraintOp.LT, "a"),)},
            "/constraints/0/value",
            "ordering_on_string",
        ),
        ({"constraints": (Constraint("k", value="x" * 257),)}, "/constraints/0/value", "too_long"),
        ({"max_retries_failure": -1}, "/max_retries_failure", "out_of_range"),
        ({"max_retries_preemption": 1 << 40}, "/max_retries_preemption", "out_of_range"),
        ({"max_task_failures": -1}, "/max_task_failures", "out_of_range"),
        ({"timeout_s": 0.0}, "/timeout_s", "out_of_range"),
        ({"timeout_s": float("inf")}, "/timeout_s", "out_of_range"),
        ({"scheduling_timeout_s": -3.0}, "/scheduling_timeout_s", "out_of_range"),
        ({"bundle": "../../etc"}, "/bundle", "bad_digest"),
        ({"ports": ("http", "HTTP")}, "/ports/1", "duplicate"),
        ({"ports": ("8080",)}, "/ports/0", "bad_port"),
        ({"labels": {"a b": "c"}}, "/labels/a b", "bad_label"),
        ({"user": "a\nb"}, "/user", "bad_user"),
        ({"output": "../out"}, "/output", "bad_path"),
        ({"output": "/out"}, "/output", "bad_path"),
        ({"output": "out/"}, "/output", "bad_path"),
        ({"output": "."}, "/output", "bad_path"),
        ({"output": "-"}, "/output", "bad_path"),
        ({"output": "--help"}, "/output", "bad_path"),
        ({"output": "a\nb"}, "/output", "bad_path"),
        ({"output": "out\x1b[2J"}, "/output", "bad_path"),
        ({"probe": Probe()}, "/probe", "not_a_route"),
        ({"calls": of_arguments(inline(b"x" * 4097))}, "/calls/segments", "too_large"),
        ({"calls": of_arguments("inline:a")}, "/calls/segments/0", "bad_digest"),
        ({"calls": of_arguments(inline(b""), inline(b""))}, "/calls/segments", "too_large"),
        ({"calls": of_arguments("a file")}, "/calls/segments/0", "bad_digest"),
        ({"environment": Environment(packages="uv.lock")}, "/environment/packages", "no_bundle"),
        ({"environment": Environment(python="2.7; true")}, "/environment/python", "bad_version"),
        ({"environment": Environment(setup="a\0")}, "/environment/setup", "nul_byte"),
        ({"environment": Environment(setup="x" * 300_000)}, "/environment/setup", "too_long"),
        ({"environment": Environment(image="--privileged")}, "/environment/image", "bad_image"),
        ({"environment": Environment(image="a b")}, "/environment/image", "bad_image"),
        ({"environment": Environment(image="dir:/etc")}, "/environment/image", "bad_image"),
        ({"environment": Environment(image="x" * 513)}, "/environment/image", "bad_image"),
        (
            {"environment": Environment(image="lab/train:1", setup="make")},
            "/environment/setup",
            "unexpected",
        ),
        (
            {"environment": Environment(image="a"), "env": {"KEY": "two\nlines"}},
            "/env/KEY",
            "not_a_line",
        ),
        (
            {"environment": Environment(image="a"), "env": {"KEY": "x" * 60_001}},
            "/env/KEY",
            "not_a_line",
        ),
    ],
)
def test_a_mistake_is_told_with_its_field(changes: dict[str, Any], pointer: str, code: str) -> None:
    assert [(m.pointer, m.code) for m in validate_spec(but(**changes))] == [(pointer, code)]


def test_all_mistakes_are_told_at_once() -> None:
    wrong = but(name="x", command=(), replicas=0, timeout_s=-1.0)
    with pytest.raises(Invalid) as refused:
        admit(wrong)
    assert [m.pointer for m in refused.value.mistakes] == [
        "/name",
        "/command",
        "/replicas",
        "/timeout_s",
    ]


@pytest.mark.parametrize(
    "changed", [{"count": 5}, {"count": 0}, {"count": 10**24}, {"chunksize": 0}, {"firsts": (-1,)}]
)
def test_numbers_of_calls_that_do_not_fit_are_refused(changed: dict[str, Any]):
    digest = "0" * 64
    calls = Calls(
        runner=digest, function=digest, segments=(digest,), firsts=(0,), count=1, idle_s=60
    )
    assert not validate_spec(JobSpec(name="/a", command=("true",), calls=calls))
    assert validate_spec(
        JobSpec(name="/a", command=("true",), calls=msgspec.structs.replace(calls, **changed))
    )
