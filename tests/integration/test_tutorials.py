"""The quickstart and the tutorials as scripts: their commands run as they stand there, and print
what is stated.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cluster import IRIS, Cluster, environment
from tests.support.frameworks import FRAMEWORKS
from tests.support.guide import blocks
from tests.support.worker import closed_above

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LIMIT_S = 120


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory for a reader's files, with the examples in it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def path() -> str:
    """That of a reader who has activated the environment, with the programs that the test names."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def follow(page: str, where: Path, environ: Mapping[str, str], title: str = "") -> list[str]:
    """What each `sh` block with that title prints. Fails when one of its commands does."""
    said = []
    for block in blocks(DOCS / page):
        if (block.language, block.title) == ("sh", title):
            done = subprocess.run(
                ["sh", "-ec", block.script],
                cwd=where,
                env={**environ, "PATH": path()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == 0, f"{block.script}\n{done.stdout}"
            said.append(done.stdout)
    return said


@pytest.mark.bare
def test_the_quickstart_goes_from_nothing_to_jobs_and_back(checkout: Path):
    own = {
        "XDG_STATE_HOME": str(checkout / "state"),
        "XDG_CONFIG_HOME": str(checkout),
        "HOME": str(checkout),
    }
    environ = {**environment(), **own, "IRIS_CLUSTER_HTTP": "127.0.0.1:0"}
    try:
        up, run, script, look, cancel, python, _ = follow("quickstart.md", checkout, environ)
    finally:
        subprocess.run(
            [sys.executable, "-m", "iris.cli", "down"],
            env=environ,
            capture_output=True,
            check=False,
        )

    # a machine without control groups for this user is told so
    lines = [line for line in up.splitlines() if not line.startswith("warning: --memory ")]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", "\n".join(lines))
    assert sorted(re.findall(r"hello from task \d", run)) == [
        f"hello from task {index}" for index in range(3)
    ]
    assert "hello from attempt 1" in script
    assert re.search(r"hello\s.*succeeded", look)
    assert "/long" in cancel
    assert python.endswith("[0, 1, 4, 9, 16]\n")
    assert not (checkout / "state" / "iris" / "cluster.json").exists()


@pytest.mark.bare
def test_the_five_minutes_of_the_readme_are_as_it_says(tmp_path: Path):
    """In a checkout that is the reader's own, but for the environment, which is there already."""
    for name in ("Makefile", "requirements", "pyproject.toml", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    text = (ROOT / "README.md").read_text()
    section = text[text.index("## Five minutes") : text.index("## How it works")]
    shell, python = re.findall(r"^```(?:python)?\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("print('trained')")
    (mine / "program.py").write_text(f"{python}\n    print(job.refresh().state)\n")
    commands = re.sub(r"^\$ ", "", shell, flags=re.MULTILINE)
    assert commands.count("iris down") == 1
    environ = {
        **environment(),
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path),
        "IRIS_CLUSTER_HTTP": "127.0.0.1:0",
    }
    try:
        done = subprocess.run(
            ["sh", "-ec", commands.replace("iris down", "(cd mine; python program.py)\niris down")],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * LIMIT_S,
            check=False,
        )
    finally:
        subprocess.run([*IRIS, "down"], env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"hello from \d", done.stdout)) == [f"hello from {n}" for n in "012"]
    assert re.search(r"/hello\s.*succeeded", done.stdout, re.DOTALL)
    assert "\nsucceeded\n" in done.stdout
    assert not (tmp_path / "state" / "iris" / "cluster.json").exists()


@pytest.mark.bare
def test_a_sweep_finds_its_best_point_and_says_which_failed(cluster: Cluster, checkout: Path):
    sweep, best, failed, search = follow("tutorials/sweep.md", checkout, cluster.environ)

    assert sweep.count(" rate=") == 10
    assert sweep.endswith("exit code 3\n")
    assert best == "9.75e-12 rate=0.3 momentum=0.9\n"
    assert "(3.0, 0.0) diverges" in failed
    assert search.startswith("the best of 12: loss ")


def test_a_nights_work_goes_on_after_it_was_preempted(cluster: Cluster, checkout: Path):
    *_, waiting, urgent, morning = follow("tutorials/a-nights-work.md", checkout, cluster.environ)
    shards, training = (list(cluster.client.job(name).tasks()) for name in ("/shards", "/training"))
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", morning)]

    assert "/shards" in waiting or "/training" in waiting
    assert "step 10 is saved" in urgent
    assert "shards [0, 4, 8, 12, 20], a model of 100 steps\n" in morning
    assert sum(len(task.attempts) for task in shards) == 5
    assert [[attempt.state for attempt in task.attempts] for task in training] == [
        ["preempted", "succeeded"]
    ] * 2
    assert begun.count(0) == 2
    assert all(step >= 10 for step in begun if step)


def test_a_pipeline_runs_its_stages_and_repeats_none_when_it_starts_again(
    cluster: Cluster, checkout: Path
):
    stages, resumed = follow("tutorials/pipelines.md", checkout, cluster.environ)
    attempts = {
        job: [len(task.attempts) for task in cluster.client.job(job).tasks()]
        for job in ("/resumed", "/resumed/prepare")
    }

    assert [word for word in ("prepared", "trained", "tested") if word in stages] == [
        "prepared",
        "trained",
        "tested",
    ]
    assert "test-on-odd" in stages
    assert attempts == {"/resumed": [2], "/resumed/prepare": [1, 1, 1, 1]}
    assert "tested" in resumed


def test_a_gang_computes_together_also_on_a_simulated_slice(cluster: Cluster, checkout: Path):
    hosts, slice_ = follow("tutorials/gang-jax.md", checkout, cluster.environ)
    assert hosts.count("pi = 3.14159265") == 1
    assert slice_.count("pi = 3.14159265") == 1
    assert len(set(re.findall(r"rank \d of 2 on slice-(\d-w\d)", slice_))) == 2


def test_what_a_task_leaves_is_fetched(cluster: Cluster, checkout: Path):
    follow("howto/artifacts.md", checkout, cluster.environ)
    assert (checkout / "report-output" / "result.txt").stat().st_size


def test_a_task_goes_on_after_its_time_limit_from_its_checkpoint(cluster: Cluster, checkout: Path):
    [program] = re.findall(
        r"^```python\n(.*?)^```$",
        (DOCS / "howto/checkpoints.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    (checkout / "count.py").write_text(program)
    [said] = follow("howto/checkpoints.md", checkout, cluster.environ)
    task = cluster.client.task("/count/0")
    first = task.attempts[0]

    assert "begins" in said
    assert said.index("timeout: kept") < said.index("goes on") < said.index("counted to 40")
    assert (task.state, task.failure_count, task.requeue_count) == (
        "succeeded",
        0,
        len(task.attempts) - 1,
    )
    assert (first.exit_code, first.charged_to, [notice.reason for notice in first.notices]) == (
        75,
        "requeue",
        ["timeout"],
    )


def test_a_directory_is_sent_with_its_script(cluster: Cluster, checkout: Path):
    [said] = follow("howto/packages.md", checkout, cluster.environ)
    assert "rate=0.003 momentum=0.0" in said


@pytest.mark.soak
@pytest.mark.needs("jax in .venv")
def test_a_gang_trains_with_jax(cluster: Cluster, checkout: Path):
    [said] = follow("tutorials/gang-jax.md", checkout, cluster.environ, "with jax")
    assert "2 processes, 2 devices: weights [1.0, -2.0, 0.5]" in said


@pytest.mark.soak
@pytest.mark.needs("torch in .venv")
def test_a_gang_trains_with_torch(cluster: Cluster, checkout: Path):
    [said] = follow("tutorials/gpus-torch.md", checkout, cluster.environ, "with torch")
    assert "2 processes on cpu: weights [1.0, -2.0, 0.5]" in said
    assert "4 processes on cpu: weights [1.0, -2.0, 0.5]" in said


@pytest.mark.needs("curl")
def test_a_model_is_served_changed_and_scaled(cluster: Cluster, checkout: Path):
    shown, asked, updated, routes, scaled, _ = follow(
        "tutorials/serving.md", checkout, cluster.environ
    )

    assert "ready" in shown
    assert float(re.search(r'"probability": ([\d.]+)', asked)[1]) > 0.5
    assert '"version": ["v2"]' in updated
    assert routes.startswith("model rolls back to revision 1\n")
    assert "model" in scaled


FUNCTIONS_SAY = {
    "The first map": "[0, 1, 4, 9, 16]",
    "More arguments": "[22, 44] [1024, 81]",
    "Failures": "2 0.5\n0 ZeroDivisionError('division by zero')\n4 0.25",
    "Many small calls": "2997",
    "Large results": "5000000",
    "One process for several calls": str(sum(x * x for x in range(200))),
    "Come back to a map": "['A', 'B']",
    "A data frame, piece by piece": "[18. 19. 20. 21.]",
    "Programs that take an executor": "1024 ['A', 'B']",
    "asyncio": "/lengths [1, 2]\n3",
}
"""What the programs of the page print, by their heading."""
WITH_PACKAGES = {
    "A sweep over a pandas frame": ("pandas", "{0: 2, 1: 2}"),
    "A heavy import, once for each host": ("jax", "[3.0, 12.0]"),
}
"""Those that need a package, and what they print."""


def functions_page() -> dict[str, str]:
    """The sections of the page about functions, by their heading."""
    sections = re.split(r"^## (.*)$", (DOCS / "howto/functions.md").read_text(), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, marks=pytest.mark.needs(name))
        for title, (name, _) in WITH_PACKAGES.items()
    ],
)
def test_functions_with_packages_return_what_their_page_says(cluster: Cluster, title: str):
    _, printed = WITH_PACKAGES[title]
    program = re.search(
        r"^```python\n(.*?)^```$", functions_page()[title], re.MULTILINE | re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", program[1].replace("/shared/packages", str(FRAMEWORKS))],
        env={**cluster.environ, "PATH": path(), "PYTHONPATH": str(FRAMEWORKS)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr


def test_functions_return_what_their_page_says(cluster: Cluster, tmp_path: Path):
    said = {}
    for title, text in functions_page().items():
        if title == "scikit-learn and joblib" or title in WITH_PACKAGES:
            continue  # test_joblib.py runs the former, where there is scikit-learn
        for number, program in enumerate(
            re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        ):
            script = tmp_path / f"{number}.py"
            script.write_text(program)
            environ = {**cluster.environ, "PATH": path()}
            done = subprocess.run(
                [sys.executable, script],
                env=environ,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == 0, f"{title}\n{done.stderr}"
            said[title] = done.stdout.strip()

    assert {title: said[title] for title in FUNCTIONS_SAY} == FUNCTIONS_SAY
    assert re.fullmatch(r"(/\S+ True\n?){4}", said["Results as they are done"])


def test_the_page_about_testing_is_a_test_that_passes(tmp_path: Path):
    """Its first two blocks of Python, as the files they are."""
    conftest, test, *_ = (
        block.text for block in blocks(DOCS / "howto/testing.md") if block.language == "python"
    )
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_training.py").write_text(test)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.needs("curl")
def test_a_terminal_and_a_port_of_a_task_are_used_as_their_page_says(
    cluster: Cluster, tmp_path: Path
):
    said = follow("howto/interactive.md", tmp_path, cluster.environ)
    assert "42\r\n" in said[0] or "42\n" in said[0]
    assert "Directory listing" in said[1]
    assert cluster.client.job("shell").state == "succeeded"
    assert cluster.client.job("files").wait(60).state == "killed"


def test_pools_grow_and_shrink_as_their_page_says(checkout: Path):
    for closed in iter(lambda: closed_above(checkout / "iris-cloud"), None):
        closed.chmod(closed.stat().st_mode | 0o001)  # as a reader's home is for users of tasks
    own = {"XDG_STATE_HOME": str(checkout / "state"), "XDG_CONFIG_HOME": str(checkout)}
    environ = {
        **environment(),
        **own,
        "HOME": str(checkout),
        "IRIS_CLUSTER_HTTP": "127.0.0.1:0",
    }
    try:
        said = follow("howto/fleet.md", checkout, environ)
    finally:
        subprocess.run([*IRIS, "down"], env=environ, capture_output=True, check=False)
    up, burst, shrunk, changed, file, priced, removed, made, gone = said
    assert re.search(r"^cpu +ok +0 +0 .* 4 ", up, re.MULTILINE)
    assert sorted(re.findall(r"done by (\d)", burst)) == list("01234567")
    assert re.search(r"^cpu-\d-0 .* cpu +cpu-\d ", burst, re.MULTILINE)
    assert re.search(r"creating +ready +registered", burst)
    assert re.search(r"ready +draining +idle", shrunk)
    assert "cpu would make" in changed
    assert "cpu is set: 0 to 3 slices of process" in file
    assert re.search(r"^cpu +\(idle\)", priced, re.MULTILINE)
    assert re.search(r"^POOL +USER .* COST", priced, re.MULTILINE)
    assert re.search(r"cpu (is removed|goes with its last slice)", removed)
    ran = re.findall(r"^(\d) ran in (\S+)", made, re.MULTILINE)
    assert sorted(index for index, _ in ran) == list("0123")
    assert all(place.startswith(f"{checkout}/iris-cloud/here-") for _, place in ran)
    assert re.search(r"^here-0$", made, re.MULTILINE)
    assert re.search(r"here-\d .* deleting +deleted +not_listed", gone)
    assert "here is removed" in gone
    assert list((checkout / "iris-cloud").iterdir()) == []


def test_a_cluster_is_set_up_for_a_team_as_its_page_says(tmp_path: Path):
    own = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path)}
    environ = {
        **environment(),
        **own,
        "HOME": str(tmp_path),
        "IRIS_CLUSTER_HTTP": "127.0.0.1:0",
    }
    try:
        said = follow("howto/team.md", tmp_path, environ)
    finally:
        subprocess.run([*IRIS, "down"], env=environ, capture_output=True, check=False)
    _, tree, work, limits, guarantees, shares, admin, usage = said
    assert re.search(r"^└─ research +0 of 64 ", tree, re.MULTILINE)
    assert re.search(r"^   ├─ nlp +0 of 1 ", tree, re.MULTILINE)
    assert "in /research/nlp\n" in work
    assert "bob is no member of project /research/nlp; its admins are lin" in work
    assert "exit code 9" in work
    assert re.search(r"/train .*\n", work)
    assert re.search(r"^/research/nlp +\S+ of 1 ", limits, re.MULTILINE)
    assert "projects right below /research would be guaranteed 3 cpu" in guarantees
    assert re.search(r"^guaranteed +cpu 1$", guarantees, re.MULTILINE)
    assert re.search(r"^weight +3$", shares, re.MULTILINE)
    assert re.search(r"^/research +3 +[0-9.]+% ", shares, re.MULTILINE)
    assert "there is no fair share" in shares
    assert "/research/nlp/small is made" in admin
    assert "lin is an admin of /research and sets its members and defaults" in admin
    assert "exit code 9" in admin
    assert re.search(r"^/research/nlp +<?\d", usage, re.MULTILINE)
    assert re.search(r"^ada,", usage, re.MULTILINE) or "ada" in usage
