"""Scripts are sent as the bytes that they are."""

from __future__ import annotations

import io
import os
import sys

import pytest

from iris_slurm.commands.sbatch import read_script
from iris_slurm.directives import script_lines

SCRIPT = b"#!/bin/bash\r\n# caf\xe9\r\n#SBATCH --comment=caf\xe9\r\necho hi\r\n"


def test_a_script_of_another_encoding_keeps_its_bytes_and_line_ends(tmp_path, monkeypatch):
    (tmp_path / "job.sh").write_bytes(SCRIPT)
    assert read_script(None, [str(tmp_path / "job.sh")]) == SCRIPT
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SCRIPT), "ascii"))
    assert read_script(None, []) == SCRIPT
    assert script_lines(os.fsdecode(SCRIPT)) == ["--comment=caf\udce9"]


@pytest.mark.parametrize("word", ["echo fine", "echo \udcff"])
def test_a_script_of_the_command_line_keeps_its_bytes(word):
    assert read_script(word, []) == b"#!/bin/sh\n" + os.fsencode(word) + b"\n"
