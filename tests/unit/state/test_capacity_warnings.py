"""Submitting a job that no host could ever take returns a warning, consistent with the `never` of
`plan`.
"""

import msgspec
import pytest

from iris_core import codec
from iris_core.messages.gateway_state import Answer
from iris_state.views.cluster.capacity import not_held
from tests.support.script import Script

HOSTS = """
    worker c0 cpu=4
    worker s0 rack=r cpu=2
    worker s1 rack=r cpu=2
"""


def warnings(script: Script, line: str) -> list[str]:
    """What the submission of one line is answered."""
    script.play(line)
    answer = codec.unpack(list(script.world._replies.values())[-1], Answer)
    assert answer.status == "created"
    return list(msgspec.json.decode(answer.body)["warnings"])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("submit /j cpu=8", "none of 3 that match has as much cpu in all"),
        ("submit /j where=zone:eu", "none of 3 matches what it asks for"),
        ("submit /j image=lab/train:1", "none of 3 matches what it asks for"),
        ("submit /j gpu=H100", "none of 3 has gpu H100; there is no gpu or tpu"),
        ("submit /j replicas=3 gang=rack", "no group by rack has 3 workers"),
        ("submit /j replicas=2 gang=rack cpu=4", "no group by rack has 2 workers"),
        ("submit /j replicas=4 gang=rack slices=2", "no 2 groups by rack have 2 workers each"),
        ("submit /j replicas=2 gang=zone", "none of 3 that match has the attribute zone"),
        (
            "submit /j replicas=2 gang=rack slices=2 within=zone",
            "none of 3 that match has the attribute zone",
        ),
        ("submit /j replicas=2 gang=rack,row", "none of 3 that match has the attribute row"),
        (
            "submit /j replicas=4 gang=rack:preferred",
            "3 workers match and are large enough, and it needs 4 at once",
        ),
    ],
)
def test_a_job_that_no_host_could_ever_take_is_told_so_at_submission(
    script: Script, line: str, why: str
) -> None:
    script.play(HOSTS)
    (warning,) = warnings(script, line)
    assert warning.startswith("no registered worker can ever take /j: ")
    assert why in warning


def test_slices_that_fit_into_one_zone_are_not_warned_of(script: Script) -> None:
    script.play("""
        worker a rack=a zone=eu
        worker b rack=b zone=us
        worker c rack=c zone=us
    """)
    assert warnings(script, "submit /j replicas=2 gang=rack slices=2 within=zone") == []
    (warning,) = warnings(script, "submit /k replicas=3 gang=rack slices=3 within=zone")
    assert "no 3 groups by rack with the same zone have 1 workers each" in warning


@pytest.mark.parametrize(
    "line",
    [
        "submit /j cpu=4",
        "submit /j replicas=2 gang=rack",
        "submit /j replicas=3 gang=row:preferred",
        "submit /j replicas=50",
    ],
)
def test_a_job_that_would_fit_an_empty_cluster_is_not_warned_of(script: Script, line: str) -> None:
    script.play(HOSTS)
    script.play("""
        submit /busy cpu=4
        place /busy/0 c0
    """)
    assert warnings(script, line) == []


def test_no_hosts_cause_no_warning_and_lost_hosts_do_not_count(script: Script) -> None:
    assert warnings(script, "submit /early cpu=64") == []
    script.play("""
        worker c0 cpu=1
        worker big cpu=64
        lose big
    """)
    assert len(warnings(script, "submit /late cpu=64")) == 1


def test_a_job_names_the_hosts_that_do_not_hold_it_to_what_it_asks_for(script: Script) -> None:
    script.play("""
        worker w0 memory=8 limit-memory=none
        worker w1 memory=8 limit-memory=sampled
        worker w2 memory=8 limit-memory=cgroup
        submit /bound replicas=6 memory=4
        submit /free
    """)
    before = script.world.ledger.jobs[1]
    assert not_held(script.world.ledger, before) == []

    script.play("schedule")
    assert not_held(script.world.ledger, before) == [
        "memory is not limited on w0",
        "memory is limited by samples once a second on w1",
    ]
    assert not_held(script.world.ledger, script.world.ledger.jobs[2]) == []
