"""Keyrings of the kernel, which outlive the processes that use them, refused to tasks."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys

import pytest

from iris_worker.launcher.kernel.keyrings import program

CALLS = {"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)}
"""On x86_64 and aarch64."""
TRY = f"""
import ctypes, os, sys
from iris_worker.launcher.kernel.keyrings import refuse_keyrings
from iris_worker.launcher.kernel.namespaces import forbid_new_privileges
forbid_new_privileges()
refuse_keyrings()
code = '''
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
column = ("x86_64", "aarch64").index(os.uname().machine)
for numbers in {list(CALLS.values())}:
    print(libc.syscall(numbers[column], b"user", b"a", b"b", 1, -4), ctypes.get_errno())
'''
os.execv(sys.executable, [sys.executable, "-c", code])
"""


def test_what_is_started_is_told_that_there_are_no_keyrings():
    done = subprocess.run((sys.executable, "-c", TRY), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"-1 {errno.ENOSYS}"] * len(CALLS)


def test_a_machine_whose_system_calls_are_not_known_is_named():
    with pytest.raises(OSError, match="the system calls of m68k are not known"):
        program("m68k")


def verdict(code: bytes, architecture: int, number: int) -> int:
    """What the kernel would return for a system call."""
    loaded, at, lines = 0, 0, list(struct.iter_unpack("HBBI", code))
    while True:
        kind, then, otherwise, value = lines[at]
        match kind:
            case 0x20:
                loaded = {0: number, 4: architecture}[value]
            case 0x54:
                loaded &= value
            case 0x06:
                return value
            case _:
                met = {0x15: loaded == value, 0x35: loaded >= value, 0x25: loaded > value}[kind]
                at += then if met else otherwise
        at += 1


@pytest.mark.parametrize(
    ("machine", "architecture", "first"),
    [
        ("x86_64", 0xC000003E, 248),
        ("x86_64", 0x40000003, 286),
        ("x86_64", 0xC000003E, 0x40000000 | 248),
        ("aarch64", 0xC00000B7, 217),
        ("aarch64", 0x40000028, 309),
    ],
)
def test_exactly_the_three_calls_are_refused_in_every_machine_program(
    machine: str, architecture: int, first: int
):
    found = [
        verdict(program(machine), architecture, number) for number in range(first - 1, first + 4)
    ]
    allowed, refused = 0x7FFF0000, 0x00050000 | errno.ENOSYS
    assert found == [allowed, refused, refused, refused, allowed]
