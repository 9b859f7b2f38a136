"""Hides from other users what only a job's owner and admins may see: the values of its environment,
the digest of its code, and its output; and what only a caller and admins may see: addresses, and
the names of tokens.

A view names the owner of its record, and nothing but that is asked: a name may belong to somebody
else by now. Every view is filtered here. Without tokens every caller is an admin. Output is stored
outside the records, and the gateway judges by the same owner. Source:
    docs/design/semantics.md#rights-and-names. Out of scope: secrets (`redaction`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from iris_core.access.rights import Verb, may
from iris_core.admission.jobs import MASK
from iris_core.messages.gateway_state import Caller
from iris_core.spec.jobs import JobSpec
from iris_core.spec.serving import RouteTemplate
from iris_core.views.deployments import DeploymentView
from iris_core.views.jobs import (
    ActorView,
    AttemptPage,
    AttemptView,
    JobView,
    Page,
    TaskView,
    TreeView,
    View,
)

NOT_YOURS = "(only the owner of the job and admins read this)"
_Code = TypeVar("_Code", JobSpec, RouteTemplate)


def shown(caller: Caller, view: Any) -> Any:
    """The view without what its caller may not see."""
    if may(caller, Verb.READ_CODE) and may(caller, Verb.READ_ORIGIN):
        return view
    _hide_origins(caller, view)
    return _for_caller(caller, view)


def _hide_origins(caller: Caller, view: Any) -> None:
    """Remove the addresses and token names of other users, wherever an actor is shown."""
    if isinstance(view, ActorView):
        if not may(caller, Verb.READ_ORIGIN, view.user):
            view.token = view.address = None
    elif isinstance(view, View):
        for name in view.__struct_fields__:
            _hide_origins(caller, getattr(view, name))
    elif isinstance(view, list | dict):
        for part in view.values() if isinstance(view, dict) else view:
            _hide_origins(caller, part)


def _for_caller(caller: Caller, view: Any) -> Any:
    hide = _HIDE.get(type(view))
    owner = view.get("user") if isinstance(view, dict) else getattr(view, "user", None)
    return view if hide is None or may(caller, Verb.READ_CODE, owner) else hide(caller, view)


def _job(caller: Caller, view: JobView) -> JobView:
    return replace(view, spec=replace(_without_code(view.spec), calls=None))


def _deployment(caller: Caller, view: DeploymentView) -> DeploymentView:
    return replace(view, spec=replace(view.spec, template=_without_code(view.spec.template)))


def _tree(caller: Caller, view: TreeView) -> TreeView:
    children = [_tree(caller, child) for child in view.children]
    return replace(view, job=_for_caller(caller, view.job), children=children)


def _task(caller: Caller, view: TaskView) -> TaskView:
    return replace(view, attempts=[_without_output(attempt) for attempt in view.attempts])


def _attempts(caller: Caller, view: AttemptPage) -> AttemptPage:
    return replace(view, items=[_without_output(attempt) for attempt in view.items])


def _page(caller: Caller, view: Page) -> Page:
    return replace(view, items=[_for_caller(caller, item) for item in view.items])


def _why(caller: Caller, view: dict[str, Any]) -> dict[str, Any]:
    causes = [replace(cause, line=NOT_YOURS, last_lines=[]) for cause in view.get("causes", ())]
    return {**view, "causes": causes} if causes else view


def _without_code(spec: _Code) -> _Code:
    bundle = MASK if spec.bundle is not None else None
    return replace(spec, env=dict.fromkeys(spec.env, MASK), bundle=bundle)


def _without_output(view: AttemptView) -> AttemptView:
    if not view.stderr_tail and view.artifact is None:
        return view
    return replace(view, stderr_tail=view.stderr_tail and NOT_YOURS, artifact=None)


_HIDE: dict[type, Callable[[Caller, Any], Any]] = {
    JobView: _job,
    DeploymentView: _deployment,
    TreeView: _tree,
    TaskView: _task,
    AttemptPage: _attempts,
    Page: _page,
    dict: _why,
}
