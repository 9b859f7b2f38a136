"""The commands of Slurm on a real cluster, and programs that use them, as they are published.

docs/howto/slurm-commands.md.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.cluster import Cluster, until
from tests.support.frameworks import FRAMEWORKS

pytestmark = pytest.mark.integration

PACKAGE = ROOT / "integrations/slurm"
WITHIN_S = 150
LOOK_S = 0.3
Commands = Callable[..., str]
RANK = """
import os, pathlib, socket, time
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
port = pathlib.Path(os.environ["MEETING"])
if rank == 0:
    with socket.create_server(("", 0)) as server:
        port.with_suffix(".new").write_text(str(server.getsockname()[1]))
        port.with_suffix(".new").rename(port)
        others = [server.accept()[0] for _ in range(world - 1)]
    total = sum(other.recv(1)[0] for other in others)
    for other in others:
        other.sendall(bytes([total]))
else:
    while not port.exists():
        time.sleep(0.05)
    with socket.create_connection((os.environ["MASTER_ADDR"], int(port.read_text()))) as other:
        other.sendall(bytes([rank]))
        total = other.recv(1)[0]
where = f"node {os.environ['SLURM_NODEID']} local {os.environ['SLURM_LOCALID']}"
print(f"{rank}/{world} {where} sum {total}")
"""
"""A program of several ranks: each tells the first one its number, which tells all the sum."""


@pytest.fixture
def environ(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """That of a shell with the commands of the package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, entry in project["scripts"].items():
        module, _, function = entry.partition(":")
        code = f"import sys; from {module} import {function}; sys.exit({function}())"
        (directory / name).write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
        (directory / name).chmod(0o755)
    path = f"{directory}:{os.environ['PATH']}:{FRAMEWORKS / 'bin'}"
    return {
        **cluster.environ,
        "PATH": path,
        "PYTHONPATH": f"{PACKAGE}:{FRAMEWORKS}",
        "SHELL": "/bin/sh",
    }


@pytest.fixture
def slurm(environ: dict[str, str], tmp_path: Path) -> Commands:
    """Runs a command in the directory of the test; what it prints."""

    def run(*words: str, code: int = 0, errors: bool = False) -> str:
        options = {
            "cwd": tmp_path,
            "env": environ,
            "text": True,
            "capture_output": True,
            "timeout": WITHIN_S,
        }
        done = subprocess.run(words, check=False, **options)
        assert done.returncode == code, done.stderr
        return (done.stderr if errors else done.stdout).strip()

    return run


def script(place: Path, *lines: str) -> str:
    (place / "job.sh").write_text("\n".join(["#!/bin/bash", *lines, ""]))
    return "job.sh"


def state(slurm: Commands, number: str) -> str:
    return slurm("sacct", "-n", "-P", "-o", "State", "-j", number)


def test_a_script_writes_its_output_where_it_was_submitted(slurm: Commands, tmp_path: Path):
    lines = (
        "#SBATCH -J my-job -o %x-%j.out -e errors --cpus-per-task=2",
        'echo "$SLURM_JOB_ID $1 in $PWD"',
        "echo no >&2",
    )
    number = slurm("sbatch", "--parsable", "--wait", script(tmp_path, *lines), "word")
    assert (tmp_path / f"my-job-{number}.out").read_text() == f"{number} word in {tmp_path}\n"
    assert (tmp_path / "errors").read_text() == "no\n"
    fields = "JobID,JobName,State,ExitCode,AllocCPUS"
    assert (
        slurm("sacct", "-n", "-P", "-o", fields, "-j", number) == f"{number}|my-job|COMPLETED|0:0|2"
    )
    assert slurm("squeue", "-h", "-j", number) == ""


def test_a_script_has_the_umask_of_whoever_submitted_it(slurm: Commands, tmp_path: Path):
    submit = f"umask 027; sbatch --wait -o out {script(tmp_path, 'umask')}"
    slurm("sh", "-c", submit)
    assert (tmp_path / "out").read_text() == "0027\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_what_a_site_ignores_is_ignored_within_jobs_too(
    slurm: Commands, environ: dict[str, str], tmp_path: Path
):
    environ["IRIS_SLURM_IGNORE"] = "--exclusive,--gpu-bind="
    lines = ("#SBATCH --exclusive -o out", "srun --gpu-bind none echo hi")
    said = slurm("sbatch", "--wait", script(tmp_path, *lines), errors=True)
    assert said == "sbatch: warning: --exclusive is ignored: IRIS_SLURM_IGNORE names it"
    said = "srun: warning: --gpu-bind is ignored: IRIS_SLURM_IGNORE names it"
    assert (tmp_path / "out").read_text().splitlines() == [said, "hi"]


def test_the_directory_of_the_output_may_come_after_the_task(slurm: Commands, tmp_path: Path):
    """As with submitit and the folder %j: it is made once the number is known."""
    number = slurm("sbatch", "--parsable", "-o", "%j/out", "--wrap", "echo hi")
    until(lambda: state(slurm, number) != "PENDING", "the task runs", look_s=LOOK_S)
    (tmp_path / number).mkdir(exist_ok=True)
    until(lambda: state(slurm, number) == "COMPLETED", "it has found it", look_s=LOOK_S)
    assert (tmp_path / number / "out").read_text() == "hi\n"


def test_a_failed_script_says_so(slurm: Commands, tmp_path: Path):
    number = slurm("sbatch", "--parsable", "--wait", "--wrap", "exit 3", code=3)
    assert slurm("sacct", "-n", "-P", "-o", "State,ExitCode", "-j", number) == "FAILED|3:0"
    number = slurm("sbatch", "--parsable", "--wait", "--wrap", "kill -TERM $$", code=1)
    assert slurm("sacct", "-n", "-P", "-o", "State,ExitCode", "-j", number) == "FAILED|0:15"
    assert "ExitCode=0:15" in slurm("scontrol", "show", "job", number)
    said = slurm("sbatch", "--exclusive", "--wrap", "true", code=1, errors=True)
    assert said.startswith("sbatch: error: --exclusive is refused")
    number = slurm("sbatch", "--parsable", "--wait", "-o", "/nowhere/x", "--wrap", "true", code=1)
    assert state(slurm, number) == "FAILED"


def test_jobs_are_held_and_wait_for_others(slurm: Commands):
    first = slurm("sbatch", "--parsable", "--hold", "--wrap", "true")
    then = slurm("sbatch", "--parsable", "-d", f"afterok:{first}", "-o", "then", "--wrap", "true")
    assert slurm("squeue", "-h", "-o", "%i %t %r", "-j", f"{first},{then}").splitlines() == [
        f"{first} PD JobHeldUser",
        f"{then} PD Dependency",
    ]
    slurm("scontrol", "release", first)
    until(lambda: state(slurm, then) == "COMPLETED", "the second has run", look_s=LOOK_S)


def test_a_task_of_an_array_is_cancelled_alone(slurm: Commands, tmp_path: Path):
    job = script(
        tmp_path,
        "#SBATCH --array=2-6:2",
        'touch "on-$SLURM_ARRAY_TASK_ID"',
        "until [ -e go ]; do sleep 0.02; done",
    )
    number = slurm("sbatch", "--parsable", job)
    until(lambda: len(list(tmp_path.glob("on-*"))) == 3, "all run")
    slurm("scancel", f"{number}_4")
    (tmp_path / "go").touch()
    ended = [f"{number}_2|COMPLETED", f"{number}_4|CANCELLED", f"{number}_6|COMPLETED"]
    listing = ("sacct", "-n", "-P", "-o", "JobID,State", "-j", number)
    until(
        lambda: slurm(*listing).splitlines() == ended, "two of three have succeeded", look_s=LOOK_S
    )


def test_srun_starts_the_tasks_of_a_job(slurm: Commands, tmp_path: Path):
    job = script(
        tmp_path,
        "#SBATCH -n 2",
        "srun -o rank-%t sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS'",
        "srun -n 1 false",
    )
    number = slurm("sbatch", "--parsable", "--wait", job, code=1)
    assert state(slurm, number) == "FAILED"
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)] == ["0 of 2\n", "1 of 2\n"]
    assert slurm("srun", "sh", "-c", "echo $SLURM_JOB_NAME; exit 4", code=4) == "sh"
    slurm("srun", "sh", "-c", "kill -TERM $$", code=128 + 15)
    ranks = slurm(
        "salloc", "-N", "2", "srun", "sh", "-c", "echo $SLURM_PROCID on $SLURM_NODEID in $PWD"
    )
    assert sorted(ranks.splitlines()) == [f"{rank} on {rank} in {tmp_path}" for rank in (0, 1)]


def test_workflow_programs_are_answered(slurm: Commands):
    """The commands of Snakemake's plugin for Slurm, as it runs them."""
    options = ["--job-name", "run-1", "--export=ALL", "--ntasks=1", "--cpus-per-task=1", "-D", "."]
    number = slurm("sbatch", "--parsable", *options, "--wait", "--wrap=true")
    period = ["--starttime", "now-2days", "--endtime", "now", "--name", "run-1"]
    asked = ["-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State"]
    assert slurm("sacct", *asked, *period) == f"{number}|COMPLETED"
    assert slurm("sacct", *asked, "--endtime", "now-1hour", "-S", "now-1day") == ""
    assert slurm("sacctmgr", "-n", "-s", "list", "user", "ada", "format=account%256") == ""
    said = slurm("sshare", "-U", "--format", "Account%256", "--noheader", errors=True)
    assert said.startswith("sshare: there is no list of accounts: ")
    said = slurm("sshare", "-a", errors=True)
    assert said.startswith("sshare: there is no fair share: it begins with the second project ")
    said = slurm("scancel", "999999", "--clusters=all", code=1, errors=True)
    assert said.startswith("scancel: error: 999999: ")
    held = slurm("sbatch", "--parsable", "--hold", "-p", "iris", "--wrap", "true")
    listing = ["squeue", "--noheader", "-o", "%i %t", "-p", "iris"]
    assert slurm(*listing) == f"{held} PD"
    assert slurm(*listing[:-1], "gpu") == ""
    said = slurm("squeue", "-t", "PD,CD", errors=True)
    assert said == "squeue: warning: what has ended is not listed: sacct does, and squeue -j"
    assert slurm("scancel", "--clusters=all", held) == ""


NEXTFLOW = r"""#!/bin/bash
### ---
### name: 'count (1)'
### ...
#SBATCH -J nf-count_(1)
#SBATCH -o {work}/.command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -c 1
#SBATCH -t 00:02:00
#SBATCH --mem 200M
#SBATCH -p iris
NXF_CHDIR={work}
set -e
set -u
on_exit() {{
    local last_err=$?
    local exit_status=${{nxf_main_ret:=0}}
    [[ ${{exit_status}} -eq 0 && ${{last_err}} -ne 0 ]] && exit_status=${{last_err}}
    printf -- $exit_status > {work}/.exitcode
    exit $exit_status
}}
on_term() {{
    set +e
    [[ "$pid" ]] && kill $(ps -e -o pid= -o ppid= | while read P PP; do [ $PP = $pid ] && echo $P; done) $pid 2>/dev/null
}}
nxf_main() {{
    trap on_exit EXIT
    trap on_term TERM INT USR2
    trap '' USR1
    [[ "${{NXF_CHDIR:-}}" ]] && cd "$NXF_CHDIR"
    touch {work}/.command.begin
    set +e
    (/bin/bash -ue {work}/.command.sh) &
    pid=$!
    wait $pid || nxf_main_ret=$?
}}
${{1:-nxf_main}}
"""
"""The script of a task as the executor `slurm` of Nextflow 24 writes it, without its stages."""


def test_nextflow_submits_asks_and_cancels(slurm: Commands, tmp_path: Path):
    """By the calls of its executor, whose answers are read as it reads them."""

    def submit(name: str, command: str) -> tuple[Path, str]:
        work = tmp_path / name
        work.mkdir()
        (work / ".command.sh").write_text(command)
        (work / ".command.run").write_text(NEXTFLOW.format(work=work))
        said = slurm("sh", "-c", f"cd {work} && sbatch .command.run")
        found = [re.search(r"Submitted batch job (\d+)", line) for line in said.splitlines()]
        return work, next(match[1] for match in found if match)

    def asked() -> dict[str, str]:
        me = ("-p", "iris", "-u", getpass.getuser())
        lines = slurm("squeue", "--noheader", "-o", "%i %t", "-t", "all", *me).splitlines()
        return dict(re.split(r"\s+", line) for line in lines)

    good, first = submit("a1", "until [ -e ../go ]; do sleep 0.02; done; echo counted")
    long, second = submit("b2", "exec sleep 1000")
    bad, third = submit("c3", "exit 7")
    for work in (good, long, bad):
        until((work / ".command.begin").exists, "each has begun")
    assert {first: "R", second: "R"}.items() <= asked().items()
    (tmp_path / "go").touch()
    slurm("scancel", second)
    codes = {good: "0", long: "143", bad: "7"}
    for work, code in codes.items():
        file = work / ".exitcode"
        until(lambda file=file: file.exists() and file.read_text(), "it has ended")
        assert file.read_text() == code
    assert (good / ".command.log").read_text() == "counted\n"
    until(lambda: not asked().keys() & {first, second, third}, "none is left", look_s=LOOK_S)
    said = slurm("scancel", first, second, code=0)
    assert said == ""


def test_a_script_may_resubmit_itself_more_than_sixteen_times(slurm: Commands, tmp_path: Path):
    """Each link fails, and the next one runs anyhow."""
    lines = (
        "#SBATCH -o out --open-mode=append",
        'echo "$1"',
        '[ "$1" = 18 ] || sbatch --parsable -d afterany:"$SLURM_JOB_ID" job.sh $(($1 + 1)) >>numbers',
        "exit 1",
    )
    slurm("sbatch", script(tmp_path, *lines), "1")
    out, words = tmp_path / "out", [str(number) for number in range(1, 19)]
    until(lambda: out.exists() and out.read_text().split()[-1:] == ["18"], "18 links", WITHIN_S)
    assert out.read_text().split() == words
    numbers = (tmp_path / "numbers").read_text().split()
    until(lambda: state(slurm, numbers[-1]) == "FAILED", "the last has ended", look_s=LOOK_S)


def test_a_job_that_a_job_submitted_is_seen_and_cancelled_in_it(slurm: Commands, tmp_path: Path):
    lines = (
        "#SBATCH -o out",
        "number=$(sbatch --parsable --hold --wrap true)",
        'squeue -h -o %t -j "$number"',
        'scancel "$number"',
        'sacct -n -P -o State,User -j "$number"',
    )
    slurm("sbatch", "--wait", script(tmp_path, *lines))
    user = slurm("sacct", "-n", "-P", "-o", "User").splitlines()[0]
    assert (tmp_path / "out").read_text().split() == ["PD", f"CANCELLED|{user}"]


def test_a_script_on_several_hosts_starts_steps_on_all_of_them(slurm: Commands, tmp_path: Path):
    """As that of torchrun: the first host of the list is where all others meet."""
    (tmp_path / "rank.py").write_text(RANK)
    lines = (
        "#SBATCH --nodes=2 --ntasks-per-node=1 -o out",
        'hosts=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))',
        "export MASTER_ADDR=${hosts[0]} MEETING=$PWD/port",
        "echo ${#hosts[@]} of $SLURM_NNODES, $SLURM_NTASKS tasks",
        "srun -o rank-%t python3 rank.py",
        "srun sh -c 'exit $((SLURM_PROCID * 5))'",
    )
    number = slurm("sbatch", "--parsable", "--wait", script(tmp_path, *lines), code=5)
    assert (tmp_path / "out").read_text().splitlines()[0] == "2 of 2, 2 tasks"
    said = [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)]
    assert said == ["0/2 node 0 local 0 sum 1\n", "1/2 node 1 local 0 sum 1\n"]
    fields = slurm("sacct", "-n", "-P", "-o", "State,ExitCode,NNodes", "-j", number)
    assert fields == "FAILED|5:0|2"
    heard = script(
        tmp_path,
        "#SBATCH --nodes=2 --time=1 --signal=USR1@57",
        """srun sh -c 'trap "echo > heard-$SLURM_PROCID; exit 0" USR1; sleep 60 & wait'""",
    )
    slurm("sbatch", "--wait", heard)
    assert [(tmp_path / f"heard-{rank}").exists() for rank in (0, 1)] == [True, True]
    done = slurm("sbatch", "--parsable", "--wait", "-N", "2", "--wrap", "srun true")
    assert state(slurm, done) == "COMPLETED"


SAVES = """
import os, pathlib, signal, sys, time

def save(*_):
    pathlib.Path(f"heard-{rank}").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    pathlib.Path(f"saved-{rank}").touch()
    sys.exit()

rank = os.environ["SLURM_PROCID"]
signal.signal(signal.SIGTERM, save)
pathlib.Path(f"on-{rank}").touch()
while True:
    signal.pause()
"""


@pytest.mark.parametrize("wrapper", ["", "sh -c '\"$@\"; true' sh "], ids=["alone", "in a shell"])
def test_steps_on_other_hosts_have_the_grace_of_their_job(
    slurm: Commands, tmp_path: Path, wrapper: str
):
    """A shell around a program ends at once, and the program goes on."""

    def all_are(what: str) -> bool:
        return len(list(tmp_path.glob(f"{what}-*"))) == 2

    (tmp_path / "saves.py").write_text(SAVES)
    lines = ("#SBATCH --nodes=2", f"srun {wrapper}python3 saves.py")
    number = slurm("sbatch", "--parsable", script(tmp_path, *lines))
    until(lambda: all_are("on"), "both run", WITHIN_S)
    slurm("scancel", number)
    until(lambda: all_are("heard"), "both are told to end", WITHIN_S)
    (tmp_path / "go").touch()
    until(lambda: all_are("saved"), "both have written their checkpoints", WITHIN_S)
    assert state(slurm, number) == "CANCELLED"


def test_a_step_that_is_told_to_end_ends_on_all_hosts(slurm: Commands, tmp_path: Path):
    """As by `timeout`; the script goes on, and its job succeeds."""
    (tmp_path / "saves.py").write_text(SAVES)
    (tmp_path / "go").touch()
    lines = (
        "#SBATCH --nodes=2",
        "srun python3 saves.py &",
        "until [ -e on-0 ] && [ -e on-1 ]; do sleep 0.02; done",
        "kill -TERM $!; wait",
    )
    slurm("sbatch", "--wait", script(tmp_path, *lines))
    assert {file.name for file in tmp_path.glob("saved-*")} == {"saved-0", "saved-1"}


def test_a_script_is_requeued_before_its_time_limit(slurm: Commands, tmp_path: Path):
    """The time limit is a minute, and the signal comes after twenty seconds."""
    lines = (
        "#SBATCH --time=1 --signal=B:USR1@40 --open-mode=append -o log",
        "trap 'echo noticed; scontrol requeue \"$SLURM_JOB_ID\"; exit 1' USR1",
        'if [ -n "$SLURM_RESTART_COUNT" ]; then echo again "$SLURM_RESTART_COUNT"; exit; fi',
        "while :; do sleep 0.1; done",
    )
    slurm("sbatch", "--wait", script(tmp_path, *lines))
    assert (tmp_path / "log").read_text() == "noticed\nagain 1\n"


SUBMITIT = """
import subprocess, sys, time
from pathlib import Path
import submitit

class Training:
    steps = 0

    def __call__(self):
        if self.steps:
            return f"went on from {self.steps}"
        while True:
            time.sleep(0.05)
            self.steps += 1
            Path("began").touch()

    def checkpoint(self):
        return submitit.helpers.DelayedSubmission(self)

def add(a, b):
    print("adding", a, b)
    return a + b

def until(condition):
    while not condition():
        time.sleep(0.5)

def state(job):
    return job.get_info(mode="force").get("State")

executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
executor.update_parameters(timeout_min=30, slurm_array_parallelism=2, slurm_job_name="adds")
jobs = executor.map_array(add, [1, 2, 3], [10, 20, 30])
print([job.result() for job in jobs])
until(lambda: state(jobs[2]) == "COMPLETED")
print("adding 3 30" in jobs[2].stdout(), [job.job_id.partition("_")[2] for job in jobs])

training = executor.submit(Training())
until(Path("began").exists)
training._interrupt(timeout=True)
print(training.result().startswith("went on from "))

failing = executor.submit(add, 1, "b")
print("TypeError" in str(failing.exception()))

Path("began").unlink()
endless = executor.submit(Training())
until(Path("began").exists)
endless.cancel()
until(lambda: state(endless) == "CANCELLED")
"""


@pytest.mark.needs("submitit")
def test_submitit_submits_maps_requeues_and_cancels(slurm: Commands):
    assert slurm(sys.executable, "-c", SUBMITIT).splitlines() == [
        "[11, 22, 33]",
        "True ['0', '1', '2']",
        "True",
        "True",
    ]


ON_TWO_HOSTS = """
import os
import submitit

def rank():
    here = submitit.JobEnvironment()
    return here.global_rank, here.num_nodes, here.node, len(here.hostnames)

executor = submitit.AutoExecutor(folder="logs/%j", cluster="slurm")
executor.update_parameters(timeout_min=30, nodes=2, tasks_per_node=1)
print(executor.submit(rank).results())
"""


@pytest.mark.needs("submitit")
def test_submitit_runs_a_function_on_two_hosts(slurm: Commands):
    assert slurm(sys.executable, "-c", ON_TWO_HOSTS) == "[(0, 2, 0, 2), (1, 2, 1, 2)]"


SWEEP = """
import hydra
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path=".", config_name="sweep")
def main(config: DictConfig) -> float:
    with open("result", "w") as file:
        file.write(f"{config.x} {config.y}")
    return config.x

main()
"""


@pytest.mark.soak
@pytest.mark.needs("Hydra")
def test_hydra_sweeps_with_its_submitit_launcher(slurm: Commands, tmp_path: Path):
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "sweep.yaml").write_text("x: 0\ny: 0\n")
    words = (
        "hydra/launcher=submitit_slurm",
        "hydra.job.chdir=true",
        "x=1,2,3",
        "y=4,5",
        "hydra.sweep.dir=runs",
    )
    limits = ("hydra.launcher.timeout_min=30", "hydra.launcher.mem_gb=1")
    slurm(sys.executable, "sweep.py", "--multirun", *words, *limits)
    found = sorted(file.read_text() for file in (tmp_path / "runs").glob("*/result"))
    assert found == [f"{x} {y}" for x in (1, 2, 3) for y in (4, 5)]


DASK = """
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

options = {"cores": 1, "memory": "200MB", "processes": 1, "walltime": "00:30:00", "log_directory": "logs"}
options |= {"interface": "lo", "scheduler_options": {"dashboard": False}}
with SLURMCluster(**options) as cluster, Client(cluster) as client:
    cluster.scale(2)
    client.wait_for_workers(2, timeout=100)
    print(client.gather(client.map(lambda x: x * x, range(5))))
    cluster.scale(0)
    cluster.adapt(minimum=0, maximum=1)
    print(client.submit(lambda x: x + 1, 4, pure=False).result(timeout=100))
"""


@pytest.mark.soak
@pytest.mark.needs("dask_jobqueue")
def test_dask_jobqueue_has_a_static_and_an_adaptive_cluster(slurm: Commands):
    assert slurm(sys.executable, "-W", "ignore", "-c", DASK).splitlines() == [
        "[0, 1, 4, 9, 16]",
        "5",
    ]
    until(
        lambda: slurm("squeue", "-h", "-n", "dask-worker") == "",
        "its workers have ended",
        look_s=LOOK_S,
    )


PARSL = """
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider

@parsl.python_app
def square(x):
    return x * x

if __name__ == "__main__":
    blocks = {"init_blocks": 1, "max_blocks": 1, "exclusive": False, "cores_per_node": 1, "launcher": SrunLauncher()}
    options = {"address": "127.0.0.1", "max_workers_per_node": 1, "encrypted": False}
    executor = HighThroughputExecutor(provider=SlurmProvider(**blocks), **options)
    with parsl.load(Config(executors=[executor], usage_tracking=0)):
        print([future.result(timeout=100) for future in [square(x) for x in range(4)]])
"""


@pytest.mark.soak
@pytest.mark.needs("parsl")
def test_parsl_runs_apps_on_a_block_of_slurm(slurm: Commands, tmp_path: Path):
    (tmp_path / "apps.py").write_text(PARSL)
    assert slurm(sys.executable, "apps.py") == "[0, 1, 4, 9]"
    until(
        lambda: "parsl" not in slurm("squeue", "-h", "-o", "%j"),
        "its block has ended",
        look_s=LOOK_S,
    )


SNAKEFILE = """
rule all:
    input: "a.txt", "b.txt"
rule one:
    output: "{name}.txt"
    resources: runtime=5, mem_mb=1500, slurm_account="lab", slurm_partition="iris"
    shell: "echo $SLURM_JOB_ID > {output}"
"""


@pytest.mark.soak
@pytest.mark.needs("snakemake")
def test_snakemake_runs_rules_by_its_plugin_for_slurm(slurm: Commands, tmp_path: Path):
    """Both packages, `snakemake` and `snakemake-executor-plugin-slurm`."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    options = ["--executor", "slurm", "-j", "2", "--slurm-init-seconds-before-status-checks", "3"]
    slurm(sys.executable, "-m", "snakemake", *options)
    numbers = {(tmp_path / f"{name}.txt").read_text().strip() for name in "ab"}
    fields = slurm("sacct", "-n", "-P", "-o", "JobIDRaw,State,Account").splitlines()
    assert {line for line in fields if "lab" in line} == {f"{n}|COMPLETED|lab" for n in numbers}
