"""Numbers of jobs, names of files and lists of hosts.
docs/howto/slurm-commands.md#numbers-and-names.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris import JobView
from iris_core.spec.jobs import JobSpec
from iris_slurm.commands.scontrol import hosts_of
from iris_slurm.environment import variables
from iris_slurm.files import expand, prepare_directory
from iris_slurm.numbers import indexes, own_number, read_number, shown_number
from iris_slurm.translate import BatchSettings
from iris_slurm.values import NotHonoured


def job(**fields: Any) -> JobView:
    spec = JobSpec(name="/a", command=("true",), **fields)
    return cast(JobView, SimpleNamespace(id="j12", replicas=spec.replicas, spec=spec))


@pytest.mark.parametrize(
    ("text", "number", "values", "are_indexes"),
    [
        ("12", 12, (), False),
        ("12.batch", 12, (), False),
        ("12_3", 12, (3,), False),
        ("12_[1-3,7]", 12, (1, 2, 3, 7), False),
        (str(own_number(12, 3)), 12, (3,), True),
    ],
)
def test_a_number_is_read(text: str, number: int, values: tuple[int, ...], are_indexes: bool):
    assert read_number(text) == (number, values, are_indexes)


def test_what_is_no_number_is_refused():
    for text in ("train", "", "12_", "-1"):
        with pytest.raises(NotHonoured, match="is not the number of a job"):
            read_number(text)


def test_values_of_an_array_are_found_by_their_index():
    array = job(array="3-9:3", replicas=3)
    assert indexes(array, (9, 3), are_indexes=False) == (2, 0)
    assert indexes(array, (1,), are_indexes=True) == (1,)
    assert [shown_number(array, index) for index in (None, 0, 2)] == ["12", "12_3", "12_9"]
    with pytest.raises(NotHonoured, match="12_4 is not a task of the array 3-9:3"):
        indexes(array, (4,), are_indexes=False)


SETTINGS = BatchSettings(name="train", chdir="/work", user="ada", tasks_per_node=2, cpus_per_task=3)
TASK = {"IRIS_TASK_INDEX": "2", "IRIS_ATTEMPT": "0"}


def test_each_task_of_an_array_has_a_number_of_its_own():
    array = job(array="3-9:3", replicas=3)
    found = variables(SETTINGS, array, TASK)
    assert (found["SLURM_JOB_ID"], found["SLURM_ARRAY_JOB_ID"], found["SLURM_ARRAY_TASK_ID"]) == (
        "120000000002",
        "12",
        "9",
    )
    assert [found[f"SLURM_ARRAY_TASK_{name}"] for name in ("COUNT", "MIN", "MAX", "STEP")] == [
        "3",
        "3",
        "9",
        "3",
    ]
    names = ("%A_%4a", "%j", "%x.%u-%N", "100%%", "%n%t")
    assert [expand(name, {**found, "SLURMD_NODENAME": "n1"}) for name in names] == [
        "12_0009",
        "120000000002",
        "train.ada-n1",
        "100%",
        "00",
    ]


def test_a_job_of_one_task_has_no_variables_of_an_array():
    found = variables(SETTINGS, job(), {**TASK, "IRIS_TASK_INDEX": "0", "IRIS_ATTEMPT": "2"})
    assert (found["SLURM_JOB_ID"], found["SLURM_NTASKS"], found["SLURM_CPUS_ON_NODE"]) == (
        "12",
        "2",
        "6",
    )
    assert found["SLURM_RESTART_COUNT"] == "2"
    assert not [name for name in found if "ARRAY" in name]
    assert expand("%A_%a", found) == "12_4294967294"


def test_a_gang_lists_its_hosts():
    found = variables(
        BatchSettings(name="a", chdir="/", user="ada", nodes=2),
        job(),
        {**TASK, "IRIS_GANG_HOSTS": "n1,n2"},
    )
    assert (found["SLURM_JOB_NODELIST"], found["SLURM_TASKS_PER_NODE"]) == ("n1,n2", "1(x2)")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3,7],m", ["n1", "n2", "n3", "n7", "m"]),
        ("n[08-10]-x", ["n08-x", "n09-x", "n10-x"]),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, hosts: list[str]):
    assert list(hosts_of(text)) == hosts


ENVIRON = {"SLURM_JOB_ID": "12", "SLURM_JOB_NAME": "train"}


def test_a_directory_that_is_made_late_is_waited_for(tmp_path: Path):
    """By whoever submitted the job, once its number is known: submitit with the folder %j."""
    looks = []

    def pause() -> None:
        looks.append(len(looks))
        if len(looks) == 2:
            (tmp_path / "12").mkdir()

    assert prepare_directory(f"{tmp_path}/%j/%j_out", ENVIRON, 5, pause) is None
    assert len(looks) == 2
    assert (tmp_path / "12").is_dir()


@pytest.mark.parametrize("pattern", ["%j/out", "%x/%j/logs/out", "a-%j/%%/out"])
def test_a_directory_of_letters_that_nobody_makes_is_made(tmp_path: Path, pattern: str):
    pattern = f"{tmp_path}/{pattern}"
    directory = Path(expand(pattern, ENVIRON)).parent
    assert prepare_directory(pattern, ENVIRON, 2, lambda: None) == directory
    assert directory.is_dir()


@pytest.mark.parametrize("pattern", ["logs/out", "logs/%j/out"])
def test_a_directory_of_a_plain_name_is_not_made(tmp_path: Path, pattern: str):
    """The host may lack the file system on which it is."""
    assert prepare_directory(f"{tmp_path}/{pattern}", ENVIRON, 2, lambda: None) is None
    assert list(tmp_path.iterdir()) == []
