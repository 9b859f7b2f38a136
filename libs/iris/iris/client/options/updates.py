"""The options of `Client.update`, as fields of a specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from iris.client.options.jobs import read_time
from iris.client.problems import InvalidOption
from iris_core.spec.jobs import BandName


class UpdateOptions(TypedDict, total=False):
    """What of a job changes; what is left out stays.

    ``timeout``: seconds or a text like ``2h``, from the start of each task; None or ``none``: no
    limit. ``max_parallel``: None or ``all``: no limit. ``labels``: merged into the job's; None
        takes one away.
    """

    band: BandName
    timeout: float | str | None
    max_parallel: int | Literal["all"] | None
    max_retries_failure: int
    max_retries_preemption: int
    max_requeues: int
    labels: Mapping[str, str | None]


def job_changes(options: UpdateOptions) -> dict[str, object]:
    """The merge patch of a specification. Raises InvalidOption."""
    changes: dict[str, object] = dict(options)
    if "timeout" in options:
        timeout = changes.pop("timeout")
        changes["timeout_s"] = (
            None if timeout == "none" else read_time(options["timeout"], "timeout")
        )
    if "max_parallel" in options:
        changes["max_parallel"] = _read_limit(options["max_parallel"])
    return changes


def _read_limit(given: int | str | None) -> int | None:
    if given is None or given == "all":
        return None
    try:
        return int(given)
    except ValueError:
        raise InvalidOption(
            f"max_parallel: {given!r} is not a number of tasks; write for example 4, or all"
        ) from None
