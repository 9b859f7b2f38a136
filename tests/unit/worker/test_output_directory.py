"""What is packed of an output directory, whatever its task has put there."""

from __future__ import annotations

import io
import os
import socket
import stat
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_worker.attempt.artifacts.directory import (
    PIECE_BYTES,
    NoDirectory,
    NotStored,
    OutputDirectory,
    make_directory,
)
from iris_worker.limits import ArtifactLimits
from tests.support.descriptors import open_descriptors


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return Path(make_directory(str(tmp_path), "results/final"))


def opened(tmp_path: Path, limits: ArtifactLimits | None = None) -> OutputDirectory:
    return OutputDirectory(str(tmp_path), "results/final", limits or ArtifactLimits())


def packed(directory: OutputDirectory) -> dict[str, tarfile.TarInfo]:
    """The entries by name."""
    pieces = list(directory.pack())
    assert all(len(piece) < 2 * PIECE_BYTES for piece in pieces)
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:gz") as archive:
        return {member.name: member for member in archive}


def kept(tmp_path: Path) -> tuple[list[str], str]:
    """The names of what is packed, and what is said of the rest."""
    directory = opened(tmp_path)
    directory.measure()
    names = list(packed(directory))
    directory.close()
    return names, str(directory.left_out)


def test_files_directories_and_links_are_packed_with_modes_and_times(tmp_path: Path, out: Path):
    (out / "sub" / "empty").mkdir(parents=True)
    (out / "run.sh").write_text("#!/bin/sh\n")
    (out / "run.sh").chmod(0o4750)
    os.utime(out / "run.sh", (1, 1_000_000_000))
    (out / "sub" / "latest").symlink_to("../run.sh")
    directory = opened(tmp_path)
    assert directory.measure() == 10
    found = packed(directory)
    assert list(found) == ["run.sh", "sub", "sub/empty", "sub/latest"]
    script = found["run.sh"]
    assert (script.mode, script.mtime, script.size, script.uid, script.uname) == (
        0o750,
        1_000_000_000,
        10,
        0,
        "",
    )
    assert (found["sub/empty"].isdir(), found["sub/latest"].linkname) == (True, "../run.sh")
    assert (directory.files, str(directory.left_out)) == (2, "")


def test_what_is_larger_than_a_piece_comes_in_pieces(tmp_path: Path, out: Path):
    (out / "noise").write_bytes(os.urandom(5 * PIECE_BYTES))
    pieces = list(opened(tmp_path).pack())
    assert len(pieces) >= 4
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:gz") as archive:
        assert archive.extractfile("noise").read() == (out / "noise").read_bytes()


def test_names_that_are_no_text_and_long_ones_come_through(tmp_path: Path, out: Path):
    odd = os.fsencode(out) + b"/\xff\n\x1b[31m"
    os.close(os.open(odd, os.O_CREAT))
    long = "/".join(["d" * 120] * 3)
    (out / long).mkdir(parents=True)
    names, _ = kept(tmp_path)
    assert os.fsdecode(b"\xff\n\x1b[31m") in names
    assert long in names


def a_link_out(out: Path) -> None:
    (out / "x").symlink_to("../../secret")


def an_absolute_link(out: Path) -> None:
    (out / "x").symlink_to("/etc/passwd")


def a_pipe(out: Path) -> None:
    os.mkfifo(out / "x")


def a_socket(out: Path) -> None:
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(out)
        made.bind("x")
        os.chdir(here)


def a_directory_too_deep(out: Path) -> None:
    (out / "/".join("x" * 70)).mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (a_link_out, "a link out of the directory"),
        (an_absolute_link, "a link out of the directory"),
        (a_pipe, "neither a file, a directory nor a link"),
        (a_socket, "neither a file, a directory nor a link"),
        (a_directory_too_deep, "too deep"),
    ],
)
def test_what_is_left_out_is_said(
    tmp_path: Path, out: Path, make: Callable[[Path], None], said: str
):
    make(out)
    (out / "y").touch()
    names, note = kept(tmp_path)
    assert "y" in names
    assert note.startswith("left out: x")
    assert said in note


@pytest.mark.needs("root")
def test_a_worker_of_root_reads_no_file_of_another_user(tmp_path: Path, out: Path):
    secret = tmp_path / "secret"
    secret.write_text("of root")
    for path in (tmp_path, tmp_path / "results", out):
        os.chown(path, 1000, 1000)
    os.link(secret, out / "stolen")
    (out / "mine").touch()
    os.chown(out / "mine", 1000, 1000)
    os.mkdir(out / "theirs")
    assert kept(tmp_path)[0] == ["mine"]
    assert "stolen (it belongs to another user)" in kept(tmp_path)[1]


@pytest.mark.parametrize("place", ["results", "results/final"])
def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path, out: Path, place: str):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "final").mkdir(parents=True)
    os.rename(tmp_path / place, tmp_path / "away")
    (tmp_path / place).symlink_to(elsewhere)
    with pytest.raises(NotStored, match="results/final is no longer a directory"):
        opened(tmp_path)
    with pytest.raises(
        NoDirectory, match=r"--output results/final: .* is not a directory in the bundle"
    ):
        make_directory(str(tmp_path), "results/final")


def test_a_file_that_becomes_a_link_between_two_looks_is_left_out(tmp_path: Path, out: Path):
    (tmp_path / "secret").write_text("secret")
    for name in ("a", "b"):
        (out / name).write_bytes(os.urandom(2 * PIECE_BYTES))
    directory = opened(tmp_path)
    pieces = directory.pack()
    whole = next(pieces)
    entries = directory._entry

    def swapped(parent: int, below: str, name: str):
        found = entries(parent, below, name)
        if name == "b":
            (out / "b").unlink()
            (out / "b").symlink_to(tmp_path / "secret")
        return found

    directory._entry = swapped
    whole += b"".join(pieces)
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:gz") as archive:
        assert archive.getnames() == ["a"]
    assert "left out: b" in str(directory.left_out)


@pytest.mark.parametrize("size", [99, 200])
def test_a_growing_file_is_packed_as_it_was_and_a_shrinking_one_fails(
    tmp_path: Path, out: Path, size: int
):
    (out / "a").write_bytes(os.urandom(2 * PIECE_BYTES))
    (out / "b").write_bytes(bytes(100))
    directory = opened(tmp_path)
    entries = directory._entry

    def changed(parent: int, below: str, name: str):
        found = entries(parent, below, name)
        if name == "b":
            os.truncate(out / "b", size)
        return found

    directory._entry = changed
    if size > 100:
        assert packed(directory)["b"].size == 100
    else:
        with pytest.raises(NotStored, match="b changed while it was read"):
            packed(directory)


def test_a_directory_that_is_too_large_is_refused_before_any_of_it_is_read(
    tmp_path: Path, out: Path
):
    with (out / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotStored, match="more than 1GiB, the limit of this worker"):
        opened(tmp_path).measure()
    (out / "sparse").unlink()
    for number in range(4):
        (out / str(number)).touch()
    with pytest.raises(NotStored, match="more than 3 entries"):
        opened(tmp_path, ArtifactLimits(entries=3)).measure()
    assert opened(tmp_path, ArtifactLimits(bytes=0, entries=4)).measure() == 0


def test_names_of_directories_inside_each_other_are_counted_together(tmp_path: Path, out: Path):
    """The names on the way to the deepest one are in memory at a time, so they are limited in
    all.
    """
    below = out
    for _ in range(20):
        for number in range(1, 10):
            (below / f"{number}{'x' * 200}").touch()
        below = below / "0"  # the first in the order
        below.mkdir()
    directory = opened(tmp_path, ArtifactLimits(entries=50))
    tracemalloc.start()
    with pytest.raises(NotStored, match="more than 50 entries"):
        directory.measure()
    assert tracemalloc.get_traced_memory()[1] < 40_000
    tracemalloc.stop()


def test_what_is_left_out_counts_as_entries_and_hides_nothing(tmp_path: Path, out: Path):
    for number in range(4):
        os.mkfifo(out / str(number))
    (out / "model").touch()
    with pytest.raises(NotStored, match="more than 3 entries"):
        opened(tmp_path, ArtifactLimits(entries=3)).measure()


def test_a_directory_of_too_many_entries_holds_no_descriptor(tmp_path: Path, out: Path):
    for number in range(4):
        (out / str(number)).touch()
    directory = opened(tmp_path, ArtifactLimits(entries=3))
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(NotStored):
            directory.measure()
    assert open_descriptors() == before


def test_it_belongs_to_the_attempts_owner_and_holds_no_descriptor(tmp_path: Path):
    before = open_descriptors()
    made = make_directory(str(tmp_path), "a/b")
    assert make_directory(str(tmp_path), "a/b") == made
    assert os.stat(made).st_uid == os.stat(tmp_path).st_uid
    assert stat.S_IMODE(os.stat(made).st_mode) & 0o700 == 0o700
    (Path(made) / "x" / "y").mkdir(parents=True)
    directory = OutputDirectory(str(tmp_path), "a/b", ArtifactLimits())
    for pieces in (directory.pack(), directory.pack()):
        next(pieces)
        pieces.close()
    directory.close()
    assert open_descriptors() == before


def test_what_is_said_of_a_name_that_is_no_text_can_be_sent(tmp_path: Path, out: Path):
    odd = os.fsdecode(b"\xff")
    os.mkfifo(out / odd)
    assert (
        kept(tmp_path)[1].encode()
        == "left out: \ufffd (neither a file, a directory nor a link)".encode()
    )
    os.unlink(out / odd)
    (out / odd).write_bytes(bytes(100))
    directory = opened(tmp_path)
    entries = directory._entry

    def shorter(parent: int, below: str, name: str):
        found = entries(parent, below, name)
        os.truncate(out / odd, 1)
        return found

    directory._entry = shorter
    with pytest.raises(NotStored) as refused:
        packed(directory)
    assert str(refused.value).encode() == "\ufffd changed while it was read".encode()
