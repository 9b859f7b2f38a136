"""Messages to systemd, and their interval."""

import os
import socket
from pathlib import Path

from iris_service.notify import READY, Notifier


def test_a_process_tells_its_socket_and_keeps_it_from_its_children(tmp_path: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        environ = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "60000000",
            "PATH": "/bin",
        }
        notifier = Notifier(environ)
        notifier.send(READY)
        assert listening.recv(100) == READY
    assert environ == {"PATH": "/bin"}
    assert notifier.interval_s == 30
    notifier.send(READY)  # nobody listens any more


def test_an_abstract_socket_is_told_too():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0iris-{os.getpid()}")
        Notifier({"NOTIFY_SOCKET": f"@iris-{os.getpid()}"}).send(READY)
        assert listening.recv(100) == READY


def test_without_systemd_nobody_is_told():
    notifier = Notifier({"WATCHDOG_USEC": "1000"})
    assert (bool(notifier), notifier.interval_s) == (False, 0)
    notifier.send(READY)


def test_the_watchdog_of_another_process_is_left_alone(tmp_path: Path):
    other = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "1000",
        "WATCHDOG_PID": "1",
    }
    assert Notifier(other).interval_s == 0
