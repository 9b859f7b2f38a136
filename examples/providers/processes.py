#!/usr/bin/env python3
"""A program of pools whose cloud is this machine: a slice is a directory, its hosts are workers as processes.

docs/howto/fleet.md runs it; docs/design/fleet.md#the-contract-of-a-program says what it is asked and what it answers.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

CLOUD = Path(os.environ["HOME"], "iris-cloud")
NO_CAPACITY = 75


def create(asked: dict) -> None:
    place = CLOUD / asked["slice"]
    if place.exists():
        return  # a call may come twice
    if len(list(CLOUD.glob("*/labels.json"))) >= asked["options"].get("quota", 100):
        print(json.dumps({"reason": "the quota is used up", "retry_after_s": 30}))
        sys.exit(NO_CAPACITY)
    place.mkdir(parents=True)
    (place / "labels.json").write_text(json.dumps(asked["labels"]))
    amounts = [f"worker.{name}={n}" for name, n in asked["resources"].items() if n]
    for host in asked["hosts"]:
        given = [*amounts, f"worker.id={host['name']}", f"worker.data={place / host['name']}"]
        given += [f"nats.url={asked['nats_url']}", f"worker.gateway_url={asked['gateway_url']}"]
        given += [
            "worker.attributes=" + ",".join(f"{k}={v}" for k, v in host["attributes"].items())
        ]
        if host["key"]:
            key = place / f"{host['name']}.seed"
            key.touch(mode=0o600)
            key.write_text(host["key"])
            given += [f"nats.nkey_seed={key}"]
        words = [word for each in given for word in ("--set", each)]
        with (place / f"{host['name']}.log").open("wb") as log:
            worker = subprocess.Popen(
                ["iris", "server", "worker", *words], stdout=log, stderr=log, start_new_session=True
            )
        (place / f"{host['name']}.pid").write_text(str(worker.pid))


def delete(asked: dict) -> None:
    place = CLOUD / asked["slice"]
    if not place.exists() or labels(place)["iris-number"] != str(asked["number"]):
        return  # it is gone, or another one has its name
    for pid in pids(place):
        os.kill(pid, signal.SIGTERM)
    while pids(place):
        time.sleep(0.1)  # [fleet] call_timeout_s ends this program
    shutil.rmtree(place)


def found(asked: dict) -> None:
    slices = [
        {
            "name": place.name,
            "labels": labels(place),
            "status": "running" if len(pids(place)) == len(list(place.glob("*.pid"))) else "failed",
        }
        for place in (file.parent for file in CLOUD.glob("*/labels.json"))
    ]
    print(json.dumps({"slices": slices}))


def labels(place: Path) -> dict:
    return json.loads((place / "labels.json").read_text())


def pids(place: Path) -> list[int]:
    """The processes of a slice that run."""
    known = [int(file.read_text()) for file in place.glob("*.pid")]
    return [pid for pid in known if is_of(place, pid)]


def is_of(place: Path, pid: int) -> bool:
    """Whether this process still is a worker that was started for the slice."""
    try:
        return os.fsencode(place) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


CALLS = {"create": create, "delete": delete, "list": found}
CALLS[sys.argv[1]](json.load(sys.stdin))
