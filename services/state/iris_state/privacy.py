"""Hides from other users what only a job's owner and admins may see: the values of its environment, and its output.

Every view is filtered here. Without tokens every caller is an admin. Output is stored outside the records, and the
gateway asks for its owner. Source: docs/design/reliability.md#security. Out of scope: secrets (`redaction`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from iris_core.admission import MASK
from iris_core.messages import Query
from iris_core.views import AttemptView, DeploymentView, JobView, Page, TaskView, TreeView
from iris_state.ledger import Ledger

NOT_YOURS = "(only the owner of the job and admins read this)"


def shown(ledger: Ledger, query: Query, view: Any) -> Any:
    """The view without what its caller may not see."""
    if query.caller.role == "admin":
        return view
    return _shown(ledger, query, view)


def _shown(ledger: Ledger, query: Query, view: Any) -> Any:
    hide = _HIDE.get(type(view))
    return view if hide is None else hide(ledger, query, view)


def _job(ledger: Ledger, query: Query, view: JobView) -> JobView:
    spec = view.spec
    if view.user == query.caller.user or not spec.env:
        return view
    return msgspec.structs.replace(view, spec=msgspec.structs.replace(spec, env=dict.fromkeys(spec.env, MASK)))


def _deployment(ledger: Ledger, query: Query, view: DeploymentView) -> DeploymentView:
    template = view.spec.template
    if view.user == query.caller.user or not template.env:
        return view
    template = msgspec.structs.replace(template, env=dict.fromkeys(template.env, MASK))
    return msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, template=template))


def _tree(ledger: Ledger, query: Query, view: TreeView) -> TreeView:
    children = [_tree(ledger, query, child) for child in view.children]
    return msgspec.structs.replace(view, job=_job(ledger, query, view.job), children=children)


def _task(ledger: Ledger, query: Query, view: TaskView) -> TaskView:
    if _owns(ledger, query, view.job):
        return view
    return msgspec.structs.replace(view, attempts=[_without_output(attempt) for attempt in view.attempts])


def _attempt(ledger: Ledger, query: Query, view: AttemptView) -> AttemptView:
    job = str(query.arguments.get("task", "")).rpartition("/")[0]
    return view if _owns(ledger, query, job) else _without_output(view)


def _page(ledger: Ledger, query: Query, view: Page) -> Page:
    return msgspec.structs.replace(view, items=[_shown(ledger, query, item) for item in view.items])


def _owns(ledger: Ledger, query: Query, job: str) -> bool:
    record = ledger.find_job(job)
    return record is not None and record.user == query.caller.user


def _without_output(view: AttemptView) -> AttemptView:
    if not view.stderr_tail and view.artifact is None:
        return view
    return msgspec.structs.replace(view, stderr_tail=view.stderr_tail and NOT_YOURS, artifact=None)


_HIDE: dict[type, Callable[[Ledger, Query, Any], Any]] = {
    JobView: _job,
    DeploymentView: _deployment,
    TreeView: _tree,
    TaskView: _task,
    AttemptView: _attempt,
    Page: _page,
}
