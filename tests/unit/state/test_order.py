"""The order of the queue of pending tasks.

docs/design/semantics.md#order by name; docs/design/semantics.md#order.
"""

import time


def test_deeper_jobs_scheduled_before_shallow(script):
    script.play("""
        submit /root
        submit /root/child
        queue       -> /root/child/0 /root/0
    """)


def test_older_root_tree_preferred_at_same_depth(script):
    script.play("""
        at 1
        submit /user-a-job
        at 2
        submit /user-b-job
        queue       -> /user-a-job/0 /user-b-job/0
    """)


def test_child_of_older_tree_beats_root_of_newer_tree(script):
    script.play("""
        at 1
        submit /old-tree
        at 2
        submit /new-tree
        at 3
        submit /old-tree/child
        queue       -> /old-tree/child/0 /old-tree/0 /new-tree/0
    """)


def test_fifo_within_same_depth_and_tree(script):
    script.play("""
        at 1
        submit /tree
        submit /tree/child-a
        at 2
        submit /tree/child-b
        queue       -> /tree/child-a/0 /tree/child-b/0 /tree/0
    """)


def test_the_example_of_the_document(script):
    script.play("""
        at 0
        submit /train
        at 1
        submit /train/eval-1
        submit /train/eval-2
        at 2
        submit /inference
        at 3
        submit /train/eval-1/score
        queue       -> /train/eval-1/score/0 /train/eval-1/0 /train/eval-2/0 /train/0 /inference/0
    """)


def test_coscheduled_jobs_respect_priority(script):
    script.play("""
        worker w0 rack=r1
        worker w1 rack=r1
        at 1
        submit /shallow replicas=2 gang=rack
        at 2
        submit /tree
        submit /tree/deep replicas=2 gang=rack
        queue       -> /tree/deep/0 /tree/deep/1 /shallow/0 /shallow/1 /tree/0
        schedule    -> placed 2
        /tree/deep/0    -> ASSIGNED
        /shallow/0      -> PENDING
    """)


def test_a_better_band_comes_before_any_depth(script):
    script.play("""
        submit /a band=batch
        submit /a/deep band=batch
        submit /b
        submit /c band=production
        queue       -> /c/0 /b/0 /a/deep/0 /a/0
    """)


def test_requeued_tasks_of_several_jobs_keep_their_places(script):
    script.play("""
        worker w0 cpu=3
        submit /a retries=1
        submit /b retries=1
        submit /c retries=1
        schedule
        /c/0 exit 1
        /a/0 exit 1
        /b/0 exit 1
        queue       -> /a/0 /b/0 /c/0
    """)


def test_unrelated_jobs_not_starved(script):
    script.play("""
        worker w0 cpu=2
        submit /big cpu=2
        submit /small
        submit /big/child cpu=3
        schedule    -> placed 1
        /big/0      -> ASSIGNED
        /big/0 exit 0
        schedule    -> placed 1
        /small/0    -> ASSIGNED
    """)


def test_controller_progress_guarantee(script):
    """A parent's children run before unrelated jobs, and the parent completes."""
    script.play("""
        worker w0 cpu=2
        at 1
        submit /parent
        schedule                -> placed 1
        /parent/0 running
        at 2
        submit /unrelated replicas=2
        at 3
        submit /parent/child-1
        submit /parent/child-2
        schedule                -> placed 1
        /parent/child-1/0 exit 0
        schedule                -> placed 1
        /parent/child-2/0       -> ASSIGNED
        /unrelated/0            -> PENDING
        /parent/child-2/0 exit 0
        /parent/0 exit 0
        job /parent             -> SUCCEEDED
        schedule                -> placed 2
    """)


def test_priority_queue_with_many_tasks():
    """10,000 waiting tasks go in and come out in order, well under a second."""
    from iris_core.placement.priority import priority_key
    from iris_core.placement.queue import TaskQueue
    from iris_core.states import PriorityBand

    keys = {
        n: priority_key(PriorityBand.INTERACTIVE, n % 7, n * 7919 % 1000, n, n)
        for n in range(10_000)
    }
    began = time.process_time()
    queue = TaskQueue()
    for number, key in keys.items():
        queue.add(number, key, ((0, 1),))
    out = [number for number, _ in queue]
    assert time.process_time() - began < 1
    assert out == sorted(keys, key=keys.__getitem__)
