"""A backup file is accepted only if it is complete; a change of any byte is detected."""

import sys
from pathlib import Path

import pytest

from iris_core.codec import to_json
from iris_service.child import DAMAGED
from iris_service.run import FAILED
from iris_state.admin.__main__ import main
from iris_state.admin.archive import BadArchive, Item, Writer, read
from iris_state.admin.backup import About

ABOUT = About(at_ms=1, sequence=1, last_published="", events=0, jobs=0, workers=0)
ITEMS = [
    Item("about", "", to_json(ABOUT)),
    Item("event", "s", b"x" * 30, {"a": "b"}, 7),
    Item("bundle", "b", b""),
]


def written(path: Path) -> bytes:
    with Writer(path) as out:
        for item in ITEMS:
            out.add(item)
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path: Path):
    written(tmp_path / "file")
    assert list(read(tmp_path / "file")) == ITEMS
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    data = written(tmp_path / "file")
    for at in range(len(data)):
        (tmp_path / "other").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BadArchive):
            list(read(tmp_path / "other"))


def test_every_missing_end_is_noticed(tmp_path: Path):
    data = written(tmp_path / "file")
    for size in range(len(data)):
        (tmp_path / "other").write_bytes(data[:size])
        with pytest.raises(BadArchive):
            list(read(tmp_path / "other"))


def test_a_record_that_was_taken_out_is_noticed(tmp_path: Path):
    whole, fewer = written(tmp_path / "file"), tmp_path / "fewer"
    first = 10 + 12 + int.from_bytes(whole[10:18], "little")
    fewer.write_bytes(whole[:10] + whole[first:])
    with pytest.raises(BadArchive, match="digest"):
        list(read(fewer))


def test_a_backup_that_fails_leaves_no_file(tmp_path: Path):
    def fail() -> None:
        with Writer(tmp_path / "file") as out:
            out.add(ITEMS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["verify", "restore"])
@pytest.mark.parametrize("at", [0, 150, -1])
def test_a_damaged_file_ends_the_command_with_65(tmp_path, monkeypatch, capsys, verb, at):
    data = bytearray(written(tmp_path / "file"))
    data[at] ^= 1
    (tmp_path / "file").write_bytes(data)
    words = ["admin", "--store", str(tmp_path / "nats"), verb, str(tmp_path / "file")]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == DAMAGED
    assert "damaged" in capsys.readouterr().err


def test_a_file_of_a_later_release_is_not_damaged(tmp_path, monkeypatch, capsys):
    data = bytearray(written(tmp_path / "file"))
    data[8] = 99
    (tmp_path / "file").write_bytes(data)
    monkeypatch.setattr(sys, "argv", ["admin", "verify", str(tmp_path / "file")])
    assert main() == FAILED
    assert "use a newer one" in capsys.readouterr().err
