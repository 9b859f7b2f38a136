"""How often others were told to stop for one task before it started: each time for nothing, but the last.

A host that ends, a leader or a scheduler that changes, may undo a nomination; nothing does so for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from iris_state.records.changes import Assigned, Commit, Nominated

MOST = 10


def violations(commits: Iterable[Commit]) -> Iterator[str]:
    """Tasks for which work was evicted again and again."""
    times = Counter[tuple[int, int]]()
    for commit in commits:
        for change in commit.changes:
            if isinstance(change, Assigned):
                times.pop((change.job, change.index), None)
            elif isinstance(change, Nominated) and change.worker:
                task = (change.job, change.index)
                times[task] += 1
                if times[task] == MOST + 1:
                    yield f"task {task} was promised a place more than {MOST} times and has none"
