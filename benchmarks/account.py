"""What a run costs beside time: CPU by service and of everything it started, commits, messages,
processes.

Read before and after, and divided by what was done in between. Nothing is measured twice: a row
that shows these figures reads them here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.watch import Watcher


@dataclass(frozen=True, slots=True)
class Account:
    """Totals so far.

    Attributes:
        cpu_s: by service, of processes that still run.
        group_cpu_s: of all processes that the cluster has started, ended ones too; None without a
        control group. commits, journal_bytes: of the journal.
        messages: received and sent by the server, for all clients.
        processes: processes and threads started on this machine, whoever started them.
    """

    cpu_s: dict[str, float]
    group_cpu_s: float | None
    commits: int
    journal_bytes: int
    messages: int
    processes: int

    def per(self, before: Account, count: int, unit: str = "task") -> dict[str, object]:
        """The detail of a row: what each of ``count`` units cost since ``before``. CPU is in
        microseconds.
        """
        share = {
            name: _us(s - before.cpu_s.get(name, 0.0), count) for name, s in self.cpu_s.items()
        }
        if self.group_cpu_s is not None and before.group_cpu_s is not None:
            share["everything"] = _us(self.group_cpu_s - before.group_cpu_s, count)
        return {
            f"cpu_us_per_{unit}": share,
            f"commits_per_{unit}": round((self.commits - before.commits) / count, 4),
            f"journal_bytes_per_{unit}": round(
                (self.journal_bytes - before.journal_bytes) / count, 1
            ),
            f"messages_per_{unit}": round((self.messages - before.messages) / count, 3),
            f"processes_per_{unit}": round((self.processes - before.processes) / count, 3),
        }


async def read(made: Cluster, watcher: Watcher) -> Account:
    """The totals now."""
    commits, size = await watcher.journal()
    group = made.group.cpu_s() if made.group is not None else None
    return Account(
        made.cpu_s(),
        group,
        commits,
        size,
        messages=await watcher.messages(),
        processes=_processes(),
    )


def _us(seconds: float, count: int) -> float:
    return round(seconds / count * 1e6, 1)


def _processes() -> int:
    """The kernel's count of forks and clones since boot."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("processes "))
