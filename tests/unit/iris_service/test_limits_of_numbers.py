"""Numbers that a service cannot work with are refused at its start; 0 is taken where it has a
meaning.
"""

from __future__ import annotations

import msgspec
import pytest

from iris_proxy.settings import ProxySettings
from iris_scheduler.settings import SchedulerSettings
from iris_service.settings import BadSetting, load
from iris_state.policy import Policy
from iris_worker.settings import WorkerSettings

KINDS: dict[str, type[msgspec.Struct]] = {
    "state": Policy,
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
    "proxy": ProxySettings,
}


@pytest.mark.parametrize(
    "given",
    [
        "state.scheduled_timeout_s=0",
        "state.heartbeat_interval_s=-1",
        "state.order_retry_s=-1",
        "state.prepare_tries=-1",
        "state.undelivered_limit=0",
        "state.max_building=0",
        "state.commit_burst=0",
        "state.keep_jobs=-1",
        "state.keep_days=-1",
        "state.journal_part_bytes=0",
        "state.ping_interval_s=0",
        "scheduler.answer_timeout_s=0",
        "scheduler.check_s=-1",
        "scheduler.rejected_backoff_s=0",
        "scheduler.stop_timeout_s=-1",
        "scheduler.plan_burst=0",
        "proxy.head_bytes=0",
    ],
)
def test_a_number_out_of_range_is_refused_by_its_key(given: str) -> None:
    section, _, key = given.partition("=")[0].partition(".")
    with pytest.raises(BadSetting, match=rf"command line: \[{section}\] {key}: "):
        load(None, {}, [given]).section(section, KINDS[section])


@pytest.mark.parametrize(
    "given",
    [
        "state.max_pending_tasks=0",
        "state.keep_jobs=0",
        "state.keep_days=0",
        "state.poison_workers=0",
        "state.schedule_tries=0",
        "state.commit_spacing_s=0",
        "state.forget_workers_after_s=0",
        "scheduler.gang_reservation_after_s=0",
        "scheduler.plan_spacing_s=0",
        "worker.exec_at_once=0",
        "worker.log_bytes_per_s=0",
        "proxy.queue_requests=0",
    ],
)
def test_zero_is_a_value_where_it_means_none_or_unlimited(given: str) -> None:
    section, _, key = given.partition("=")[0].partition(".")
    assert getattr(load(None, {}, [given]).section(section, KINDS[section]), key) == 0
