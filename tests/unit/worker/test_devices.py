"""Which devices an attempt gets, and what it is told of them; how they are found on a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.host import accelerators
from iris_worker.host.devices import Accelerators, Devices, share_of


def ref(number: int) -> AttemptRef:
    return AttemptRef(number, 0, 0)


def devices(kind: str, total: int) -> Devices:
    return Devices(kind, total, Accelerators())


def play(kind: str, total: int, story: str) -> list[str]:
    """What attempts get: ``2`` asks for two devices as the next attempt, ``-1`` ends attempt 1
    (from 1 on).
    """
    here, got, number = devices(kind, total), list[str](), 0
    for word in story.split():
        if int(word) < 0:
            here.free(ref(-int(word)))
            continue
        number += 1
        try:
            got.append(",".join(map(str, here.assign(ref(number), int(word)))))
        except OSError:
            got.append("!")
    return got


@pytest.mark.parametrize(
    ("kind", "total", "story", "got"),
    [
        ("gpu", 8, "2 1 4", ["0,1", "2", "3,4,5,6"]),
        (
            "gpu",
            4,
            "1 1 1 -2 2",
            ["0", "1", "2", "1,3"],
        ),  # what has ended is free; GPUs need not be neighbours
        ("gpu", 2, "2 1 -1 1", ["0,1", "!", "0"]),
        ("gpu", 2, "0 2", ["", "0,1"]),  # a task without devices holds none
        ("tpu", 4, "4 -1 1 2 1", ["0,1,2,3", "0", "2,3", "1"]),
        (
            "tpu",
            8,
            "1 4 1 2",
            ["0", "4,5,6,7", "1", "2,3"],
        ),  # small parts share a block, so that a large one stays whole
        ("tpu", 4, "1 1 1 1 -1 -3 2", ["0", "1", "2", "3", "!"]),  # 0 and 2 are no neighbours
        ("tpu", 4, "1 1 -1 2 -2 2", ["0", "1", "2,3", "0,1"]),
        ("", 4, "3 2", ["0,1,2", "!"]),
    ],
)
def test_devices_are_given_to_one_attempt_at_a_time(
    kind: str, total: int, story: str, got: list[str]
):
    assert play(kind, total, story) == got


def test_a_refusal_says_what_is_free():
    here = devices("tpu", 4)
    for number in range(4):
        here.assign(ref(number), 1)
    here.free(ref(0))
    here.free(ref(2))
    with pytest.raises(OSError, match=r"2 of 4 devices \(tpu\) asked for; free: 0, 2"):
        here.assign(ref(9), 2)


def test_an_adopted_attempt_keeps_its_devices():
    here = devices("gpu", 4)
    here.hold(ref(1), (0, 2))
    assert here.assign(ref(2), 2) == (1, 3)


@pytest.mark.parametrize(
    ("kind", "total", "held", "variables"),
    [
        ("gpu", 4, (1, 3), {"CUDA_VISIBLE_DEVICES": "1,3", "NVIDIA_VISIBLE_DEVICES": "1,3"}),
        ("gpu", 4, (), {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}),
        ("tpu", 4, (0, 1, 2, 3), {}),
        ("tpu", 4, (), {"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU"}),
        (
            *("tpu", 8, (4, 5, 6, 7)),
            {
                "TPU_VISIBLE_CHIPS": "4,5,6,7",
                "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1",
                "TPU_PROCESS_BOUNDS": "1,1,1",
                "TPU_MESH_CONTROLLER_ADDRESS": "localhost:8480",
                "TPU_MESH_CONTROLLER_PORT": "8480",
            },
        ),
        ("gpu", 0, (), {}),
        ("fpga", 2, (1,), {}),
    ],
)
def test_a_task_is_told_its_devices_or_that_it_has_none(
    kind: str, total: int, held: tuple[int, ...], variables: dict[str, str]
):
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if kind == "gpu" and total else {}
    assert devices(kind, total).variables(held, hidden=False) == order | variables


def test_cuda_counts_from_0_where_a_task_sees_only_its_own_gpus():
    variables = devices("gpu", 4).variables((1, 3), hidden=True)
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["NVIDIA_VISIBLE_DEVICES"]) == (
        "0,1",
        "1,3",
    )


def test_the_parts_of_a_host_never_share_a_port_of_libtpu():
    here = devices("tpu", 8)
    ports = {
        here.variables(here.assign(ref(number), 1), hidden=True)["TPU_MESH_CONTROLLER_PORT"]
        for number in range(8)
    }
    assert len(ports) == 8


def driver(root: Path, *gpus: tuple[str, int, str]) -> None:
    """The files of NVIDIA's driver for GPUs: PCI address, minor number, model."""
    for address, minor, model in gpus:
        where = root / "proc/driver/nvidia/gpus" / address
        where.mkdir(parents=True)
        (where / "information").write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 11\nDevice Minor: \t {minor}\n"
        )


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def test_gpus_are_counted_by_address_and_have_files_of_their_minors(tmp_path: Path):
    driver(
        tmp_path,
        ("0000:b1:00.0", 0, "NVIDIA H100 80GB HBM3"),
        ("0000:3b:00.0", 1, "NVIDIA H100 80GB HBM3"),
    )
    touch(
        tmp_path,
        "dev/nvidia0",
        "dev/nvidia1",
        "dev/nvidiactl",
        "dev/nvidia-uvm",
        "dev/nvidia-caps/nvidia-cap1",
    )
    found = accelerators.find(str(tmp_path))
    here = Devices("gpu", 2, found)
    assert (found.kind, found.variant, found.files) == (
        "gpu",
        "H100",
        ("/dev/nvidia1", "/dev/nvidia0"),
    )
    assert here.files((0,)) == (
        "/dev/nvidia1",
        "/dev/nvidia-caps",
        "/dev/nvidia-uvm",
        "/dev/nvidiactl",
    )
    assert here.files(()) == ()


def test_gpus_are_found_by_their_files_where_the_driver_list_is_hidden(tmp_path: Path):
    touch(tmp_path, "dev/nvidia10", "dev/nvidia2", "dev/nvidiactl")
    found = accelerators.find(str(tmp_path))
    assert found == Accelerators("gpu", ("/dev/nvidia2", "/dev/nvidia10"), ("/dev/nvidiactl",))


@pytest.mark.parametrize(
    ("files", "found", "shared"),
    [
        (
            ("dev/accel0", "dev/accel1", "dev/accel10"),
            ("/dev/accel0", "/dev/accel1", "/dev/accel10"),
            (),
        ),
        (
            ("dev/vfio/0", "dev/vfio/1", "dev/vfio/vfio"),
            ("/dev/vfio/0", "/dev/vfio/1"),
            ("/dev/vfio/vfio",),
        ),
    ],
)
def test_tpu_chips_are_found_by_their_files(
    tmp_path: Path, files: tuple[str, ...], found: tuple[str, ...], shared: tuple[str, ...]
):
    touch(tmp_path, *files)
    assert accelerators.find(str(tmp_path)) == Accelerators("tpu", found, shared)


def test_a_host_without_accelerators_has_none_and_simulated_ones_no_files(tmp_path: Path):
    assert accelerators.find(str(tmp_path)) == Accelerators()
    assert devices("tpu", 4).files((0, 1)) == ()


@pytest.mark.parametrize(
    ("says", "variant"),
    [("Tesla V100-SXM2-16GB", "V100"), ("Orin (nvgpu)", "Orin (nvgpu)"), ("", "")],
)
def test_the_model_of_a_gpu_is_its_short_name(tmp_path: Path, says: str, variant: str):
    driver(tmp_path, ("0000:3b:00.0", 0, says))
    assert accelerators.find(str(tmp_path)).variant == variant


@pytest.mark.parametrize(
    ("script", "memory"),
    [("echo 81559; echo 81559", 80), ("echo '[N/A]'", 0), ("exit 9", 0), ("", 0)],
)
def test_the_memory_of_gpus_is_what_nvidia_smi_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, memory: int
):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert accelerators.gpu_memory_gib() == memory


def gpus(count: int) -> Accelerators:
    files = tuple(f"/dev/nvidia{number}" for number in range(count))
    return Accelerators("gpu", files, ("/dev/nvidiactl",), "H100")


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [(8, 2, [4, 4]), (3, 2, [2, 1]), (1, 2, [1, 0]), (5, 3, [2, 2, 1]), (0, 2, [0, 0])],
)
def test_workers_of_one_machine_divide_its_gpus(count: int, parts: int, sizes: list[int]) -> None:
    machine = gpus(count)
    shares = [share_of(machine, f"{number}/{parts}") for number in range(1, parts + 1)]

    assert [len(share.files) for share in shares] == sizes
    assert tuple(file for share in shares for file in share.files) == machine.files


def test_a_task_is_told_the_numbers_that_its_gpus_have_on_the_machine() -> None:
    second = Devices("gpu", 2, share_of(gpus(4), "2/2"))
    held = second.assign(AttemptRef(1, 0, 0), 1)

    assert second.own_files(held) == ("/dev/nvidia2",)
    assert second.variables(held, hidden=False)["CUDA_VISIBLE_DEVICES"] == "2"
    assert second.variables(held, hidden=True)["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize("share", ["none", "2/2"])
def test_a_host_without_its_machines_gpus_hides_them_from_tasks(share: str) -> None:
    found = share_of(gpus(1), share)

    assert found.files == ()
    assert Devices("", 0, found).variables((), hidden=False)["CUDA_VISIBLE_DEVICES"] == ""


def test_the_chips_of_a_tpu_are_not_divided() -> None:
    chips = Accelerators("tpu", ("/dev/accel0", "/dev/accel1"))

    assert [share_of(chips, share).files for share in ("1/2", "2/2", "all")] == [
        chips.files,
        (),
        chips.files,
    ]
