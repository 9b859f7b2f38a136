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
    if len(list(CLOUD.glob("[!.]*/labels.json"))) >= asked["options"].get("quota", 100):
        print(json.dumps({"reason": "the quota is used up", "retry_after_s": 30}))
        sys.exit(NO_CAPACITY)
    making = CLOUD / f".{asked['slice']}-{os.getpid()}"  # a call may be killed at any time
    making.mkdir(parents=True)
    (making / "labels.json").write_text(json.dumps(asked["labels"]))
    making.rename(place)
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
            subprocess.Popen(
                ["iris", "server", "worker", *words], stdout=log, stderr=log, start_new_session=True
            )
        (place / f"{host['name']}.started").touch()


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
    slices = []
    for place in (file.parent for file in CLOUD.glob("[!.]*/labels.json")):
        said = {"name": place.name, "labels": labels(place), "status": "running"}
        if len(list(place.glob("*.started"))) > len(pids(place)):
            lines = map(last_line, sorted(place.glob("*.log")))
            said |= {"status": "failed", "detail": " / ".join(filter(None, lines))}
        slices.append(said)
    print(json.dumps({"slices": slices}))


def last_line(log: Path) -> str:
    return next(iter(log.read_text(errors="replace").splitlines()[-1:]), "")


def labels(place: Path) -> dict:
    return json.loads((place / "labels.json").read_text())


def pids(place: Path) -> list[int]:
    """The workers of a slice that run, by their command lines: a number may be another process' by now."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if is_of(place, process)]


def is_of(place: Path, process: Path) -> bool:
    try:
        return f"worker.data={place}/".encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False  # it has ended


CALLS = {"create": create, "delete": delete, "list": found}
CALLS[sys.argv[1]](json.load(sys.stdin))
