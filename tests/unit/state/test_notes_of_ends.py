"""What is odd about an attempt that has succeeded is said, so that nobody believes its work is
done.
"""

from iris_core.messages.state_worker import TaskUsage
from iris_state.records.entities import Attempt
from iris_state.views.work.notices import note_of_killed_part


def attempt(limit_bytes: int) -> Attempt:
    usage = TaskUsage(cpu_ms=10, memory_limit_bytes=limit_bytes)
    return Attempt(number=0, worker="w0", assigned_ms=1, since_ms=1, usage=usage)


def test_a_kill_for_memory_that_a_script_swallows_is_said():
    assert note_of_killed_part(attempt(64 << 20)) == (
        "a process of it was killed at its memory limit of 64MiB, and its command went on: "
        "its work may be incomplete; ask for more with --memory"
    )
    assert note_of_killed_part(attempt(0)) == ""
