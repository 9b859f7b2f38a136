"""Gangs of several slices: what is admitted, what a plan must keep to, and that a loss restarts all
of them.

docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

SLICES = """
    worker a0 pod=a zone=eu
    worker a1 pod=a zone=eu
    worker b0 pod=b zone=eu
    worker b1 pod=b zone=eu
    worker c0 pod=c zone=us
    worker c1 pod=c zone=us
"""
RUNNING = (
    SLICES
    + """
    submit /g replicas=4 gang=pod slices=2 retries=1 -> created
    place /g a0 a1 b0 b1                    -> placed
    /g/0 prepared
    /g/1 prepared
    /g/2 prepared
    /g/3 prepared
    /g/0 running
    /g/1 running
    /g/2 running
    /g/3 running
    session /g                              -> RUNNING
"""
)


def test_the_number_of_tasks_is_that_of_all_slices(script):
    script.play("""
        submit /g replicas=4 gang=tpu-name slices=2 tpu=v5litepod-16 -> invalid ~4 VMs, and the job asks for 2 slices
        submit /g replicas=8 gang=tpu-name slices=2 tpu=v5litepod-16 -> created
        submit /h replicas=5 gang=rack slices=2 -> invalid ~5 replicas are not 2 slices of equal size
        submit /h replicas=4 gang=rack slices=0 -> invalid ~a gang of 0 slices
        submit /h replicas=4 gang=rack within=zone -> invalid ~only a gang of several slices
        submit /h replicas=4 gang=rack slices=2 within=Zone -> invalid ~not lower case
    """)


def test_each_slice_is_on_a_group_of_its_own(script):
    script.play(
        SLICES
        + """
        submit /g replicas=4 gang=pod slices=2
        place /g a0 a1 b0 c0                -> gang_split
        place /g a0 b0 a1 b1                -> gang_split
        place /g a0 a1 b0 b1                -> placed
    """
    )


def test_two_slices_never_share_a_group(script):
    script.play("""
        worker a0 pod=a
        worker a1 pod=a
        worker a2 pod=a
        worker a3 pod=a
        submit /g replicas=4 gang=pod slices=2
        place /g a0 a1 a2 a3                -> gang_split
    """)


def test_slices_within_a_zone_are_in_one_zone(script):
    script.play(
        SLICES
        + """
        submit /g replicas=4 gang=pod slices=2 within=zone
        place /g a0 a1 c0 c1                -> gang_split
        place /g a0 a1 b0 b1                -> placed
    """
    )


def test_a_group_without_a_zone_is_in_none(script):
    script.play("""
        worker a0 pod=a
        worker b0 pod=b
        submit /g replicas=2 gang=pod slices=2 within=zone
        place /g a0 b0                      -> gang_split
    """)


def test_the_loss_of_a_host_restarts_every_slice(script):
    script.play(
        RUNNING
        + """
        lose a1
        /g/1                                -> PENDING
        /g/0                                -> PENDING
        /g/2                                -> PENDING
        /g/3                                -> PENDING
    """
    )


def test_a_failed_member_of_one_slice_restarts_every_slice(script):
    script.play(
        RUNNING
        + """
        /g/3 exit 1                         -> PENDING
        /g/0                                -> PENDING
        /g/1                                -> PENDING
    """
    )


def test_a_gang_of_alternatives_is_of_one_variant(script):
    script.play("""
        worker a rack=r chips=8 device-type=gpu device-variant=H100
        worker b rack=r chips=8 device-type=gpu device-variant=A100
        worker c rack=r chips=8 device-type=gpu device-variant=A100
        submit /g replicas=2 gang=rack gpu=H100,A100 chips=8
        place /g a b                            -> gang_split
        place /g b c                            -> placed
    """)
    [order] = script.world.hosts["b"].orders
    assert order.templates[0].resources.device.variant == "A100"
