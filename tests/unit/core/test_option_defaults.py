"""The defaults that the help of an option states are those of the fields it gives."""

import pytest

from iris_core.moments import parse_duration, show_duration
from iris_core.spec.option_table import DeployOptions, JobOptions, PoolOptions, rows_of


@pytest.mark.parametrize(
    ("options", "name", "default"),
    [
        (JobOptions, "max_retries_preemption", "100"),
        (JobOptions, "max_backoff", "5m"),
        (JobOptions, "band", "interactive"),
        (JobOptions, "max_parallel", "all"),
        (JobOptions, "timeout", ""),
        (JobOptions, "hold", ""),
        (DeployOptions, "replicas", "1"),
        (DeployOptions, "start_timeout", "10m"),
        (DeployOptions, "probe_initial_delay", "0s"),
        (DeployOptions, "probe_tcp", ""),
        (DeployOptions, "target_outstanding", "1"),
        (DeployOptions, "pause_after", ""),
        (PoolOptions, "min", "0"),
        (PoolOptions, "max", ""),
        (PoolOptions, "idle", "10m"),
        (PoolOptions, "boot_timeout", "15m"),
        (PoolOptions, "capacity", "on_demand"),
        (PoolOptions, "only", "device where hosts have one"),
    ],
)
def test_an_option_states_the_default_of_its_field(options, name, default):
    row = next(row for row in rows_of(options) if row.name == name)
    assert row.default == default
    assert row.help.endswith(f"  [default: {default}]") == bool(default)


@pytest.mark.parametrize("text", ["0s", "0.5s", "90s", "1m", "11m", "36h", "2d"])
def test_a_duration_is_shown_as_it_is_read(text):
    assert show_duration(parse_duration(text)) == text
