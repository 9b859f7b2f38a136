import io
import os
import subprocess
import tarfile

import pytest

from iris.client.files.bundle import pack_directory
from iris.client.problems import InvalidOption


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def pack(root):
    into = io.BytesIO()
    return pack_directory(root, into), into.getvalue()


def test_the_same_files_give_the_same_bytes_in_any_order(tmp_path):
    first = write(tmp_path / "first", {"a.py": "1", "sub/b.py": "2", "z": ""})
    second = write(tmp_path / "second", {"z": "", "sub/b.py": "2", "a.py": "1"})
    os.utime(second / "a.py", (0, 0))
    (second / "a.py").chmod(0o600)

    assert pack(first) == pack(second)
    assert pack(first)[1][4:8] == bytes(4)  # when it was compressed


def test_another_content_gives_another_digest(tmp_path):
    assert pack(write(tmp_path / "a", {"f": "1"}))[0] != pack(write(tmp_path / "b", {"f": "2"}))[0]


def test_a_file_that_may_be_executed_stays_so(tmp_path):
    write(tmp_path, {"run.sh": "#!/bin/sh\n"})
    (tmp_path / "run.sh").chmod(0o755)

    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path)[1])) as archive:
        assert archive.getmember("run.sh").mode == 0o755


def test_version_control_and_caches_stay_at_home(tmp_path):
    write(tmp_path, {".git/config": "", "pkg/__pycache__/x.pyc": "", "pkg/x.py": ""})

    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path)[1])) as archive:
        assert archive.getnames() == ["pkg", "pkg/x.py"]


def test_a_link_inside_is_kept_as_a_link(tmp_path):
    write(tmp_path, {"data/real": "x"})
    (tmp_path / "data/link").symlink_to("real")

    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path)[1])) as archive:
        assert archive.getmember("data/link").linkname == "real"


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", ".."])
def test_a_link_that_leads_outside_is_refused(tmp_path, target):
    (tmp_path / "link").symlink_to(target)

    with pytest.raises(InvalidOption, match="link"):
        pack(tmp_path)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(
        InvalidOption, match=r"neither a file nor a directory .* name it in .irisignore"
    ):
        pack(tmp_path)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="not a directory"):
        pack(tmp_path / "nowhere")


def names(root, **options):
    into = io.BytesIO()
    bundle = pack_directory(root, into, **options)
    with tarfile.open(fileobj=into) as archive:
        return [entry.name for entry in archive if not entry.isdir()], bundle


def test_what_ignore_files_name_stays_at_home(tmp_path):
    write(
        tmp_path,
        {
            ".gitignore": "*.log\n!keep.log\n/data\nbuild/\n",
            ".irisignore": "!data\nnotes.md\n",
            "a.log": "1",
            "keep.log": "1",
            "data/x": "1",
            "sub/build/y": "1",
            "sub/data/z": "1",
            "notes.md": "1",
        },
    )
    sent, bundle = names(tmp_path)

    assert sent == [".gitignore", ".irisignore", "data/x", "keep.log", "sub/data/z"]
    assert bundle.left_out == ("a.log", "notes.md", "sub/build/")
    assert len(names(tmp_path, everything=True)[0]) == 8


def test_an_ignore_file_counts_for_its_directory_and_overrides_those_above(tmp_path):
    write(
        tmp_path,
        {
            ".gitignore": "*.bin\n",
            "sub/.gitignore": "!a.bin\n/only\n",
            "sub/a.bin": "",
            "b.bin": "",
            "only": "",
        },
    )
    write(tmp_path, {"sub/only": "", "sub/deep/only": "", "sub/deep/c.bin": ""})

    assert names(tmp_path)[0] == [
        ".gitignore",
        "only",
        "sub/.gitignore",
        "sub/a.bin",
        "sub/deep/only",
    ]


def test_a_directory_is_sent_without_what_its_repository_ignores(tmp_path):
    write(
        tmp_path, {".git/HEAD": "", ".gitignore": "*.pt\nruns/\n", "proj/a.py": "", "proj/a.pt": ""}
    )
    write(tmp_path, {"runs/.gitignore": "x\n", "runs/x": "", "runs/a.pt": ""})

    assert names(tmp_path / "proj")[0] == ["a.py"]
    assert names(tmp_path / "runs")[0] == [".gitignore", "a.pt"], (
        "it was named, so only its own ignore files count"
    )


def test_a_bundle_says_what_it_holds(tmp_path):
    write(
        tmp_path,
        {
            "big.bin": "x" * 5000,
            "a.py": "1",
            ".gitignore": "/o*\n",
            **{f"o{n}": "" for n in range(7)},
        },
    )
    bundle = names(tmp_path)[1]

    assert str(bundle).startswith("3 files, 4.888KiB (")
    assert str(bundle).endswith(" packed); left out: o0, o1, o2, o3, o4 and 2 more")
    assert bundle.biggest_files.startswith("big.bin 4.883KiB, .gitignore 4B")


@pytest.mark.parametrize(
    ("files", "packages"),
    [
        ({"uv.lock": "", "pyproject.toml": "", "requirements.txt": ""}, "uv.lock"),
        ({"uv.lock": "", "requirements.txt": ""}, "requirements.txt"),
        ({"pyproject.toml": "", "sub/requirements.txt": ""}, ""),
        ({"requirements.txt": "", ".irisignore": "requirements.txt"}, ""),
    ],
)
def test_the_files_that_are_sent_say_which_packages_are_needed(tmp_path, files, packages):
    assert names(write(tmp_path, files))[1].packages == packages


def git(place, *words):
    """Run git as nobody in particular."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", place, *who, *words], check=True, capture_output=True)


@pytest.mark.needs("git")
def test_what_git_tracks_is_sent_though_it_is_ignored(tmp_path):
    files = {
        ".gitignore": "*.bin\nbuild/\n",
        "a.bin": "",
        "b.bin": "",
        "build/x": "",
        "build/y": "",
    }
    write(tmp_path, {**files, "build/deep/z": "", "code.py": ""})
    git(tmp_path, "init")
    assert names(tmp_path)[0] == [".gitignore", "code.py"]
    git(tmp_path, "add", "-f", "a.bin", "build/x")
    assert names(tmp_path)[0] == [".gitignore", "a.bin", "build/x", "code.py"]
    write(tmp_path, {".irisignore": "*.bin\n"})
    assert "a.bin" not in names(tmp_path)[0]


@pytest.mark.needs("git")
def test_an_ignore_file_does_not_reach_into_a_repository_inside(tmp_path):
    write(tmp_path, {".gitignore": "*.dat\n", "lib/inner/table.dat": "", "lib/other.dat": ""})
    write(tmp_path, {"lib/inner/.gitignore": "*.tmp\n", "lib/inner/x.tmp": ""})
    git(tmp_path, "init")
    git(tmp_path / "lib/inner", "init")
    found = [".gitignore", "lib/inner/.gitignore", "lib/inner/table.dat"]
    assert names(tmp_path)[0] == found
    write(tmp_path, {".irisignore": "*.dat\n"})
    assert names(tmp_path)[0] == [".gitignore", ".irisignore", *found[1:-1]]


@pytest.mark.needs("git")
def test_a_submodule_is_sent_though_its_directory_is_ignored(tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    write(inner, {"model.py": ""})
    git(inner, "init")
    git(inner, "add", ".")
    git(inner, "commit", "-m", "x")
    write(outer, {".gitignore": "third/\n"})
    git(outer, "init")
    allowed = ("-c", "protocol.file.allow=always")
    git(outer, *allowed, "submodule", "add", "-f", str(inner), "third/inner")
    write(outer, {"third/scratch": "", "third/inner/new.py": ""})
    assert names(outer)[0] == [
        ".gitignore",
        ".gitmodules",
        "third/inner/model.py",
        "third/inner/new.py",
    ]


@pytest.mark.needs("git")
def test_what_a_clone_excludes_for_itself_stays_at_home(tmp_path):
    write(tmp_path, {"notes": "", "code.py": ""})
    git(tmp_path, "init")
    write(tmp_path, {".git/info/exclude": "notes\n"})
    assert names(tmp_path)[0] == ["code.py"]


def test_a_repository_that_git_cannot_read_is_sent_by_its_ignore_files(tmp_path):
    write(tmp_path, {".git/config": "", ".gitignore": "*.bin\n", "a.bin": "", "code.py": ""})
    assert names(tmp_path)[0] == [".gitignore", "code.py"]
