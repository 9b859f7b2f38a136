"""Unpacking what comes from a task: nothing gets out of the directory, whatever the archive
says.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile

import pytest

from iris.client.files.extraction import extract
from iris_core.admission.archive_paths import InvalidArchive


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", target: str = "", mode: int = 0o644
):
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname, made.mode, made.mtime = (
        kind,
        len(data),
        target,
        mode,
        1_000_000_000,
    )
    return made, data


def packed(*entries, form: str = "w") -> io.BytesIO:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode=form) as archive:
        for made, data in entries:
            archive.addfile(made, io.BytesIO(data))
    into.seek(0)
    return into


def unzipped(archive: io.BytesIO, form: str):
    return gzip.GzipFile(fileobj=archive) if form == "w:gz" else archive


def link(name: str, target: str):
    return entry(name, tarfile.SYMTYPE, target=target)


def hard_link(name: str, target: str):
    return entry(name, tarfile.LNKTYPE, target=target)


@pytest.mark.parametrize("form", ["w", "w:gz"])
def test_files_come_back_with_times_permissions_and_links(tmp_path, form):
    given = packed(
        entry("./", tarfile.DIRTYPE, mode=0o700),
        entry("./empty", tarfile.DIRTYPE, mode=0o500),
        entry("sub/run.sh", data=b"#!/bin/sh\n", mode=0o755),
        entry("sub/secret", data=b"\0" * 3_000_000, mode=0o600),
        link("sub/latest", "run.sh"),
        hard_link("again", "sub/secret"),
        form=form,
    )
    assert extract(unzipped(given, form), tmp_path) == 4
    assert (tmp_path / "sub/run.sh").read_text() == "#!/bin/sh\n"
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("sub/run.sh", "sub/secret", "empty")
    }
    assert modes == {"sub/run.sh": 0o755, "sub/secret": 0o600, "empty": 0o700}
    assert (tmp_path / "sub/run.sh").stat().st_mtime == 1_000_000_000
    assert os.readlink(tmp_path / "sub/latest") == "run.sh"
    assert (tmp_path / "again").samefile(tmp_path / "sub/secret")


def test_what_is_there_is_replaced_and_a_link_there_is_not_followed(tmp_path):
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.write_text("mine")
    into.mkdir()
    (into / "x").symlink_to(outside)
    (into / "y").write_text("old")
    extract(
        packed(entry("x", data=b"new"), entry("y", data=b"new"), entry("y", data=b"newer")), into
    )
    assert [(into / name).read_text() for name in "xy"] == ["new", "newer"]
    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([entry("../x")], id="a step up"),
        pytest.param([entry("/x")], id="an absolute path"),
        pytest.param([entry("")], id="no name"),
        pytest.param([link("x", "../outside")], id="a link out"),
        pytest.param([link("x", "/etc")], id="an absolute link"),
        pytest.param([link("a", "."), link("a/b/x", "../../..")], id="a link through a link"),
        pytest.param([link("x", "."), entry("x/y")], id="a file behind a link"),
        pytest.param([hard_link("x", "../outside")], id="a hard link out"),
        pytest.param([hard_link("x", "y")], id="a hard link to nothing"),
        pytest.param([link("a/b/y", "../z"), hard_link("x", "a/b/y")], id="a hard link to a link"),
        pytest.param([entry("x", tarfile.FIFOTYPE)], id="a pipe"),
        pytest.param([entry("x", tarfile.CHRTYPE)], id="a device"),
        pytest.param([entry("there")], id="a file in place of a directory"),
        pytest.param([entry("there/file/x")], id="a file below a file"),
        pytest.param([entry("elsewhere/x")], id="a file behind a link that was there"),
        pytest.param(
            [entry("elsewhere", tarfile.DIRTYPE)],
            id="a directory in place of a link that was there",
        ),
    ],
)
def test_nothing_is_written_outside(tmp_path, entries):
    outside, into = tmp_path / "outside", tmp_path / "into"
    (into / "there").mkdir(parents=True)
    (into / "there" / "file").touch()
    outside.mkdir()
    (into / "elsewhere").symlink_to(outside)
    with pytest.raises(InvalidArchive):
        extract(packed(*entries), into)
    assert list(outside.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["into", "outside"]


@pytest.mark.parametrize("form", ["w", "w:gz"])
def test_an_archive_that_breaks_off_is_an_error(tmp_path, form):
    whole = packed(entry("x", data=os.urandom(100_000)), form=form).getvalue()
    with pytest.raises(InvalidArchive, match="broken archive"):
        extract(unzipped(io.BytesIO(whole[:60_000]), form), tmp_path)


def test_a_wrong_byte_is_an_error(tmp_path):
    whole = bytearray(packed(entry("x", data=os.urandom(100_000)), form="w:gz").getvalue())
    whole[-6] ^= 1
    with pytest.raises(InvalidArchive, match="CRC check failed"):
        extract(unzipped(io.BytesIO(whole), "w:gz"), tmp_path)


@pytest.mark.parametrize(
    ("size", "count", "words"),
    [
        (64 << 20, 1, "headers of megabytes"),
        (400_000, 3, "headers of megabytes"),
        (1, 500, "recursion"),
    ],
)
def test_headers_of_headers_are_an_error(tmp_path, size, count, words):
    """`tarfile` reads the whole of each, and calls itself for the next one."""
    made = tarfile.TarInfo("x")
    made.type, made.size = tarfile.GNUTYPE_LONGNAME, size
    header = made.tobuf() + bytes(-(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
    with pytest.raises(InvalidArchive, match=words):
        extract(io.BytesIO(header * count + packed(entry("x")).getvalue()), tmp_path)
