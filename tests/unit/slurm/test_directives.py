"""`#SBATCH` lines: what each becomes, and that no other one is ignored.
docs/howto/slurm-commands.md#directives.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from iris.client.options.jobs import job_spec
from iris_core.codec import to_builtins
from iris_slurm.commands.program import SLURM_VERSION, check_clusters, run
from iris_slurm.directives import (
    HARMLESS,
    HONOURED,
    IGNORE,
    REFUSED,
    ignored_options,
    options_of,
    script_lines,
    table_row,
)
from iris_slurm.translate import Submitter, environment, job_around, job_options, settings_of
from iris_slurm.values import NotHonoured
from tests.house.repository import ROOT, imported

BY = Submitter("/work/ada", "ada", "login", {"PATH": "/bin"}, datetime(2026, 3, 1, 21, tzinfo=UTC))
MIB = 1 << 20


def submitted(*words: str, script: str = "", environ: dict[str, str] | None = None) -> dict:
    """The specification and the settings that options become, as one dictionary."""
    given = options_of("sbatch", [*words, "job.sh"], script_lines(script), environ or {})
    settings = settings_of(given, BY, tuple(given.words))
    spec = job_spec(["python"], job_options(given, settings, BY), {})
    return {**to_builtins(spec), **to_builtins(settings)}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-J train", {"name": "train", "labels": {"job-name": "train"}}),
        (
            "",
            {
                "name": "job.sh",
                "output": "slurm-%j.out",
                "chdir": "/work/ada",
                "env": {"PATH": "/bin"},
            },
        ),
        (
            "-o a-%j.log -e b.log --open-mode=append",
            {"output": "a-%j.log", "error": "b.log", "append": True},
        ),
        ("-D /data", {"chdir": "/data", "submit_dir": "/work/ada"}),
        ("-t 90", {"timeout_s": 5400}),
        ("--time=1:30:05", {"timeout_s": 5405}),
        ("--time=2-1", {"timeout_s": 176_400}),
        ("--time=0", {"timeout_s": None}),
        ("-c 4 -n 2", {"cpu_millis": 8000, "tasks_per_node": 2, "nodes": 1}),
        (
            "-N2 --ntasks-per-node=3",
            {"replicas": 2, "cpu_millis": 3000, "group_by": "hostname:preferred"},
        ),
        ("-n 8 --ntasks-per-node=4", {"replicas": 2, "cpu_millis": 4000}),
        ("--mem=500", {"memory_bytes": 500 * MIB}),
        ("--mem=4GB", {"memory_bytes": 4096 * MIB}),
        ("--mem-per-cpu=1G -c 3", {"memory_bytes": 3072 * MIB}),
        ("--tmp=1G", {"disk_bytes": 1024 * MIB}),
        ("--gres=gpu:h100:8", {"variant": "H100", "count": 8}),
        ("--gpus-per-task=2 -n 2", {"variant": "auto", "count": 4}),
        ("-G a100:4 -N 2", {"variant": "A100", "count": 2}),
        (
            "-a 0-9:3%2",
            {"array": "0-9:3", "replicas": 4, "max_parallel": 2, "max_task_failures": 4},
        ),
        ("-a 3,5", {"array": "3,5", "output": "slurm-%A_%a.out"}),
        (
            "-d afterok:12:13,afternotok:14",
            {"after": [("j12", "ok"), ("j13", "ok"), ("j14", "notok")]},
        ),
        ("-d after:12,afterany:13", {"after": [("j12", "start"), ("j13", "any")]}),
        ("-d aftercorr:12", {"each": [True]}),
        ("-d singleton -J nightly", {"singleton": "nightly"}),
        ("-b now+8hours", {"not_before": "2026-03-02T05:00:00+00:00"}),
        ("-b 20:00", {"not_before": "2026-03-02T20:00:00+00:00"}),
        ("-b 2026-04-01", {"not_before": "2026-04-01T00:00:00+00:00"}),
        ("-H", {"hold": True}),
        ("--no-requeue", {"max_retries_preemption": 0}),
        ("--no-requeue --requeue", {"max_retries_preemption": 100}),
        ("-D src", {"chdir": "/work/ada/src"}),
        (
            "--signal=USR1@90 -t 5",
            {"notice": {"before_s": 90.0}, "stop": {"grace_s": 90.0}, "alone": False},
        ),
        (
            "--signal=B:SIGUSR2 -t 5",
            {"notice": {"signal": "SIGUSR2"}, "stop": {"grace_s": 60.0}, "alone": True},
        ),
        ("--export=NONE", {"env": {}}),
        ("-p gpu,long", {"constraints": [("partition", ("gpu", "long"))]}),
        ("-p iris", {"constraints": [], "partition": "iris"}),
        ("-p gpu,iris", {"constraints": []}),
        ("-C zen4&nvme", {"constraints": [("zen4", ()), ("nvme", ())]}),
        (
            "-w n1 -x n2,n3",
            {"constraints": [("hostname", "n1"), ("hostname", "n2"), ("hostname", "n3")]},
        ),
        ("-q high", {"band": "production"}),
        (
            "-A lab --comment=first",
            {"labels": {"project": "lab", "comment": "first", "job-name": "job.sh"}},
        ),
        ("-A /research/nlp", {"project": "/research/nlp", "labels": {"job-name": "job.sh"}}),
    ],
)
def test_a_directive_becomes(words: str, expected: dict):
    found = submitted(*words.split())
    found |= (
        found["resources"]
        | (found["resources"].get("device") or {})
        | (found["coscheduling"] or {})
    )
    found["group_by"] = (found["coscheduling"] or {}).get("group_by")
    if found["group_by"] is not None:
        found["group_by"] = ":".join(found["group_by"][0].values())
    found["each"] = [one.get("each", False) for one in found["after"]]
    found["after"] = [(one["job"], one.get("when", "ok")) for one in found["after"]]
    found["constraints"] = [
        (one["key"], one.get("value") or one.get("values", ())) for one in found["constraints"]
    ]
    for name, value in expected.items():
        if name in ("notice", "stop"):
            assert value.items() <= {"signal": "SIGUSR1", **found[name]}.items()
        else:
            assert found[name] == value, name


@pytest.mark.parametrize("flag", [flags.split()[-1] for flags, _ in REFUSED])
def test_a_refused_directive_is_named(flag: str):
    with pytest.raises(NotHonoured, match=flag):
        submitted(f"{flag}=1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nonsense=1", "--nonsense=1 is not known"),
        ("--exclusive", "--exclusive is refused: hosts are shared"),
        ("--mem=0", "--mem=0"),
        ("--mem=lots", "--mem=lots: not a size"),
        ("--time=soon", "--time=soon"),
        ("--nodes=2-4", "--nodes=2-4: a job has a fixed number of hosts"),
        ("-n 3 -N 2", "--ntasks=3"),
        ("--gres=gpu:1 --gpus=1", "--gres and --gpus"),
        ("--gres=fpga:1", "--gres=fpga:1"),
        ("-a 0-1 -N 2", "--array with --nodes"),
        ("-d afterok:1?afterok:2", r"\(\?\)"),
        ("-d after:12+5", r"12\+5 is not the number of a job"),
        ("-d before:12", "before is not known"),
        ("-d afterok:120000000003", "a whole array and not for a task of it"),
        ("-b teatime", "--begin=teatime"),
        ("--signal=R:USR1", "--signal=R:USR1"),
        ("--signal=WINCH@90 -N 2", "only INT, QUIT, HUP, USR1, USR2 reach other hosts"),
        ("-C a|b", r"--constraint=a\|b"),
        ("-w n[1-3]", "--nodelist"),
        ("-q platinum", "--qos=platinum is refused"),
        ("-o x-%s.out", "--output=x-%s.out: %s is not known"),
        ("--kill-on-invalid-dep=no", "--kill-on-invalid-dep=no"),
        ("--mem-per-cpu=1G --mem=1G", "exclude each other"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words: str, said: str):
    with pytest.raises(NotHonoured, match=said):
        submitted(*words.split())


def test_a_job_waits_for_any_end_of_the_job_around_it():
    around = {"IRIS_JOB": "/a", "SLURM_JOB_ID": "12"}
    by = replace(BY, environ=around)
    given = options_of("sbatch", ["-d", "afterok:11,afternotok:12", "job.sh"])
    options = job_options(given, settings_of(given, by, ("job.sh",)), by)
    assert options["after"] == ["j11:ok", "j12:notok"]
    assert [job_around(one) for one in (around, {"SLURM_JOB_ID": "12"})] == ["12", ""]
    assert job_around({**around, "SLURM_ARRAY_JOB_ID": "7"}) == "7"


def test_a_harmless_directive_is_accepted_with_a_warning(capsys):
    submitted("--wckey=k", "--nice=5")
    assert capsys.readouterr().err.splitlines() == [
        "sbatch: warning: --wckey has no effect: not recorded",
        "sbatch: warning: --nice has no effect: jobs of a band keep their order",
    ]


SCRIPT = """#!/bin/bash
# a comment
#SBATCH --job-name="my job" -c 2  # cores
#SBATCH --time=10

#SBATCH --partition=a
##SBATCH --exclusive
hostname
#SBATCH --nonsense
"""


def test_options_win_over_variables_and_these_over_the_script():
    variables = {"SBATCH_PARTITION": "b", "SBATCH_TIMELIMIT": "20"}
    found = submitted("-p", "c", script=SCRIPT, environ=variables)
    assert (found["partition"], found["timeout_s"], found["name"], found["cpus_per_task"]) == (
        "c",
        1200,
        "my job",
        2,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SBATCH_REQUEUE", {"max_retries_preemption": 100}),
        ("SBATCH_NO_REQUEUE", {"max_retries_preemption": 0}),
        ("SBATCH_WAIT", {}),
        ("SBATCH_ARRAY_INX", {"array": "1"}),
        ("SBATCH_TIMELIMIT", {"timeout_s": 60}),
        ("SBATCH_MEM_PER_NODE", {"memory_bytes": MIB}),
    ],
)
def test_a_variable_of_sbatch_is_an_option(name: str, expected: dict, capsys):
    found = submitted(environ={name: "1"})
    found |= found["resources"]
    assert {key: found[key] for key in expected} == expected
    assert capsys.readouterr().err == ""


def test_a_variable_that_slurm_does_not_read_is_named_and_has_no_effect(capsys):
    submitted(environ={"SBATCH_OF_THIS_SITE": "1"})
    said = "sbatch: warning: SBATCH_OF_THIS_SITE has no effect: it is no variable of sbatch\n"
    assert capsys.readouterr().err == said
    with pytest.raises(NotHonoured, match="SBATCH_GPU_BIND=none: --gpu-bind is not known"):
        submitted(environ={"SBATCH_GPU_BIND": "none"})


IGNORED = ignored_options({IGNORE: "--exclusive,--gpu-bind= --oversubscribe -p"})


@pytest.mark.parametrize(
    ("words", "script", "environ"),
    [
        ("--exclusive job.sh a", "", ""),
        ("--exclusive=user job.sh a", "", ""),
        ("--gpu-bind none -J x job.sh a", "", ""),
        ("-s job.sh a", "", ""),
        ("-pgpu --partition gpu job.sh a", "", ""),
        ("job.sh a", "#SBATCH --exclusive --gpu-bind=none\n", ""),
        ("job.sh a", "", "SBATCH_GPU_BIND"),
        ("job.sh a", "", "SBATCH_EXCLUSIVE"),
    ],
)
def test_what_the_site_ignores_is_dropped_with_a_warning(words, script, environ, capsys):
    lines = script_lines(f"#!/bin/sh\n{script}")
    variables = {environ: "none"} if environ else {}
    given = options_of("sbatch", words.split(), lines, variables, IGNORED)
    assert (given.words, given.partition, given.exclusive) == (["job.sh", "a"], None, None)
    assert f"is ignored: {IGNORE} names it" in capsys.readouterr().err


def test_what_follows_the_script_is_not_ignored():
    given = options_of("sbatch", ["job.sh", "--exclusive"], ignored=IGNORED)
    assert given.words == ["job.sh", "--exclusive"]
    for mistake in ("exclusive", "--gpu-bind=none", "-"):
        with pytest.raises(NotHonoured, match="is no option"):
            ignored_options({IGNORE: mistake})


def test_a_mistake_in_a_line_of_a_script_is_refused():
    with pytest.raises(NotHonoured, match="line 2 of the script: No closing quotation"):
        script_lines('#!/bin/sh\n#SBATCH --comment="a\n')
    with pytest.raises(NotHonoured, match="#SBATCH job-name=x: not an option"):
        submitted(script="#!/bin/sh\n#SBATCH job-name=x\n")


def test_variables_of_other_jobs_are_not_passed_on():
    environ = {
        "A": "1",
        "B": "2",
        "IRIS_TOKEN": "x",
        "SLURM_JOB_ID": "7",
        "BASH_FUNC_module%%": "() {}",
    }
    assert environment("ALL", environ) == {"A": "1", "B": "2"}
    assert environment("ALL,C=3", environ) == {"A": "1", "B": "2", "C": "3"}
    assert environment("B,D", environ) == {"B": "2"}
    with pytest.raises(NotHonoured, match="IRIS_TOKEN is not the name of a variable of yours"):
        environment("IRIS_TOKEN", environ)


def test_the_page_has_a_row_for_each_directive():
    page = (ROOT / "docs/howto/slurm-commands.md").read_text()
    rows = [table_row(*row) for rows in (HONOURED, HARMLESS, REFUSED) for row in rows]
    assert [row for row in rows if f"\n{row}\n" not in page] == []
    assert page.count("\n| `-") == len(rows)


PACKAGE = ROOT / "integrations/slurm"


def test_the_package_uses_the_sdk_and_the_types_of_its_answers_only():
    trees = [ast.parse(path.read_text()) for path in PACKAGE.glob("**/*.py")]
    found = set().union(*map(imported, trees))
    assert found - set(sys.stdlib_module_names) == {"iris", "iris_core", "iris_slurm", "msgspec"}


def test_each_command_of_the_package_is_there():
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    for name, entry in project["scripts"].items():
        assert entry == f"iris_slurm.commands.{name}:main"
        assert "def main()" in (PACKAGE / f"iris_slurm/commands/{name}.py").read_text()


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_each_command_says_which_slurm_it_is_like(flag, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("IRIS_DATA", str(tmp_path))
    assert run("sacct", lambda client, words: 1, [flag]) == 0
    assert capsys.readouterr().out == f"slurm-iris {SLURM_VERSION}\n"


def test_there_is_one_cluster():
    for text in ("", "all", "iris", "iris,all"):
        check_clusters(text)
    with pytest.raises(NotHonoured, match="--clusters=iris,other: other is not known"):
        check_clusters("iris,other")


@pytest.mark.parametrize(("program", "lists"), [("sbatch", True), ("squeue", False)])
def test_the_help_needs_no_cluster_and_lists_what_is_honoured(
    program, lists, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("IRIS_DATA", str(tmp_path))
    assert run(program, lambda client, words: 1, ["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(row[0] in shown for row in HONOURED) is lists
