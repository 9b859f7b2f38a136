"""The order of pending tasks: Progress Guarantee's spiral tests by name, and the queue against a
sorted list.
"""

from __future__ import annotations

import time

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iris_core.names import JobName
from iris_core.placement.priority import PriorityKey, priority_key
from iris_core.placement.queue import TaskQueue, as_ranges
from iris_core.states import PriorityBand

INTERACTIVE, PRODUCTION, BATCH = (
    PriorityBand.INTERACTIVE,
    PriorityBand.PRODUCTION,
    PriorityBand.BATCH,
)


def queue_of(*jobs: tuple[int, PriorityKey, int]) -> TaskQueue:
    """A queue of (job, key, tasks)."""
    queue = TaskQueue()
    for job, key, tasks in jobs:
        queue.add(job, key, [(0, tasks)])
    return queue


def key(
    sequence: int,
    name: str = "/a",
    root_ms: int = 0,
    at_ms: int = 0,
    band: PriorityBand = INTERACTIVE,
) -> PriorityKey:
    return priority_key(band, JobName.from_string(name).depth, root_ms, at_ms, sequence)


def test_the_example_of_the_progress_guarantee_comes_out_in_its_order() -> None:
    queue = queue_of(
        (1, key(1, "/train", 0, 0), 1),
        (2, key(2, "/train/eval-1", 0, 1), 1),
        (3, key(3, "/train/eval-2", 0, 1), 1),
        (4, key(4, "/inference", 2, 2), 1),
        (5, key(5, "/train/eval-1/score", 0, 3), 1),
    )
    assert list(queue.jobs()) == [5, 2, 3, 1, 4]


def test_deeper_jobs_scheduled_before_shallow() -> None:
    queue = queue_of((1, key(1, "/root"), 1), (2, key(2, "/root/child"), 1))
    assert list(queue) == [(2, 0), (1, 0)]


def test_older_root_tree_preferred_at_same_depth() -> None:
    queue = queue_of(
        (2, key(2, "/user-b-job", 2000, 2000), 1), (1, key(1, "/user-a-job", 1000, 1000), 1)
    )
    assert list(queue.jobs()) == [1, 2]


def test_child_of_older_tree_beats_root_of_newer_tree() -> None:
    queue = queue_of(
        (1, key(1, "/old-tree", 1000, 1000), 1),
        (2, key(2, "/new-tree", 2000, 2000), 1),
        (3, key(3, "/old-tree/child", 1000, 3000), 1),
    )
    assert list(queue.jobs()) == [3, 1, 2]


def test_fifo_within_same_depth_and_tree() -> None:
    queue = queue_of(
        (2, key(2, "/tree/child-b", 500, 2000), 1), (1, key(1, "/tree/child-a", 500, 1000), 1)
    )
    assert list(queue.jobs()) == [1, 2]


def test_jobs_of_the_same_moment_come_in_the_order_of_admission() -> None:
    queue = queue_of((9, key(9, at_ms=5), 2), (8, key(8, at_ms=5), 2))
    assert list(queue) == [(8, 0), (8, 1), (9, 0), (9, 1)]


def test_a_higher_band_comes_before_a_deeper_job() -> None:
    queue = queue_of(
        (1, key(1, "/a/b/c"), 1), (2, key(2, "/p", band=PRODUCTION), 1), (3, key(3, band=BATCH), 1)
    )
    assert list(queue.jobs()) == [2, 1, 3]


def test_requeued_task_maintains_priority() -> None:
    queue = queue_of((1, key(1, at_ms=1), 2), (2, key(2, at_ms=2), 1))
    queue.remove(1, 0)
    queue.add(1, key(1, at_ms=1), [(0, 1)])
    assert list(queue) == [(1, 0), (1, 1), (2, 0)]


def test_priority_queue_with_many_tasks() -> None:
    queue = TaskQueue()
    started = time.process_time()
    for job in range(10_000):
        queue.add(job, key(job, at_ms=(job * 7919) % 10_000), [(0, 1)])
    order = [job for job, _ in queue]
    assert time.process_time() - started < 1.0
    assert order == sorted(range(10_000), key=lambda job: ((job * 7919) % 10_000, job))


def test_a_position_counts_the_tasks_before() -> None:
    queue = queue_of((1, key(1), 3), (2, key(2), 5), (3, key(3), 1))
    assert [queue.position(1), queue.position(2, 4), queue.position(3)] == [0, 7, 8]


def test_pages_continue_behind_a_key() -> None:
    queue = queue_of((1, key(1), 1), (2, key(2), 1), (3, key(3), 1))
    assert list(queue.jobs(after=key(1))) == [2, 3]


def test_what_does_not_wait_cannot_be_taken_out() -> None:
    queue = queue_of((1, key(1), 2))
    assert (queue.remove(1, 2), queue.remove(7, 0), len(queue)) == (False, False, 2)


def test_ranges_are_joined_where_they_touch() -> None:
    assert as_ranges([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 6), (7, 9))


class QueueAgainstASortedList(RuleBasedStateMachine):
    """Whatever is done, the queue equals a set of tasks sorted by their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TaskQueue()
        self.waiting: set[tuple[int, int]] = set()

    @staticmethod
    def key_of(job: int) -> PriorityKey:
        return key(job, root_ms=job % 3, at_ms=job % 5, band=PriorityBand(1 + job % 3))

    jobs = st.integers(0, 12)
    indexes = st.integers(0, 40)

    @rule(job=jobs, start=indexes, count=st.integers(0, 30))
    def add(self, job: int, start: int, count: int) -> None:
        new = {(job, i) for i in range(start, start + count)} - self.waiting
        assert self.queue.add(job, self.key_of(job), [(start, start + count)]) == len(new)
        self.waiting |= new

    @rule(job=jobs, index=indexes)
    def remove(self, job: int, index: int) -> None:
        assert self.queue.remove(job, index) == ((job, index) in self.waiting)
        self.waiting.discard((job, index))

    @rule(job=jobs, start=indexes, count=st.integers(0, 30))
    def remove_stretch(self, job: int, start: int, count: int) -> None:
        gone = {(job, i) for i in range(start, start + count)} & self.waiting
        assert self.queue.remove_ranges(job, [(start, start + count)]) == len(gone)
        self.waiting -= gone

    @rule(job=jobs)
    def drop(self, job: int) -> None:
        gone = {task for task in self.waiting if task[0] == job}
        assert self.queue.drop(job) == len(gone)
        self.waiting -= gone

    @invariant()
    def order_length_and_positions_agree(self) -> None:
        expected = sorted(self.waiting, key=lambda task: (self.key_of(task[0]), task[1]))
        assert list(self.queue) == expected
        assert len(self.queue) == len(expected)
        assert [self.queue.position(*task) for task in expected] == list(range(len(expected)))
        self.queue.check()


TestQueueAgainstASortedList = QueueAgainstASortedList.TestCase
