"""Which entries a bundle may contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.admission.archive_paths import InvalidArchive
from iris_worker.attempt.bundles.manifest import ArchiveEntry, Manifest
from iris_worker.limits import BundleLimits


def admit(
    *entries: ArchiveEntry, packed: int = 1 << 20, limits: BundleLimits | None = None
) -> list[str]:
    manifest = Manifest(packed, limits)
    return ["/".join(manifest.admit(entry)) for entry in entries]


def file(name: str, size: int = 0) -> ArchiveEntry:
    return ArchiveEntry(name, "file", size)


def link(name: str, target: str) -> ArchiveEntry:
    return ArchiveEntry(name, "symlink", target=target)


def test_an_ordinary_bundle_is_admitted():
    assert admit(
        ArchiveEntry("./", "dir"),
        file("./train.py", 10),
        ArchiveEntry("lib", "dir"),
        file("lib/a.py"),
        link("lib/b.py", "a.py"),
    ) == ["", "train.py", "lib", "lib/a.py", "lib/b.py"]


def test_a_link_may_lead_up_and_down_inside():
    assert admit(file("data/x"), link("a/b/x", "../../data/x")) == ["data/x", "a/b/x"]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([file("/etc/passwd")], id="an absolute path"),
        pytest.param([file("../x")], id="a step up"),
        pytest.param([file("a/../../x")], id="a step up in the middle"),
        pytest.param([file("a/..")], id="a step up at the end"),
        pytest.param([file("a\0b")], id="a NUL in a name"),
        pytest.param([file("x" * 256)], id="a name of 256 bytes"),
        pytest.param([file("é" * 200)], id="a name of 400 bytes in 200 characters"),
        pytest.param([file("x/" * 600)], id="a path of 1200 characters"),
        pytest.param([file("")], id="a file without a name"),
        pytest.param([file(".")], id="a file in place of the root"),
        pytest.param([ArchiveEntry("dev", "other")], id="a device"),
        pytest.param([link("x", "/etc")], id="an absolute link"),
        pytest.param([link("x", "../etc")], id="a link out of the root"),
        pytest.param([link("a/x", "../../etc")], id="a link out from below"),
        pytest.param([link("x", "a/../../etc")], id="a link that goes down and then out"),
        pytest.param(
            [link("x", "a/..")],
            id="a link that goes down and up again, through another link perhaps",
        ),
        pytest.param([link("x", "")], id="a link to nothing"),
        pytest.param([link("x", "."), file("x/y")], id="a file behind a link"),
        pytest.param([file("x"), file("x/y")], id="a file below a file"),
        pytest.param([file("x"), file("x")], id="a file twice"),
        pytest.param([link("x", "y"), file("x")], id="a file in place of a link"),
        pytest.param([file("x"), ArchiveEntry("x", "dir")], id="a directory in place of a file"),
        pytest.param(
            [ArchiveEntry("x", "hardlink", target="y")], id="a hard link to what is not there"
        ),
        pytest.param(
            [link("y", "z"), ArchiveEntry("x", "hardlink", target="y")], id="a hard link to a link"
        ),
        pytest.param([ArchiveEntry("x", "hardlink", target="/etc/passwd")], id="a hard link out"),
        pytest.param([file("x", -1)], id="a negative size"),
    ],
)
def test_hostile_entries_are_refused(entries: list[ArchiveEntry]):
    with pytest.raises(InvalidArchive):
        admit(*entries)


def test_entries_are_counted():
    with pytest.raises(InvalidArchive, match="more than 2 entries"):
        admit(file("a"), file("b"), file("c"), limits=BundleLimits(entries=2))


def test_bytes_are_counted_over_all_files():
    with pytest.raises(InvalidArchive, match="more than 100 bytes"):
        admit(file("a", 60), file("b", 60), limits=BundleLimits(bytes=100))


def test_a_bundle_that_unpacks_to_too_many_times_its_size_is_refused():
    limits = BundleLimits(ratio=10, ratio_from=1000)
    assert admit(file("a", 900), packed=1, limits=limits) == ["a"]
    with pytest.raises(InvalidArchive, match="more than 10 times"):
        admit(file("a", 1100), packed=100, limits=limits)


parts = st.sampled_from(["a", "b", "c", "..", ".", ""])
paths = st.lists(parts, min_size=1, max_size=5).map("/".join)
entries = st.one_of(
    paths.map(file), st.builds(link, paths, paths), paths.map(lambda p: ArchiveEntry(p, "dir"))
)


@given(st.lists(entries, max_size=12))
def test_following_any_links_never_leads_out(found: list[ArchiveEntry]):
    manifest, links, made = Manifest(1 << 20), {}, []
    for entry in found:
        try:
            path = "/".join(manifest.admit(entry))
        except InvalidArchive:
            continue
        made.append(path)
        if entry.kind == "symlink":
            links[path] = entry.target
    for path in made:
        assert not resolve(path, links).startswith("..")


def resolve(path: str, links: dict[str, str]) -> str:
    """Where a path leads when every link on it is followed, as the kernel does; ``..`` at the front
    is outside.
    """
    done: list[str] = []
    left = path.split("/")
    for _ in range(100):
        if not left:
            break
        part = left.pop(0)
        if part == "..":
            if not done:
                return ".."
            done.pop()
        elif part not in ("", "."):
            done.append(part)
            target = links.get("/".join(done))
            if target is not None:
                done.pop()
                left = target.split("/") + left
    return "/".join(done)
