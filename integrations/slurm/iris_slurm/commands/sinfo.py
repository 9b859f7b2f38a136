"""`sinfo`: the hosts."""

from __future__ import annotations

import re
from collections.abc import Callable

from iris import Client
from iris.cli.output.terminal import in_one_line
from iris_core.views.cluster import WorkerView
from iris_slurm.commands.program import add_clusters, check_clusters, run
from iris_slurm.directives import Parser
from iris_slurm.translate import DEFAULT_PARTITION, PARTITION
from iris_slurm.values import NotHonoured

_STATES = {"healthy": "idle", "draining": "drain", "degraded": "drain", "lost": "down"}


def state_of(worker: WorkerView) -> str:
    """As `sinfo` says it."""
    found = _STATES.get(worker.state, "down")
    if found != "idle" or not worker.task_count:
        return found
    return "mixed" if worker.committed["cpu_millis"] < worker.total["cpu_millis"] else "allocated"


def partition_of(worker: WorkerView) -> str:
    return str(worker.attributes.get(PARTITION, DEFAULT_PARTITION))


LETTERS: dict[str, tuple[str, Callable[[list[WorkerView]], str]]] = {
    "P": ("PARTITION", lambda hosts: partition_of(hosts[0])),
    "R": ("PARTITION", lambda hosts: partition_of(hosts[0])),
    "a": ("AVAIL", lambda hosts: "up"),
    "l": ("TIMELIMIT", lambda hosts: "infinite"),
    "D": ("NODES", lambda hosts: str(len(hosts))),
    "t": ("STATE", lambda hosts: state_of(hosts[0])[:5]),
    "T": ("STATE", lambda hosts: state_of(hosts[0])),
    "N": ("NODELIST", lambda hosts: ",".join(host.id for host in hosts)),
    "n": ("HOSTNAMES", lambda hosts: ",".join(host.id for host in hosts)),
    "c": ("CPUS", lambda hosts: str(hosts[0].total["cpu_millis"] // 1000)),
    "m": ("MEMORY", lambda hosts: str(hosts[0].total["memory_bytes"] >> 20)),
}
DEFAULT = "%9P %5a %10l %6D %6t %N"
_LETTER = re.compile(r"%(\.?)(\d*)(\w)")


def main() -> int:
    """The command."""
    return run("sinfo", sinfo)


def sinfo(client: Client, words: list[str]) -> int:
    """Raises NotHonoured, ClientError."""
    reader = Parser("sinfo")
    reader.add_argument("-h", "--noheader", action="store_true")
    reader.add_argument("-N", "--Node", action="store_true")
    reader.add_argument("-o", "--format", default=DEFAULT)
    reader.add_argument("-p", "--partition", default="")
    add_clusters(reader)
    given = reader.parse_args(words)
    check_clusters(given.clusters)
    if unknown := [letter for *_, letter in _LETTER.findall(given.format) if letter not in LETTERS]:
        raise NotHonoured(
            f"--format={given.format}: %{unknown[0]} is not known; use %{' %'.join(LETTERS)}"
        )
    groups: dict[object, list[WorkerView]] = {}
    for worker in client.workers():
        if not given.partition or partition_of(worker) in given.partition.split(","):
            kind = (
                worker.id
                if given.Node
                else (partition_of(worker), state_of(worker), *worker.total.items())
            )
            groups.setdefault(kind, []).append(worker)
    if not given.noheader:
        print(line_of(given.format, None))
    for hosts in groups.values():
        print(line_of(given.format, hosts))
    return 0


def line_of(format_: str, hosts: list[WorkerView] | None) -> str:
    """The titles without hosts."""

    def cell(match: re.Match[str]) -> str:
        title, show = LETTERS[match[3]]
        text = title if hosts is None else in_one_line(show(hosts))
        width = int(match[2] or 0)
        return text.rjust(width) if match[1] else text.ljust(width)

    return _LETTER.sub(cell, format_)
