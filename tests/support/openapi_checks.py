"""What Schemathesis checks of the gateway besides its own: a request that the schema allows is
accepted, unless what is wrong relates several parts of it, or needs more than a schema.

Loaded by `schemathesis` itself (SCHEMATHESIS_HOOKS). Source:
    docs/adr/0061-one-struct-for-each-query.md#limits.
"""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import RejectedPositiveData, positive_data_acceptance

BETWEEN_FIELDS = frozenset(
    (
        *(
            "unexpected",
            "missing",
            "duplicate",
            "twice",
            "masked",
            "unchangeable",
            "not_one_change",
            "not_a_route",
        ),
        *(
            "no_bundle",
            "no_such_bundle",
            "unknown_job",
            "open_job",
            "other_size",
            "wrong_size",
            "not_a_script",
        ),
        *(
            "unknown_port",
            "no_room",
            "too_short",
            "ordering_on_string",
            "not_whole",
            "not_a_line",
            "too_many_chips",
        ),
        *(
            "bad_alternatives",
            "unlike_alternatives",
            "unknown_variant",
            "needs_tpu",
            "needs_slices",
            "needs_variant",
        ),
        *(
            "replicas_not_vm_count",
            "unequal_slices",
            "slices_need_a_group",
            "tpu_is_innermost",
            "number_of_levels",
        ),
        *("unknown_project", "not_of_parent", "no_member"),
        *("unknown_target", "bad_webhook", "no_mail", "bad_address"),
        *("not_of_path", "not_of_variant", "not_settable", "conflict"),
    )
)
"""Codes of mistakes between fields, or between a field and what there is."""
PARSED = frozenset({"bad_code", "bad_indexes", "bad_module", "bad_path", "bad_query", "bad_time"})
"""Codes of texts that a pattern describes in part only: ascending ranges, Python names, plain
paths, moments.
"""
MERGED = re.compile(r"/(template|update|scaling|proxy)(/.*)?", re.DOTALL)
"""The parts of a deployment's patch, which the document calls objects: what they are merged with
says what fits.
"""
COMPARED = re.compile(
    r".*/(cpu_limit_millis|scaling/\w+|probe/command)|/indexes|/notice/before_s|/calls/(segments|count)"
    r"|/(min|buffer)"
)
"""Fields that are compared with others, and so are empty or out of a range that depends on
those.
"""
RELATIVE = frozenset({"empty", "out_of_range", "too_large"})
"""Codes of mistakes in those."""
OPTIONS = re.compile(r"/options/.*", re.DOTALL)
"""The options of a pool's provider, which the document calls an object: each provider has its own."""
OPAQUE = (
    *(
        "not a cursor of this listing",
        "this cursor is not from a page of events",
        "the digest does not match",
    ),
    *("specify what to hold", " is not a child of "),
)
"""Refusals of what the gateway has not said before, of bytes that have another digest, of a hold on
nothing, of another parent than the one in the name.
"""


@schemathesis.check
def schema_valid_data_is_accepted(ctx: Any, response: Any, case: Any) -> bool | None:
    """Raises RejectedPositiveData."""
    try:
        return positive_data_acceptance(ctx, response, case)
    except RejectedPositiveData:
        if not is_beyond_a_schema(response.json(), is_patch=case.method == "PATCH"):
            raise
    return None


def is_beyond_a_schema(problem: dict[str, Any], *, is_patch: bool) -> bool:
    """Whether a refusal is about more than single fields."""
    if problem["code"] in ("gone", "precondition_failed") or any(
        words in problem["detail"] for words in OPAQUE
    ):
        return True
    mistakes = problem.get("errors", [])
    return bool(mistakes) and all(
        mistake["code"] in BETWEEN_FIELDS | PARSED
        or (is_patch and MERGED.fullmatch(mistake["pointer"]) is not None)
        or OPTIONS.fullmatch(mistake["pointer"]) is not None
        or (mistake["code"] in RELATIVE and COMPARED.fullmatch(mistake["pointer"]) is not None)
        for mistake in mistakes
    )
