"""Reads why a job failed: its failed tasks in groups, and those of the child jobs that failed below
it.

Out of scope: grouping (`iris_core.views.causes`).
"""

from __future__ import annotations

from collections.abc import Iterator

from iris.client.http.api import GatewayApi
from iris.client.http.transport import in_path
from iris_core.views.causes import LOOKED_AT, SHOWN, FailureGroup, failure_groups
from iris_core.views.jobs import JobView, TreeView


def causes_of(api: GatewayApi, job: JobView) -> list[FailureGroup]:
    """The groups of its own failed tasks, then of its failed descendants. Raises Problem,
    Unreachable.
    """
    found = _own(api, job)
    if job.children and job.state != "succeeded":
        tree = api.get(f"/v1/jobs/{in_path(job.id)}/tree", TreeView)
        failed = [child for child in _descendants(tree) if child.state == "failed"]
        for child in failed[:SHOWN]:
            found += _own(api, child)
    return found


def _own(api: GatewayApi, job: JobView) -> list[FailureGroup]:
    if not job.task_counts.get("failed"):
        return []
    return failure_groups(
        api.pages(f"/v1/jobs/{in_path(job.id)}/tasks", dict, {"state": "failed"}, LOOKED_AT)
    )


def _descendants(tree: TreeView) -> Iterator[JobView]:
    for child in tree.children:
        yield child.job
        yield from _descendants(child)


def cause_lines(job: str, groups: list[FailureGroup], *, output: bool = True) -> list[str]:
    """The groups as lines; those of other jobs than ``job`` are named. ``output``: the last lines
    of one task follow.

    That is the first task of the largest group of the deepest job, where the failure began.
    """
    lines = [f"{'' if group.job == job else f'{group.job}: '}{group}" for group in groups]
    shown = max(groups, key=lambda group: (group.job.count("/"), group.count), default=None)
    if shown is None or not output or len(shown.last_lines) < 2:
        return lines
    name = f"{shown.job}/{shown.indexes[0]}"
    return [*lines, f"last lines of {name}:", *(f"  {line}" for line in shown.last_lines)]
