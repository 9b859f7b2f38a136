"""Requests to deployments by minute, in memory."""

from iris_core.messages.proxy_state import DeploymentRequests
from iris_core.spec.serving import LATENCY_MS
from iris_state.records.deployments.request_minutes import KEPT, RequestMinutes

MINUTE_MS = 60_000
LATENCY = (0, 3, *(0 for _ in LATENCY_MS[1:]))


def report(answered: int, failed: int = 0) -> DeploymentRequests:
    return DeploymentRequests("chat", answered, {}, answered, failed, LATENCY)


def test_reports_of_one_minute_are_added_up_and_an_hour_is_kept():
    minutes = RequestMinutes()
    for minute in range(KEPT + 5):
        for second in (1, 30):
            minutes.note(1, report(10, failed=1), minute * MINUTE_MS + second * 1000)
    found = minutes.of(1, (KEPT + 4) * MINUTE_MS)
    assert [one.number for one in found] == list(range(5, KEPT + 5))
    assert (found[0].arrived, found[0].answered, found[0].failed, found[0].latency[:2]) == (
        20,
        20,
        2,
        [0, 6],
    )
    assert [one.number for one in minutes.of(1, 3 * KEPT * MINUTE_MS)] == []


def test_reports_without_answers_or_with_a_clock_stepped_back_are_counted():
    minutes = RequestMinutes()
    minutes.note(1, report(1), 5 * MINUTE_MS)
    minutes.note(1, DeploymentRequests("chat", 2), 4 * MINUTE_MS)
    assert [(one.number, one.arrived, one.answered) for one in minutes.of(1, 5 * MINUTE_MS)] == [
        (5, 3, 1)
    ]


def test_a_deployment_that_is_gone_is_forgotten():
    minutes = RequestMinutes()
    minutes.note(1, report(1), 0)
    minutes.forget(1)
    assert minutes.of(1, 0) == []
