"""The early no: what can be refused about a submission without asking anyone.

The state service judges again, by the same `iris_core.admission` rules and with the records at hand; this saves its
time and gives the caller every mistake at once. Source: docs/ARCHITECTURE.md#the-path-of-one-job, step 1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iris_core.admission import validate_spec
from iris_core.errors import Mistake
from iris_core.messages import Caller
from iris_core.spec import JobSpec
from iris_gateway.problem import ProblemResponse, invalid
from iris_gateway.validation import escape, huge_integers, shape_mistakes

_decoder = msgspec.json.Decoder(JobSpec)
_STAND_INS: dict[str, Any] = {"name": "/x", "command": ["true"]}


def spec_from(body: bytes, caller: Caller) -> JobSpec:
    """The specification in a request's body, in the name of whoever sends it. Raises ProblemResponse.

    A body that decodes is judged by the rules; one that does not is taken apart, so that its shape's mistakes and
    those of its sound fields come in one answer.
    """
    try:
        spec = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(_all_mistakes(json_from(body))) from None
    spec = rooted(spec)
    if mistakes := [*validate_spec(spec), *_huge_operands(spec)]:
        raise invalid(mistakes)
    return owned(spec, caller)


def rooted(spec: JobSpec) -> JobSpec:
    """A name without its leading slash is that of a root job, as on the command line."""
    return spec if spec.name.startswith("/") else msgspec.structs.replace(spec, name=f"/{spec.name}")


def owned(spec: JobSpec, caller: Caller) -> JobSpec:
    """The specification with its user filled in; nobody submits for another but an admin. Raises ProblemResponse."""
    if caller.role == "worker":
        raise ProblemResponse("forbidden", "a worker's token submits nothing")
    if spec.user and spec.user != caller.user and caller.role != "admin":
        raise ProblemResponse("forbidden", f"{caller.user} may not submit for {spec.user[:80]}")
    return spec if spec.user else msgspec.structs.replace(spec, user=caller.user)


def json_from(body: bytes) -> Any:
    """The JSON value in a body. Raises ProblemResponse malformed, saying where it stops being JSON."""
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise ProblemResponse("malformed", f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ProblemResponse("malformed", "the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ProblemResponse("malformed", f"the body is not JSON: {error}") from None


def _all_mistakes(value: Any) -> list[Mistake]:
    mistakes = shape_mistakes(value, JobSpec)
    if not isinstance(value, dict):
        return mistakes
    wrong = {_field(mistake) for mistake in mistakes}
    sound = _STAND_INS | {name: item for name, item in value.items() if escape(name) not in wrong}
    spec = msgspec.convert(sound, JobSpec)
    return mistakes + [mistake for mistake in validate_spec(spec) if _field(mistake) not in wrong]


def _field(mistake: Mistake) -> str:
    return mistake.pointer.split("/")[1] if mistake.pointer else ""


def _huge_operands(spec: JobSpec) -> list[Mistake]:
    """Operands of constraints that no message between services can carry."""
    if not spec.constraints:
        return []
    return huge_integers(msgspec.to_builtins(spec.constraints), "/constraints")
