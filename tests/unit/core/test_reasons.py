"""The messages of all reasons why tasks wait."""

from __future__ import annotations

import pytest

from iris_core.codec import pack, to_json, unpack
from iris_core.placement import reasons
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.quota import QUOTA_LIMITS
from iris_core.spec.resources import RESOURCE

GIB = 1 << 30

EXAMPLES = [
    (reasons.array_limit(20), "its job runs at most 20 tasks at a time (max_parallel)"),
    (
        reasons.slice_coming({"slice": "v5e-7", "pool": "v5e", "status": "creating"}, 40),
        "waits for slice v5e-7: creating, requested 40s ago",
    ),
    (
        reasons.slice_coming(
            {"slice": "v5e-7", "status": "requested", "p50_s": 180.0, "p90_s": 240.0}, 60
        ),
        "waits for slice v5e-7: requested, requested 1m ago; in this pool slices take 3m (p50), 4m (p90)",
    ),
    (reasons.NOT_YET_LOOKED_AT, "not yet considered by the scheduler"),
    (reasons.no_workers({}), "no workers are registered"),
    (
        reasons.no_workers({"degraded": 2}, "w0 is degraded: 3 starts in a row failed: no space"),
        "no worker that matches takes work: 2 degraded; w0 is degraded: 3 starts in a row failed: no space",
    ),
    (
        reasons.no_workers({"draining": 2, "degraded": 1}),
        "no worker that matches takes work: 2 draining, 1 degraded",
    ),
    (
        reasons.no_match(10, {"zone eq eu-1": 7, "device-type eq tpu": 3}),
        "none of 10 workers matches: 'zone eq eu-1' removes 7, 'device-type eq tpu' removes 3",
    ),
    (
        reasons.over_quota("ann", QUOTA_LIMITS[0], 8000, 8000),
        "ann runs 8 of at most 8 of cpu; others of the band go first",
    ),
    (
        reasons.not_enough(RESOURCE["cpu_millis"], 8000, 500, 3, 4, 16000),
        "not enough cpu: asks for 8, the best worker has 0.5 free; 3 of 4 matching workers short of it",
    ),
    (
        reasons.not_enough(RESOURCE["memory_bytes"], 8 * GIB, GIB, 1, 1, 4 * GIB),
        "not enough memory: asks for 8GiB, the best worker has 1GiB free; no matching worker is that large",
    ),
    (
        reasons.not_enough(RESOURCE["disk_bytes"], 2 * GIB, 0, 1, 1, 4 * GIB),
        "not enough disk: asks for 2GiB, the best worker has 0B free; 1 of 1 matching worker short of it",
    ),
    (
        reasons.not_enough(RESOURCE["chips"], 4, 0, 2, 2, 4),
        "not enough chips: asks for 4, the best worker has 0 free; 2 of 2 matching workers short of it",
    ),
    (
        reasons.building_window_full(1),
        "1 worker with room for it prepare or run as many tasks as they may at once",
    ),
    (
        reasons.gang_needs_group("tpu-name", 4, "slice-b", 3, 4),
        "needs 4 workers free at once with the same tpu-name; the best group, slice-b, has 3 of 4",
    ),
    (
        reasons.gang_needs_group("rack", 4, "", 0, 0),
        "needs 4 workers free at once with the same rack; no matching worker has rack",
    ),
    (
        reasons.gang_needs_group("rack", 4, "r2", 3, 3, outside=[("block", "b1", 6)]),
        "no rack has 4 free hosts; the best, r2, has 3 of 3; block b1 has 6",
    ),
    (reasons.gang_needs_group("", 4, "", 3, 8), "needs 4 workers free at once; 3 of 8 are"),
    (reasons.behind(1), "behind 1 task that came first"),
    (
        reasons.waiting_for_victim(["a", "b", "c", "d"]),
        "waits for preempted work to stop on a, b, c and 1 more",
    ),
    (
        reasons.reserved_for_gang("/big", 4),
        "4 workers with room for it kept for /big, which has waited longer",
    ),
    (
        reasons.host_reserved("w1", ["/small/0", "/small/1"], 1_700_000_000_000),
        "w1 is reserved for it and waits for /small/0, /small/1 there to end, "
        "at the latest at 2023-11-14 22:13:20 UTC",
    ),
    (
        reasons.reserved_for_task("/large", "w1"),
        "w1, which has room for it, is kept for /large, which has waited longer",
    ),
    (reasons.delayed(5, "it just failed there"), "delayed: it just failed there"),
    (reasons.waits_for_job("/prep (j3)", "ok"), "waits for /prep (j3) to succeed"),
    (
        reasons.waits_for_job("/prep (j3)", "notok", each=True),
        "each task waits for its counterpart in /prep (j3) to end without success",
    ),
    (reasons.not_before(1_000), "not before 1970-01-01 00:00:01 UTC"),
    (
        reasons.singleton("nightly", "/a (j1)"),
        "waits for /a (j1) to end, which has the same singleton key nightly",
    ),
    (reasons.held("mia", "broken data"), "held by mia: broken data"),
    (reasons.held(""), "held since its submission"),
    (reasons.retry_backoff(2_000), "is tried again at 1970-01-01 00:00:02 UTC"),
    (
        reasons.protected(["/a"], 2_000),
        "waits until /a may be preempted at 1970-01-01 00:00:02 UTC (protect)",
    ),
]


@pytest.mark.parametrize(("reason", "words"), EXAMPLES)
def test_a_reason_reads_as_a_sentence(reason: Reason, words: str) -> None:
    assert reason.message == words


@pytest.mark.parametrize(("reason", "words"), EXAMPLES)
def test_a_reason_survives_the_way_to_the_state_service_and_to_people(
    reason: Reason, words: str
) -> None:
    assert unpack(pack(reason), Reason) == reason
    assert words.encode() in to_json(reason)


def test_every_kind_of_waiting_has_words() -> None:
    short = {reasons.not_enough(resource, 2, 1, 1, 1, 4).code for resource in RESOURCE.values()}
    assert {reason.code for reason, _ in EXAMPLES} | short == set(ReasonCode)
