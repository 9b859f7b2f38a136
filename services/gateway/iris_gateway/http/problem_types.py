"""The table of problem types: every refusal of the API, with its status, its meaning and what the
caller can do.

The code is the last segment of the type's URI and the member ``code`` of a problem document. The
gateway serves the table at ``/problems``, `make draw` writes it to docs/problems.md.
Source: docs/design/page.md#components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PROBLEMS = "/problems"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One row.

    Attributes:
        title: short, and the same for each problem of the type.
        meaning: when a request is answered so. remedy: what the caller can do about it.
        section: of docs/troubleshooting.md, when it explains more.
        retry_after_s: seconds after which a retry may succeed; 0: a retry is answered the same.
        for_readers: what somebody who met it on a page can do, when that differs from ``remedy``.
    """

    status: int
    title: str
    meaning: str
    remedy: str
    section: str = ""
    retry_after_s: int = 0
    for_readers: str = ""


PROBLEM_TYPES: Mapping[str, ProblemType] = {
    "malformed": ProblemType(
        400,
        "Not understood",
        "The body is not JSON, a header does not have its form, or the request is not valid HTTP.",
        "Correct the request; the detail names the place.",
        for_readers="The address or the form has an invalid value. Go back and choose again.",
    ),
    "unauthenticated": ProblemType(
        401,
        "Authentication required",
        "The gateway has tokens, and the request has none, or one that the gateway does not know.",
        "Set IRIS_TOKEN, or the token of the context; that of a local cluster is in the file token of its data "
        "directory. An operator adds the token's line to token_file.",
        section="a-request-is-answered-with-401-or-403",
    ),
    "forbidden": ProblemType(
        403,
        "Not allowed",
        "The caller is known and may not do this, or a page of another site sent the request.",
        "Let the owner or an admin do it; the detail says who may.",
        section="a-request-is-answered-with-401-or-403",
        for_readers="Ask the owner or an admin to do it. A form sends nothing from a page of another site: open the "
        "page here and try again.",
    ),
    "not_found": ProblemType(
        404,
        "Not found",
        "There is no object of that name or id, or no such path. Ended jobs are deleted after a time.",
        "Compare the name with iris ls. In a path, the slashes of a name are percent-encoded.",
        for_readers="The address may be mistyped, or it ended long ago: ended jobs are deleted after a time. The "
        "search above finds what there is.",
    ),
    "method_not_allowed": ProblemType(
        405,
        "Method not allowed",
        "The path exists and does not take this method.",
        "Use a method that the header Allow lists.",
        for_readers="This address shows no page. Go back to the page you came from.",
    ),
    "timeout": ProblemType(
        408,
        "Too slow",
        "The head or the body did not arrive in time.",
        "Send the request again; look at the network when that is slow too.",
        retry_after_s=1,
        for_readers="The connection was too slow. Try again.",
    ),
    "conflict": ProblemType(
        409,
        "Conflict",
        "The present state does not allow it: an object of that name exists, or has ended, or is what you ask for.",
        "Read the object that the detail names; then choose another name, or end or keep the present object.",
        section="a-submission-is-answered-with-409",
        for_readers="Something has changed since the page was opened. Go back, reload it and look at its present "
        "state.",
    ),
    "idempotency_mismatch": ProblemType(
        409,
        "This key was used for something else",
        "The idempotency key belongs to an earlier job whose specification differs; the answer lists the fields.",
        "Use a new key for a new job, or send the earlier specification.",
        section="a-submission-is-answered-with-409",
    ),
    "parent_ended": ProblemType(
        409,
        "The parent has ended",
        "The job that this one would be a child of has ended, and no longer accepts children.",
        "Submit it under a job that runs, or as a root job.",
        section="a-submission-is-answered-with-409",
    ),
    "gone": ProblemType(
        410,
        "No longer kept",
        "What the request needs of events, results, output or code was deleted, because it is kept for a time only, or "
        "to make room where its owner held most, or "
        "its position (Last-Event-ID, after) is beyond the end of the stream.",
        "Read the stream again without a position; run the job again from its directory.",
        for_readers="It was kept for a time only, and is deleted. Nothing brings it back.",
    ),
    "precondition_failed": ProblemType(
        412,
        "Changed since",
        "The deployment or job has changed since the answer whose ETag is in If-Match.",
        "Read it again, and repeat the change with the new ETag if it is still wanted.",
    ),
    "too_large": ProblemType(
        413,
        "Too large",
        "The body is longer than the gateway accepts: body_bytes or bundle_bytes of [gateway].",
        "Send less: keep data out of the specification and of the working directory.",
    ),
    "unsupported_media_type": ProblemType(
        415,
        "Unsupported media type",
        "The body has another Content-Type than this path takes, or the one of an HTML form.",
        "Send Content-Type: application/json, or what the header Accept names.",
    ),
    "invalid": ProblemType(
        422,
        "Invalid request",
        "Fields or parameters have invalid values; errors lists all of them, each with its place.",
        "Correct each of them; its hint says what would be valid.",
        for_readers="Go back, correct what is named above, and send it again.",
    ),
    "over_quota": ProblemType(
        429,
        "Over quota",
        "The job or bundle would take the user over a limit, or there are as many deployments as there may be.",
        "Wait until earlier jobs have ended, or ask an operator; iris quota show prints limits and use.",
        retry_after_s=30,
        for_readers="Wait until earlier jobs have ended, or ask an operator for more. The page Users shows limits and "
        "use.",
    ),
    "too_many_requests": ProblemType(
        429,
        "Too many requests",
        "The user sends requests or bytes faster than the gateway allows, or has too many streams or uploads open, or "
        "the address has too many connections.",
        "Send the request again after Retry-After; close streams that nobody reads.",
        retry_after_s=1,
        for_readers="Too much was asked for at once, perhaps by many open pages. Wait a moment, then try again.",
    ),
    "head_too_large": ProblemType(
        431,
        "The request is too long",
        "The target or the header fields are longer, or more, than the gateway accepts.",
        "Send fewer or shorter header fields and parameters; put long values in the body.",
    ),
    "internal": ProblemType(
        500,
        "Something broke",
        "A bug of the gateway or of the state service.",
        "Report it with the traceback, which is in the log of one of them, the gateway's by request_id.",
        section="irisgatewayerrors",
        for_readers="This is a fault of Iris, not yours. Try again; if it comes back, tell your operator the number "
        "of the request.",
    ),
    "unavailable": ProblemType(
        503,
        "Try again",
        "The state service, the scheduler or NATS cannot be reached, or has not answered in time.",
        "Send it again after Retry-After with the same idempotency key, as the command line and the SDK do themselves.",
        section="a-submission-is-answered-with-503",
        retry_after_s=1,
        for_readers="A part of Iris is starting again or cannot be reached. Running jobs go on. This usually passes "
        "within seconds: try again.",
    ),
}
"""By code: those of `iris_core.errors.Code` are refusals of the state service, the others are the
gateway's own.
"""


def uri_of(code: str) -> str:
    """The URI of a problem type, relative to the gateway's address."""
    return f"{PROBLEMS}/{code}"
