import re
from typing import Any

import pytest

from iris.client.options.job_names import fresh_name, full_name
from iris.client.options.jobs import job_spec
from iris.client.problems import InvalidOption
from iris_core.names import JobName
from iris_core.spec.exit_rules import ExitRule
from iris_core.spec.jobs import (
    Constraint,
    Coscheduling,
    Dependency,
    JobSpec,
    Level,
    NoticePolicy,
    StopPolicy,
)
from iris_core.spec.resources import Device, ResourceRequest
from iris_core.states import ConstraintOp

OUTSIDE: dict[str, str] = {}
INSIDE = {"IRIS_JOB": "/train"}


def test_a_job_with_nothing_but_a_command_has_every_default():
    assert job_spec(["true"], {"name": "a"}, OUTSIDE) == JobSpec(name="/a", command=("true",))


def test_everything_that_can_be_said_arrives_in_the_specification():
    spec = job_spec(
        ["python", "train.py"],
        {
            "name": "train",
            "user": "ann",
            "env": {"A": "1"},
            "replicas": 3,
            "cpu": 0.5,
            "cpu_limit": "1.5",
            "memory": "4GiB",
            "disk": "1GB",
            "gpu": "H100x8",
            "constraints": ["zone=eu-1"],
            "prefer": ["fast"],
            "group_by": "rack",
            "band": "batch",
            "max_retries_failure": 2,
            "max_retries_preemption": 3,
            "max_task_failures": 1,
            "scheduling_timeout": "10m",
            "timeout": 7200,
            "bundle": "ab",
            "ports": ["http"],
            "labels": {"team": "x"},
        },
        OUTSIDE,
    )

    assert spec == JobSpec(
        name="/train",
        command=("python", "train.py"),
        user="ann",
        env={"A": "1"},
        replicas=3,
        resources=ResourceRequest(
            500, 4 << 30, 10**9, Device("gpu", "H100", 8), cpu_limit_millis=1500
        ),
        constraints=(
            Constraint("zone", ConstraintOp.EQ, "eu-1"),
            Constraint("fast", ConstraintOp.EXISTS, mode="preferred"),
        ),
        coscheduling=Coscheduling("rack"),
        band="batch",
        max_retries_failure=2,
        max_retries_preemption=3,
        max_task_failures=1,
        scheduling_timeout_s=600.0,
        timeout_s=7200.0,
        bundle="ab",
        ports=("http",),
        labels={"team": "x"},
    )


@pytest.mark.parametrize(
    ("options", "replicas", "coscheduling"),
    [
        ({"tpu": "v5litepod-16", "slices": 4}, 16, Coscheduling("tpu-name", slices=4)),
        ({"tpu": "v5litepod-8", "slices": 2}, 2, Coscheduling("tpu-name", slices=2)),
        (
            {"tpu": "v4-16", "slices": 2, "within": "zone"},
            4,
            Coscheduling("tpu-name", slices=2, within="zone"),
        ),
        ({"group_by": "rack", "replicas": 6, "slices": 3}, 6, Coscheduling("rack", slices=3)),
    ],
)
def test_slices_multiply_the_hosts_of_one(options: Any, replicas: int, coscheduling: Coscheduling):
    spec = job_spec(["true"], options, OUTSIDE)
    assert (spec.replicas, spec.coscheduling) == (replicas, coscheduling)


@pytest.mark.parametrize(
    ("given", "group_by"),
    [
        ("rack", "rack"),
        (["rack"], "rack"),
        (("rack", "block:preferred"), (Level("rack"), Level("block", "preferred"))),
        ("rack:preferred", (Level("rack", "preferred"),)),
        (
            [Level("rack", "preferred"), "zone:required"],
            (Level("rack", "preferred"), Level("zone")),
        ),
        (["acme:rack", "x/y"], (Level("acme:rack"), Level("x/y"))),
    ],
)
def test_levels_of_the_topology_are_read_innermost_first(given: Any, group_by: object):
    assert job_spec(["true"], {"group_by": given}, OUTSIDE).coscheduling == Coscheduling(group_by)


@pytest.mark.parametrize(
    ("given", "why"), [("rack:prefered", "did you mean rack:preferred?"), ([3], "not an attribute")]
)
def test_a_level_that_is_mistyped_is_refused(given: Any, why: str):
    with pytest.raises(InvalidOption, match=why.replace("?", r"\?")):
        job_spec(["true"], {"group_by": given}, OUTSIDE)


@pytest.mark.parametrize(
    ("options", "what"), [({"slices": 2}, "slices"), ({"within": "zone"}, "slices within")]
)
def test_only_a_gang_has_slices(options: Any, what: str):
    with pytest.raises(InvalidOption, match=f"only a gang has {what}"):
        job_spec(["true"], options, OUTSIDE)


def test_a_slice_of_many_hosts_sets_replicas_and_group_by_itself():
    spec = job_spec(["true"], {"name": "a", "tpu": "v5litepod-16"}, OUTSIDE)

    assert (spec.replicas, spec.coscheduling, spec.resources.device) == (
        4,
        Coscheduling("tpu-name"),
        Device("tpu", "v5litepod-16", 4),
    )


def test_a_slice_of_one_host_is_a_plain_job():
    spec = job_spec(["true"], {"name": "a", "tpu": "v5litepod-8"}, OUTSIDE)

    assert (spec.replicas, spec.coscheduling, spec.resources.device) == (
        1,
        None,
        Device("tpu", "v5litepod-8", 8),
    )


def test_replicas_that_were_said_are_not_overruled_by_a_slice():
    assert (
        job_spec(["true"], {"name": "a", "tpu": "v5litepod-16", "replicas": 0}, OUTSIDE).replicas
        == 0
    )


def test_a_value_of_the_wrong_type_is_refused_with_its_place():
    with pytest.raises(InvalidOption, match=r"labels"):
        job_spec(["true"], {"labels": {"a": 1}}, OUTSIDE)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("options", "environ", "name"),
    [
        ({"name": "a"}, OUTSIDE, "/a"),
        ({"name": "/a/b"}, OUTSIDE, "/a/b"),
        ({"name": "a"}, INSIDE, "/train/a"),
        ({"name": "/a"}, INSIDE, "/a"),
        ({"name": "a", "parent": "/other"}, INSIDE, "/other/a"),
        ({"name": "a", "parent": "other"}, OUTSIDE, "/other/a"),
        ({"name": "/other/a", "parent": "/other"}, OUTSIDE, "/other/a"),
    ],
)
def test_a_name_is_a_child_where_it_is_said_or_where_it_is_submitted(options, environ, name):
    assert job_spec(["true"], options, environ).name == name


def test_a_whole_path_under_another_parent_is_refused():
    with pytest.raises(InvalidOption, match="not a child"):
        full_name("/x/a", "/other")


def test_without_a_name_a_child_gets_a_fresh_one_below_its_parent():
    assert re.fullmatch(r"/train/[a-z]+-[a-z]+-[0-9a-f]{6}", job_spec(["true"], {}, INSIDE).name)


def test_fresh_names_are_valid_and_differ():
    names = {fresh_name() for _ in range(200)}

    assert len(names) == 200
    assert all(str(JobName.job(f"/{name}")) == f"/{name}" for name in names)


def test_a_nameless_job_of_one_seed_is_worded_the_same_each_time():
    """So an idempotency key that is sent again comes with the body it came with before."""
    first, again, other = (job_spec(["true"], {}, OUTSIDE, seed=seed) for seed in ("k", "k", "l"))

    assert first == again
    assert other.name != first.name


def test_a_gang_may_succeed_with_its_leader():
    assert job_spec(["a"], {"group_by": "rack", "success": "leader"}).coscheduling == Coscheduling(
        "rack", "leader"
    )
    assert job_spec(["a"], {"tpu": "v4-16", "success": "leader"}).coscheduling == Coscheduling(
        "tpu-name", "leader"
    )
    with pytest.raises(InvalidOption, match="only a gang has a success policy"):
        job_spec(["a"], {"success": "leader"})


def test_every_mistake_is_told_at_once():
    options = {
        "cpu": "x",
        "memory": "4",
        "timeout": "soon",
        "constraints": ["A B", "zone=eu"],
        "gpu": "-",
        "tpu": "v4-8",
    }
    with pytest.raises(InvalidOption) as caught:
        job_spec(["true"], options)
    given = str(caught.value).splitlines()
    assert len(given) == 5
    for word, line in zip(["gpus or a tpu", "'x'", "'4'", "'A B'", "'soon'"], given, strict=True):
        assert word in line


@pytest.mark.parametrize("command", ["echo hi", b"echo hi", 7])
def test_a_command_that_is_no_list_of_words_is_refused(command):
    with pytest.raises(InvalidOption, match="a list of words"):
        job_spec(command, {})


def test_keep_going_lets_every_task_fail():
    assert job_spec(["a"], {"replicas": 9, "keep_going": True}).max_task_failures == 9
    assert job_spec(["a"], {"replicas": 9, "keep_going": False}).max_task_failures == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"keep_going": True, "max_task_failures": 2},
            "keep_going lets all tasks fail: leave out max_task_failures",
        ),
        (
            {"keep_going": True, "group_by": "rack"},
            "a gang ends with its first failed task: leave out keep_going",
        ),
    ],
)
def test_keep_going_is_refused_where_it_means_nothing(options, why):
    with pytest.raises(InvalidOption, match=why):
        job_spec(["a"], options)


def test_a_job_is_spread_unless_it_packs():
    assert [job_spec(["a"], options).spread for options in ({}, {"spread": "none"})] == [
        "hosts",
        "none",
    ]
    with pytest.raises(InvalidOption, match="spread"):
        job_spec(["a"], {"spread": "racks"})


def test_an_array_says_how_many_tasks_there_are():
    spec = job_spec(["true"], {"name": "a", "array": "0-15:4,20", "max_parallel": 2}, OUTSIDE)
    assert (spec.replicas, spec.array, spec.max_parallel) == (5, "0-15:4,20", 2)


def test_a_file_has_a_task_for_each_line(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"seed={number}\n" for number in range(10_000)))
    spec = job_spec(["true"], {"name": "a", "each_line": lines}, OUTSIDE)
    assert (spec.replicas, spec.each_line) == (10_000, ".iris-each-line")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"array": "0-"}, "array: '0-' is neither an index nor a range"),
        ({"array": ""}, "array: '' is neither an index nor a range"),
        ({"array": "0-9%2"}, "array: '0-9%2' has a limit: write array '0-9' with max_parallel 2"),
        (
            {"array": "0-3", "replicas": 4},
            "array says how many tasks there are: leave out replicas",
        ),
        ({"array": "0-3", "each_line": "lines"}, "a task has one value, of array or of each_line"),
        (
            {"each_line": "no-such-file"},
            "each_line: cannot read no-such-file: No such file or directory",
        ),
        (
            {"after": ["prep:never"]},
            "'prep:never' is not JOB or JOB:WHEN; WHEN is one of ok, any, notok, start",
        ),
        ({"after": [":ok"]}, "':ok' is not JOB or JOB:WHEN"),
        ({"after": [7]}, "7 is not a job to wait for"),
        ({"each": True}, "each says how to wait for another job: specify after too"),
        ({"gpu": "1", "tpu": "v4-8"}, "not both"),
        ({"stop_signal": "FOO"}, "stop_signal: 'FOO' is not a signal"),
    ],
)
def test_options_without_a_meaning_or_not_together_are_refused(options, words):
    with pytest.raises(InvalidOption, match=re.escape(words)):
        job_spec(["true"], {"name": "a", **options}, OUTSIDE)


def test_rules_for_exit_codes_are_read():
    spec = job_spec(
        ["true"], {"name": "a", "on_exit": ["75,64-78=requeue", "SIGBUS=retry"]}, OUTSIDE
    )
    assert spec.on_exit == (ExitRule((75, "64-78"), "requeue"), ExitRule(("SIGBUS",), "retry"))


@pytest.mark.parametrize("rule", ["75", "75=again", "=", "requeue"])
def test_a_rule_for_exit_codes_without_an_action_is_refused(rule):
    with pytest.raises(InvalidOption, match="is not CODES=retry, CODES=requeue or CODES=fail"):
        job_spec(["true"], {"name": "a", "on_exit": [rule]}, OUTSIDE)


def test_a_job_waits_for_others_by_name_or_id():
    options = {
        "after": ["prep", "j7:any", "/a/b:start"],
        "not_before": "8h",
        "singleton": "k",
        "hold": True,
    }
    spec = job_spec(["true"], {"name": "a", **options}, OUTSIDE)
    assert spec.after == (Dependency("/prep"), Dependency("j7", "any"), Dependency("/a/b", "start"))
    assert (spec.not_before, spec.singleton, spec.hold) == ("8h", "k", True)
    assert job_spec(["true"], {"after": ["prep"], "each": True}, OUTSIDE).after == (
        Dependency("/prep", each=True),
    )


def test_modules_to_preload_are_a_list():
    spec = job_spec(["python", "train.py"], {"name": "a", "preload": ["torch", "numpy"]}, OUTSIDE)
    assert spec.preload == ("torch", "numpy")
    with pytest.raises(InvalidOption, match="preload is a list"):
        job_spec(["python", "train.py"], {"name": "a", "preload": "torch"}, OUTSIDE)


def test_a_stop_signal_may_be_said_without_sig():
    spec = job_spec(["true"], {"name": "a", "stop_signal": "INT", "grace": "1m"}, OUTSIDE)
    assert spec.stop == StopPolicy(signal="SIGINT", grace_s=60.0)


@pytest.mark.parametrize(
    ("said", "before_s"), [("USR1@90s", 90.0), ("SIGUSR1@1m", 60.0), ("USR1", 60.0)]
)
def test_a_notice_is_a_signal_and_a_time(said, before_s):
    spec = job_spec(["true"], {"name": "a", "notice": said}, OUTSIDE)
    assert spec.notice == NoticePolicy(signal="SIGUSR1", before_s=before_s)


@pytest.mark.parametrize("said", ["@90s", "USR1@", "USR1@soon", "FOO@90s"])
def test_a_notice_that_cannot_be_read_is_refused(said):
    with pytest.raises(InvalidOption):
        job_spec(["true"], {"name": "a", "notice": said}, OUTSIDE)


def test_what_a_time_limit_does_and_the_protection_are_said():
    options = {"name": "a", "timeout": "1h", "on_timeout": "requeue", "protect": "10m"}
    spec = job_spec(["true"], options, OUTSIDE)
    assert (spec.timeout_s, spec.on_timeout, spec.protect_s) == (3600.0, "requeue", 600.0)


def test_an_amount_or_a_time_that_is_none_is_refused_with_its_option():
    wrong = {"cpu": "-1", "memory": "4x", "timeout": "-5s", "grace": "soon", "cpu_limit": "nan"}
    with pytest.raises(InvalidOption) as refused:
        job_spec(["true"], {"name": "a", **wrong}, OUTSIDE)
    assert sorted(line.partition(":")[0] for line in str(refused.value).splitlines()) == sorted(
        wrong
    )


@pytest.mark.parametrize("longest", ["5m", "300", "1m"])
def test_a_longest_pause_below_the_first_one_is_refused_the_default_too(longest: str):
    with pytest.raises(
        InvalidOption, match=r"max_backoff: the longest pause, \dm, is shorter than .* 10m;"
    ):
        job_spec(["true"], {"name": "a", "backoff": "10m", "max_backoff": longest}, {})
    assert job_spec(["true"], {"name": "a", "backoff": "10m"}, {}).backoff_ms(3) == 600_000
