"""Changes of a submitted job: a merge patch (RFC 7396) of its specification.

Out of scope: what a change must pass and what follows from it (the state service).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core.admission.actions import ReasonText
from iris_core.admission.amendments import AMENDABLE, unchangeable
from iris_core.codec import to_json
from iris_core.errors import Mistake
from iris_core.messages.gateway_state import AmendJob, Answer
from iris_core.spec.jobs import BandName, Dependency, JobSpec, ParallelTasks, RetryCount, Seconds
from iris_gateway.api.handling import expected_version, json_body, request_key, tagged
from iris_gateway.commands import UNSENT
from iris_gateway.dispatch.endpoint import Call
from iris_gateway.http.parameters import job_reference
from iris_gateway.http.problem import invalid


class JobPatch(msgspec.Struct, forbid_unknown_fields=True):
    """What of a job changes: fields of its specification; those left out stay.

    Attributes:
        hold: keep its pending tasks out of the queue, or no longer. reason: why it is held.
        after: only an empty list, which drops its dependencies.
        stop: with a hold, what runs is stopped too, uncharged.
        timeout_s: counted from the start of each task, also of those that run; null: none.
        max_parallel: what runs above it goes on, and nothing more starts; null: all tasks.
        labels: merged into those of the job; null takes one away.
    """

    hold: bool | None = None
    reason: ReasonText = ""
    after: (
        Annotated[tuple[Dependency, ...], msgspec.Meta(extra_json_schema={"maxItems": 0})] | None
    ) = None
    stop: bool = False
    band: BandName | msgspec.UnsetType = msgspec.UNSET
    timeout_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    max_parallel: ParallelTasks | msgspec.UnsetType | None = msgspec.UNSET
    max_retries_failure: RetryCount | msgspec.UnsetType = msgspec.UNSET
    max_retries_preemption: RetryCount | msgspec.UnsetType = msgspec.UNSET
    max_requeues: RetryCount | msgspec.UnsetType = msgspec.UNSET
    labels: dict[str, str | None] | msgspec.UnsetType = msgspec.UNSET

    @property
    def of_spec(self) -> bytes:
        """The merge patch of the specification; empty when it changes nothing there."""
        given = {field: getattr(self, field) for field in AMENDABLE}
        given = {field: value for field, value in given.items() if value is not msgspec.UNSET}
        return to_json(given) if given else b""


_FIXED = frozenset(JobSpec.__struct_fields__) - frozenset(JobPatch.__struct_fields__)


async def amend(call: Call) -> Response:
    """Change a job by the patch in the body."""
    job = job_reference(call.segment("job"), call.of_user)
    version = expected_version(call)
    body = await json_body(call, JobPatch, explain=_explained)
    return tagged((await send_amend(call, job, body, version, key=request_key(call))).body)


def _explained(mistake: Mistake) -> Mistake:
    """Says of fields that a submitted job keeps how to submit it with others."""
    field = mistake.pointer.removeprefix("/")
    return unchangeable(field) if field in _FIXED else mistake


async def send_amend(call: Call, job: str, patch: JobPatch, version: int, key: str = "") -> Answer:
    """Change a job as the caller; ``version`` 0: whatever its present one. Raises Problem."""
    if patch.after:
        wrong = Mistake(
            pointer="/after", code="unexpected", message="dependencies are only dropped", hint="[]"
        )
        raise invalid([wrong])
    if patch.stop and not patch.hold:
        wrong = Mistake(
            pointer="/stop",
            code="unexpected",
            message="only a job that is held is stopped",
            hint="hold",
        )
        raise invalid([wrong])
    command = AmendJob(
        job,
        call.caller,
        *UNSENT,
        hold=patch.hold,
        reason=patch.reason,
        drop_after=patch.after is not None,
        version=version,
        stop=patch.stop,
        patch=patch.of_spec,
    )
    return await call.command(command, key=key)
