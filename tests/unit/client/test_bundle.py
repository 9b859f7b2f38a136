import io
import os
import tarfile

import pytest

from iris.client.bundle import pack_directory
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


def test_the_same_files_give_the_same_bytes_whenever_and_in_whatever_order_they_were_made(tmp_path):
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

    with pytest.raises(InvalidOption, match="neither a file nor a directory"):
        pack(tmp_path)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="not a directory"):
        pack(tmp_path / "nowhere")
