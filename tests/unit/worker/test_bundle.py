"""Unpacking of bundles: valid archives are reproduced, invalid ones write nothing outside the
directory.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_core.admission.archive_paths import InvalidArchive
from iris_worker.attempt.bundles.bundle import BundleStore, digest_of, unpack
from iris_worker.limits import BundleLimits

LIMITS = BundleLimits(entries=50, bytes=1 << 20, ratio=200, ratio_from=1 << 16)


def tar(*members: tuple[str, bytes | str], mode: str = "w:gz") -> bytes:
    """An archive of files (bytes) and symbolic links (text)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size, info.mode = len(content), 0o4755
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(kind: bytes, **fields: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("x")
        info.type = kind
        for key, value in fields.items():
            setattr(info, key, value)
        archive.addfile(info)
    return buffer.getvalue()


def zipped(
    *members: tuple[str, bytes], mode: int = 0o755, method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, method)
    return buffer.getvalue()


def header(kind: bytes, size: int) -> bytes:
    """A header that is about the next one."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf() + bytes(-(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)


def tree(root: Path) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(root))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2"])
def test_a_tar_comes_out_as_it_went_in(tmp_path: Path, mode: str):
    unpack(tar(("a/run.sh", b"echo"), ("a/link", "run.sh"), mode=mode), tmp_path, LIMITS)
    assert tree(tmp_path) == {"a/run.sh": b"echo", "a/link": "run.sh"}


def test_a_zip_comes_out_as_it_went_in(tmp_path: Path):
    unpack(zipped(("a/run.sh", b"echo"), ("b/", b"")), tmp_path, LIMITS)
    assert tree(tmp_path) == {"a/run.sh": b"echo"}
    assert (tmp_path / "b").is_dir()


def test_files_may_be_executable_but_nothing_more(tmp_path: Path):
    unpack(tar(("run.sh", b"echo")), tmp_path, LIMITS)
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: tar(("/etc/x", b"")), id="absolute"),
        pytest.param(lambda: tar(("../x", b"")), id="up"),
        pytest.param(lambda: tar(("x", "/etc"), ("x/y", b"")), id="through a link"),
        pytest.param(lambda: tar(("x", ".."), ("x/y", b"")), id="through a relative link"),
        pytest.param(lambda: special(tarfile.FIFOTYPE), id="pipe"),
        pytest.param(lambda: special(tarfile.CHRTYPE), id="device"),
        pytest.param(lambda: special(tarfile.LNKTYPE, linkname="/etc/passwd"), id="hard link out"),
        pytest.param(lambda: special(tarfile.GNUTYPE_SPARSE), id="sparse file"),
        pytest.param(lambda: tar(("x", b"\0" * (2 << 20))), id="too many bytes"),
        pytest.param(lambda: tar(*((str(n), b"") for n in range(51))), id="too many entries"),
        pytest.param(lambda: tar(("x", b"\0" * (1 << 19))), id="bomb"),
        pytest.param(lambda: zipped(("x", b"\0" * (1 << 19))), id="zip bomb"),
        pytest.param(lambda: zipped(("../x", b"")), id="zip up"),
        pytest.param(lambda: zipped(("x", b"/etc"), mode=stat.S_IFLNK | 0o777), id="zip link out"),
        pytest.param(
            lambda: zipped(*((str(n), b"") for n in range(51))), id="zip of too many entries"
        ),
        pytest.param(lambda: tar(("a/" * 64 + "b", b"")), id="too deep"),
        pytest.param(lambda: b"", id="nothing"),
        pytest.param(lambda: b"\x1f\x8b broken", id="broken gzip"),
        pytest.param(lambda: b"PK\x03\x04 broken", id="broken zip"),
        pytest.param(lambda: tar(("x", b"y" * 5000))[:-30], id="cut off"),
        pytest.param(lambda: b"plain text, no archive at all" * 40, id="no archive"),
    ],
)
def test_hostile_and_broken_archives_are_refused(tmp_path: Path, make: Callable[[], bytes]):
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(InvalidArchive):
        unpack(make(), root, LIMITS)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize(
    ("kind", "size", "count"),
    [(tarfile.XHDTYPE, 64 << 20, 1), (tarfile.GNUTYPE_LONGNAME, 400_000, 3)],
)
def test_headers_of_megabytes_are_not_read(tmp_path: Path, kind: bytes, size: int, count: int):
    with pytest.raises(InvalidArchive, match="headers of megabytes"):
        unpack(
            gzip.compress(header(kind, size) * count + tar(("x", b""), mode="w"), 1),
            tmp_path,
            LIMITS,
        )


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(zipped(("x", b"x"), method=zipfile.ZIP_BZIP2), id="zip with bzip2"),
        pytest.param(zipped(("x", b"x"), method=zipfile.ZIP_LZMA), id="zip with lzma"),
        pytest.param(tar(("x", b"x"), mode="w:xz"), id="tar with xz"),
    ],
)
def test_what_is_unpacked_in_unbounded_memory_is_refused(tmp_path: Path, archive: bytes):
    with pytest.raises(InvalidArchive):
        unpack(archive, tmp_path, LIMITS)


def test_entries_of_a_zip_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    archive = zipped(*((str(n), b"") for n in range(51)))
    monkeypatch.delattr(zipfile, "ZipFile")
    with pytest.raises(InvalidArchive, match="more than 50 entries"):
        unpack(archive, tmp_path, LIMITS)


def test_large_trees_may_have_as_many_headers_as_entries(tmp_path: Path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(1000):
            info = tarfile.TarInfo(f"{'d' * 200}/{number}")
            info.mtime = number + 0.25
            info.pax_headers = {"comment": "x" * 2000}
            archive.addfile(info)
    unpack(buffer.getvalue(), tmp_path, BundleLimits())
    assert len(list((tmp_path / ("d" * 200)).iterdir())) == 1000


good = tar(("a/run.sh", b"echo" * 100), ("a/link", "run.sh"), ("b", b"x" * 2000), mode="w")
spots = st.lists(
    st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)), min_size=1, max_size=8
)


@given(spots)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None
)
def test_a_damaged_archive_is_refused_or_stays_inside(
    tmp_path_factory: pytest.TempPathFactory, damage
):
    outer = tmp_path_factory.mktemp("fuzz")
    root = outer / "root"
    root.mkdir()
    data = bytearray(good)
    for position, value in damage:
        data[position] = value
    with contextlib.suppress(InvalidArchive):
        unpack(bytes(data), root, LIMITS)
    assert [path.name for path in outer.iterdir()] == ["root"]
    for path in root.rglob("*"):
        assert path.resolve().is_relative_to(root.resolve())


def test_a_bundle_is_unpacked_once_and_copied_for_each_attempt(tmp_path: Path):
    data = tar(("run.sh", b"echo"))
    digest = hashlib.sha256(data).hexdigest()
    store = BundleStore(tmp_path / "bundles")
    assert not store.has(digest)
    store.add(digest, data)
    assert store.has(digest)
    for name in ("a", "b"):
        store.copy(digest, str(tmp_path / name))
        (tmp_path / name / "run.sh").write_text("mine")
    assert tree(tmp_path / "bundles" / digest) == {"run.sh": b"echo"}


def test_a_copy_has_the_modes_times_and_owner_of_its_bundle(tmp_path: Path):
    store, place = BundleStore(tmp_path / "bundles"), tmp_path / "bundles" / "x"
    (place / "sub" / "empty").mkdir(parents=True)
    (place / "sub" / "run.sh").write_bytes(b"echo" * 100_000)
    (place / "sub" / "none").touch()
    (place / "link").symlink_to("sub/run.sh")
    for path, mode in (("sub/run.sh", 0o755), ("sub/none", 0o640), ("sub", 0o711)):
        (place / path).chmod(mode)
        os.utime(place / path, ns=(1, 1_000_000_007))
    owner = (1000, 1001) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    workdir = tmp_path / "workdir"
    workdir.mkdir(0o700)
    store.copy("x", str(workdir), owner)
    paths = sorted(path.relative_to(place) for path in place.rglob("*"))
    assert sorted(path.relative_to(workdir) for path in workdir.rglob("*")) == paths
    assert tree(workdir) == tree(place)
    for path in paths:
        was, found = (place / path).lstat(), (workdir / path).lstat()
        assert (found.st_mode, found.st_mtime_ns, found.st_size) == (
            was.st_mode,
            was.st_mtime_ns,
            was.st_size,
        )
        assert (found.st_uid, found.st_gid) == owner
    assert (stat.S_IMODE(workdir.stat().st_mode), workdir.stat().st_uid) == (0o700, os.getuid())


def test_what_is_not_what_was_asked_for_is_refused(tmp_path: Path):
    store = BundleStore(tmp_path / "bundles")
    with pytest.raises(InvalidArchive, match="its digest is"):
        store.add("0" * 64, tar(("x", b"")))
    assert list((tmp_path / "bundles").iterdir()) == []


def test_the_bundles_used_longest_ago_make_room(tmp_path: Path):
    store = BundleStore(tmp_path / "bundles", keep=2)
    digests = []
    for number in range(3):
        data = tar((f"f{number}", b""))
        digests.append(hashlib.sha256(data).hexdigest())
        store.add(digests[-1], data)
        os.utime(tmp_path / "bundles" / digests[-1], (number, number))
    assert [store.has(digest) for digest in digests] == [False, True, True]


def test_a_bundle_that_is_about_to_be_copied_is_kept(tmp_path: Path):
    store = BundleStore(tmp_path / "bundles", keep=1)
    archives = [tar((f"f{number}", b"")) for number in range(3)]
    held, other, last = [hashlib.sha256(data).hexdigest() for data in archives]
    store.add(held, archives[0])
    os.utime(tmp_path / "bundles" / held, (0, 0))
    with store.holds.hold(held):
        store.add(other, archives[1])
        assert (store.has(held), store.has(other)) == (True, True)
    store.add(last, archives[2])
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == [last]


@pytest.mark.parametrize(
    "text", ["", "abc", "sha256:xyz", "../" + "a" * 61, "A" * 64, "a" * 64 + "\n"]
)
def test_a_bundle_is_named_by_its_digest_only(text: str):
    with pytest.raises(InvalidArchive):
        digest_of(text)
