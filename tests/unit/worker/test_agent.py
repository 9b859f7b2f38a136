"""Stories of the worker's agent: the reply, the actions and the reports that follow each order and
event.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import (
    Ended,
    Order,
    ReportTaken,
    Stage,
    Stop,
    TaskGrant,
    TaskTemplate,
)
from iris_core.spec.jobs import Calls, Environment
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.agent.agent import Agent
from iris_worker.agent.instructions import Discard, Kill, Prepare, RenewToken, SetTimeout
from tests.unit.worker.story import SELF, Story, ref_of


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_run_order_prepares_starts_and_reports(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        heartbeat           -> 1-0-0 PREPARING, 1-0-0 RUNNING
        ended 1-0-0 3
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED exited 3
        heartbeat           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED exited 3
        taken
        heartbeat           ->
    """)


def test_an_order_that_comes_again_starts_nothing_again(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        run 1-0-0      -> taken
        started 1-0-0
        ended 1-0-0 0
        run 1-0-0      -> taken
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED exited 0
        taken
        run 1-0-0      -> taken
        tell           ->
    """)


def test_an_older_attempt_of_a_task_is_never_started_after_a_newer_one(story: Story):
    story.play("""
        run 1-0-2      -> taken, launch 1-0-2
        run 1-0-1      -> taken
    """)


def test_a_stop_that_overtakes_its_run_order_means_it_is_never_run(story: Story):
    story.play("""
        stop 1-0-0     -> taken
        run 1-0-0      -> taken
        tell           -> 1-0-0 TERMINATED missing
    """)


def test_a_stop_in_the_same_order_outweighs_the_run(story: Story):
    story.play("""
        stop_and_run 1-0-0 -> taken
        tell               -> 1-0-0 TERMINATED missing
    """)


def test_stopping_kills_once_and_reports_a_cancelled_end(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        stop 1-0-0     -> taken, kill 1-0-0
        stop 1-0-0     -> taken
        ended 1-0-0 0
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED cancelled 0
        stop 1-0-0     -> taken
        taken
        heartbeat           ->
    """)


def test_the_signal_that_was_asked_for_is_no_mystery(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        stop 1-0-0     -> taken, kill 1-0-0
        killed 1-0-0 9
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED cancelled
    """)


def test_a_signal_nobody_asked_for_is_told_in_words(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        killed 1-0-0 9
        tell           -> 1-0-0 PREPARING, 1-0-0 TERMINATED exited: killed by signal 9
    """)


def test_a_stop_for_what_is_long_gone_is_answered_missing_each_time(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        ended 1-0-0 0
        tell           -> 1-0-0 PREPARING, 1-0-0 TERMINATED exited 0
        taken
        stop 1-0-0     -> taken
        tell           -> 1-0-0 TERMINATED missing
        taken
        stop 1-0-0     -> taken
        tell           -> 1-0-0 TERMINATED missing
    """)


def test_a_gang_member_waits_for_the_others_before_it_starts(story: Story):
    story.play("""
        prepare 1-0-0  -> taken
        tell           -> 1-0-0 PREPARING, 1-0-0 PREPARED
        taken
        start 1-0-0    -> taken, launch 1-0-0
        start 1-0-0    -> taken
        started 1-0-0
        tell           -> 1-0-0 CREATING, 1-0-0 RUNNING
    """)


def test_a_bundle_is_had_before_anything_starts(story: Story):
    story.play("""
        run 2-0-0      -> taken, prepare 2-0-0
        tell           -> 2-0-0 PREPARING, 2-0-0 PULLING
        taken
        prepared 2-0-0 -> launch 2-0-0
        started 2-0-0
        tell           -> 2-0-0 RUNNING
    """)


def test_a_start_order_that_comes_early_is_kept(story: Story):
    story.play("""
        prepare 2-0-0  -> taken, prepare 2-0-0
        start 2-0-0    -> taken
        prepared 2-0-0 -> launch 2-0-0
        tell           -> 2-0-0 PREPARING, 2-0-0 PULLING, 2-0-0 PREPARED, 2-0-0 CREATING
    """)


def test_a_bundle_that_cannot_be_had_is_the_hosts_failure(story: Story):
    story.play("""
        run 2-0-0        -> taken, prepare 2-0-0
        unprepared 2-0-0 -> discard 2-0-0
        tell             -> 2-0-0 PREPARING, 2-0-0 PULLING, 2-0-0 ERROR infrastructure
    """)


def test_what_is_stopped_while_its_bundle_comes_never_starts(story: Story):
    story.play("""
        run 2-0-0      -> taken, prepare 2-0-0
        stop 2-0-0     -> taken
        tell           -> 2-0-0 PREPARING, 2-0-0 PULLING, 2-0-0 TERMINATED cancelled
        prepared 2-0-0 -> discard 2-0-0
        tell           ->
    """)


def test_what_is_stopped_after_its_bundle_came_is_discarded(story: Story):
    story.play("""
        run 2-0-0      -> taken, prepare 2-0-0
        doubt
        prepared 2-0-0
        stop 2-0-0     -> refused, discard 2-0-0
        trust
        tell           -> 2-0-0 PREPARING, 2-0-0 PULLING, 2-0-0 TERMINATED cancelled
    """)


def test_a_prepared_member_that_is_stopped_never_starts(story: Story):
    story.play("""
        prepare 1-0-0  -> taken
        stop 1-0-0     -> taken, discard 1-0-0
        start 1-0-0    -> taken
        tell           -> 1-0-0 PREPARING, 1-0-0 PREPARED, 1-0-0 TERMINATED cancelled
    """)


def test_a_start_for_what_was_never_prepared_here_is_missing(story: Story):
    story.play("""
        start 1-0-0    -> taken
        tell           -> 1-0-0 TERMINATED missing
        prepare 1-0-0  -> taken
    """)


def test_orders_for_another_incarnation_are_not_taken(story: Story):
    story.play("run_for older 1-0-0 -> refused")


def test_orders_of_a_deposed_leader_are_not_taken(story: Story):
    story.play("""
        run_of_epoch 5 1-0-0 -> taken, launch 1-0-0
        run_of_epoch 4 1-1-0 -> refused
    """)


def test_in_doubt_nothing_is_taken_or_launched_but_stopping_goes_on(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        doubt
        run 1-1-0      -> refused
        stop 1-0-0     -> refused, kill 1-0-0
        trust
        run 1-1-0      -> taken, launch 1-1-0
    """)


def test_what_was_taken_away_during_a_doubt_never_starts(story: Story):
    story.play("""
        prepare 2-0-0         -> taken, prepare 2-0-0
        start 2-0-0           -> taken
        doubt
        prepared 2-0-0        ->
        report_all              -> 2-0-0 PREPARING, 2-0-0 PULLING, 2-0-0 PREPARED, 2-0-0 CREATING
        taken_but_drop 2-0-0  -> discard 2-0-0
        trust                 ->
        tell                  -> 2-0-0 TERMINATED cancelled
    """)


def test_what_still_counts_after_a_doubt_starts_then(story: Story):
    story.play("""
        run 2-0-0        -> taken, prepare 2-0-0
        doubt
        prepared 2-0-0   ->
        report_all         -> 2-0-0 PREPARING, 2-0-0 PULLING
        taken
        trust            -> launch 2-0-0
    """)


def test_a_report_that_was_not_answered_is_told_again_first(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        tell           -> 1-0-0 PREPARING
        started 1-0-0
        lost
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING
        taken
        tell           ->
    """)


def test_an_end_is_sent_with_the_start_whose_report_is_under_way(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING
        ended 1-0-0 0
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED exited 0
        taken
        tell           ->
    """)


def test_a_heartbeat_repeats_the_stages_before_an_unconfirmed_end(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        tell           -> 1-0-0 PREPARING
        taken
        started 1-0-0
        ended 1-0-0 0
        heartbeat           -> 1-0-0 RUNNING, 1-0-0 TERMINATED exited 0
    """)


def test_what_is_not_this_workers_any_more_is_stopped(story: Story):
    story.play("""
        run 1-0-0             -> taken, launch 1-0-0
        started 1-0-0
        tell                  -> 1-0-0 PREPARING, 1-0-0 RUNNING
        taken_but_drop 1-0-0  -> kill 1-0-0
        ended 1-0-0 0
        tell                  -> 1-0-0 TERMINATED cancelled 0
        taken_but_drop 1-0-0  ->
        heartbeat                  ->
    """)


def test_an_adopted_attempt_is_told_and_can_be_stopped(story: Story):
    story.play("""
        adopt 1-0-0
        report_all       -> 1-0-0 RUNNING
        taken
        run 1-0-0      -> taken
        stop 1-0-0     -> taken, kill 1-0-0
        ended 1-0-0 0
        tell           -> 1-0-0 TERMINATED cancelled 0
    """)


def test_a_registration_tells_everything_and_nothing_twice(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        ended 1-0-0 0
        run 1-1-0      -> taken, launch 1-1-0
        report_all       -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED exited 0, 1-1-0 PREPARING
        started 1-1-0
        taken
        tell           -> 1-1-0 RUNNING
        heartbeat           -> 1-1-0 RUNNING
    """)


def test_a_task_far_past_its_timeout_is_killed_without_being_told(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        timeout 1-0-0  -> kill 1-0-0
        ended 1-0-0 0
        tell           -> 1-0-0 PREPARING, 1-0-0 RUNNING, 1-0-0 TERMINATED timeout 0
        timeout 1-0-0  ->
    """)


def test_going_down_stops_everything_and_takes_nothing(story: Story):
    story.play("""
        run 1-0-0      -> taken, launch 1-0-0
        started 1-0-0
        prepare 1-1-0  -> taken
        shutdown       -> kill 1-0-0, discard 1-1-0
        run 1-2-0      -> refused
    """)


def test_an_order_without_a_template_fails_that_attempt_only(story: Story):
    story.play("""
        untold_what 1-0-0 -> taken
        tell              -> 1-0-0 ERROR infrastructure
    """)


# ── whatever the network does to orders ───────────────────────────────────────────────────────────

refs = st.builds(AttemptRef, st.just(1), st.integers(0, 2), st.integers(0, 2))
words = st.sampled_from(
    ["run", "prepare", "start", "stop", "end", "take", "lose", "doubt", "trust"]
)


@given(st.lists(st.tuples(words, refs), max_size=60))
def test_no_schedule_of_orders_starts_an_attempt_twice_or_after_its_stop(
    steps: list[tuple[str, AttemptRef]],
):
    agent = Agent("me")
    template = TaskTemplate(1, "/t", ("true",), {}, 3, ResourceRequest())
    started: list[AttemptRef] = []
    stopped: set[AttemptRef] = set()
    in_flight = ()
    for word, ref in steps:
        if word in ("run", "prepare", "start"):
            agent.on_order(Order("me", 1, (template,), **{word: (ref,)}), 0)
        elif word == "stop":
            agent.on_order(Order("me", 1, stop=(Stop(ref),)), 0)
            stopped.add(ref)
        elif word == "end" and ref in started:
            agent.on_ended(ref, Ended(Cause.EXITED, 0), 0)
        elif word == "take":
            in_flight = agent.reports.take()
        elif word == "lose":
            agent.on_untaken(in_flight)
            in_flight = ()
        elif word in ("doubt", "trust"):
            agent.unconfirmed = word == "doubt"
        while (held := agent.next_launch()) is not None:
            assert not agent.unconfirmed
            assert held.ref not in stopped
            started.append(held.ref)
    assert len(started) == len(set(started))


@given(st.lists(st.tuples(words, refs), max_size=60))
def test_every_attempt_that_was_ordered_is_told_of_until_its_end_is_taken(
    steps: list[tuple[str, AttemptRef]],
):
    agent = Agent("me")
    template = TaskTemplate(1, "/t", ("true",), {}, 3, ResourceRequest())
    for word, ref in steps:
        if word in ("run", "prepare", "start", "stop"):
            part = {word: (Stop(ref) if word == "stop" else ref,)}
            agent.on_order(Order("me", 1, (template,), **part), 0)
        elif word == "end":
            agent.on_ended(ref, Ended(Cause.EXITED, 0), 0)
        agent.next_launch()
    reported = {stage.ref: stage for stage in agent.reports.take()}
    assert {stage.ref: stage for stage in agent.attempts()} == reported


sayings = st.sampled_from(["run", "end", "tell", "tell", "beat", "all", "answered", "lost"])


@given(st.lists(st.tuples(sayings, refs), max_size=60))
def test_whatever_is_lost_no_end_is_heard_of_without_its_start(steps: list[tuple[str, AttemptRef]]):
    agent = Agent("me")
    template = TaskTemplate(1, "/t", ("true",), {}, 3, ResourceRequest())
    launched: set[AttemptRef] = set()
    known: set[AttemptRef] = set()
    in_flight: list[tuple[Stage, ...]] = []
    for word, ref in steps:
        configured: tuple[Stage, ...] = ()
        if word == "run":
            agent.on_order(Order("me", 1, (template,), run=(ref,)), 0)
        elif word == "end" and ref in launched:
            agent.on_ended(ref, Ended(Cause.EXITED, 0), 0)
        elif word == "beat":
            configured = agent.attempts()
        elif word in ("tell", "all"):
            configured = agent.reports.take() if word == "tell" else agent.report_all()
            in_flight.append(configured)
        elif word == "answered" and in_flight:
            answered = in_flight.pop(0)
            agent.on_taken(answered, ReportTaken(), 0)
            known |= starts(answered)
        elif word == "lost" and in_flight:
            agent.on_untaken(in_flight.pop(0))
        while (held := agent.next_launch()) is not None:
            launched.add(held.ref)
            agent.on_started(held.ref, 0)
        ends = {stage.ref for stage in configured if stage.ended is not None}
        assert ends <= known | starts(configured)


def starts(stages: tuple[Stage, ...]) -> set[AttemptRef]:
    return {stage.ref for stage in stages if stage.status is KernelStatus.RUNNING}


def test_a_stop_says_how_long_a_process_serves_on_before_term(story: Story):
    story.play("run 1-0-0 -> taken, launch 1-0-0")
    _, todo = story.agent.on_order(
        Order(SELF, 1, stop=(Stop(ref_of("1-0-0"), 30_000, settle_ms=2000),)), 0
    )
    assert todo == [Kill(ref_of("1-0-0"), 30_000, 2000)]


def test_a_worker_that_ends_lets_a_job_serve_on_for_nobody(story: Story):
    story.play("run 1-0-0 -> taken, launch 1-0-0")
    story.agent.on_order(Order(SELF, 1, stop=(Stop(ref_of("1-0-0"), 30_000, settle_ms=2000),)), 0)
    assert story.agent.stop_all(1000, 0) == [Kill(ref_of("1-0-0"), 1000)]


@pytest.mark.parametrize(
    "told", [(), (Stop(ref_of("7-0-0"), 30_000, settle_ms=2000),)], ids=["by itself", "told"]
)
def test_a_worker_that_ends_gives_a_route_settling_time_and_its_grace(
    story: Story, told: tuple[Stop, ...]
):
    ref, agent = ref_of("7-0-0"), story.agent
    route = TaskTemplate(7, "/chat/r1-1", ("serve",), {}, 1, ResourceRequest(), settle_ms=2000)
    agent.on_order(Order(SELF, 1, (route,), run=(ref,)), 0)
    agent.next_launch()
    agent.on_order(Order(SELF, 1, stop=told), 0)
    assert agent.settle_ms() == 2000
    assert agent.stop_all(1000, 0) == [Kill(ref, 1000, 2000)]


def test_what_runs_gets_a_new_token_and_nothing_else_does(story: Story):
    story.play("""
        run 1-0-0 -> taken, launch 1-0-0
        run 1-1-0 -> taken, launch 1-1-0
    """)
    agent, grant = story.agent, TaskGrant(1, b"claims", b"key")
    agent.on_ended(ref_of("1-1-0"), Ended(Cause.EXITED, 0), 0)
    agent.adopt(Stage(ref_of("1-2-0"), KernelStatus.RUNNING, 0))
    _, todo = agent.on_order(Order(SELF, 1, renewals=(grant, TaskGrant(9, b"", b""))), 0)
    assert todo == [RenewToken(ref_of("1-0-0"), grant), RenewToken(ref_of("1-2-0"), grant)]


def test_what_starts_later_has_the_newest_grant():
    agent, ref = Agent("me"), AttemptRef(1, 0, 0)
    work = TaskTemplate(1, "/t", ("true",), {}, 1, ResourceRequest(), bundle="b")
    agent.on_order(Order("me", 1, templates=(work,), run=(ref,)), 1)
    agent.on_order(Order("me", 1, renewals=(TaskGrant(1, b"later", b"key"),)), 2)
    agent.on_prepared(ref, 3)
    assert agent.next_launch().template.grant == TaskGrant(1, b"later", b"key")


def test_what_waits_for_its_slot_to_be_emptied_has_the_newest_grant():
    agent, ref = Agent("me"), AttemptRef(1, 0, 0)
    work = TaskTemplate(1, "/t", ("true",), {}, 1, ResourceRequest())
    agent.on_order(Order("me", 1, templates=(work,), run=(ref,)), 1)
    held, grant = agent.next_launch(), TaskGrant(1, b"later", b"key")
    agent.on_order(Order("me", 1, renewals=(grant,)), 2)
    agent.postpone(held)
    assert agent.next_launch().template.grant == grant


def test_a_changed_timeout_reaches_what_runs_and_what_starts_later(story: Story):
    story.play("""
        run 1-0-0 -> taken, launch 1-0-0
        run 3-0-0 -> taken, launch 3-0-0
    """)
    agent, started = story.agent, ref_of("1-0-0")
    agent.on_started(started, 7)
    assert agent.timeouts() == {}
    _, todo = agent.on_order(Order(SELF, 1, timeouts={1: 600}), 0)
    assert (todo, agent.timeouts()) == ([SetTimeout(started, 7, 600)], {1: 600})
    late = TaskTemplate(1, "/t", ("true",), {}, 2, ResourceRequest(), timeout_ms=5)
    agent.on_order(Order(SELF, 1, templates=(late,), run=(ref_of("1-1-0"),)), 0)
    held = agent.next_launch()
    assert held is not None
    assert held.template is not None
    assert held.template.timeout_ms == 600
    _, todo = agent.on_order(Order(SELF, 1, timeouts={1: 0}), 0)
    assert todo == [SetTimeout(started, 7, None), SetTimeout(ref_of("1-1-0"), 0, None)]


def test_what_orders_said_of_timeouts_is_forgotten_with_the_attempts(story: Story):
    agent = story.agent
    agent.on_order(Order(SELF, 1, timeouts={9: 600}), 0)
    assert agent.timeouts() == {}


def preparing() -> tuple[Agent, AttemptRef]:
    """An agent with an attempt that needs an environment and no bundle."""
    agent, ref = Agent("me"), AttemptRef(1, 0, 0)
    work = TaskTemplate(
        1, "/t", ("true",), {}, 1, ResourceRequest(), environment=Environment(setup="make")
    )
    _, todo = agent.on_order(Order("me", 1, templates=(work,), run=(ref,)), 1)
    assert todo == [Prepare(ref, work)]
    return agent, ref


def test_a_task_that_is_built_says_so_and_starts_when_it_is_prepared():
    agent, ref = preparing()
    agent.on_detail(ref, "builds", 2)
    assert agent.on_building(ref)
    assert [(stage.status, stage.detail) for stage in agent.attempts()][-1] == (
        KernelStatus.PULLING,
        "builds",
    )
    assert agent.next_launch() is None
    agent.on_prepared(ref, 3)
    assert agent.next_launch().ref == ref


def test_a_stopped_attempt_ends_after_its_build_is_killed():
    agent, ref = preparing()
    assert agent.on_building(ref)
    _, todo = agent.on_order(Order("me", 1, stop=(Stop(ref, 100),)), 2)
    assert todo == [Kill(ref, 100)]
    assert agent.attempts()[-1].ended is None
    assert agent.on_prepared(ref, 3) == [Discard(ref)]
    assert agent.attempts()[-1].ended.cause is Cause.CANCELLED
    assert agent.next_launch() is None


def test_what_is_not_needed_any_more_is_not_built():
    agent, ref = preparing()
    agent.on_order(Order("me", 1, stop=(Stop(ref, 100),)), 2)
    assert agent.attempts()[-1].ended.cause is Cause.CANCELLED
    assert not agent.on_building(ref)


def test_a_report_of_nothing_but_starts_under_way_waits_for_them(story: Story):
    story.play("run 1-0-0 1-1-0 -> taken, launch 1-0-0, launch 1-1-0")
    assert story.agent.awaits_more()
    story.play("started 1-0-0")
    assert not story.agent.awaits_more()


@pytest.mark.parametrize("other", ["ended 1-1-0 0", "stop 7-0-0 -> taken"])
def test_a_report_of_anything_else_does_not_wait_for_starts(story: Story, other: str):
    story.play(f"""
        run 1-0-0 1-1-0 -> taken, launch 1-0-0, launch 1-1-0
        {other}
    """)
    assert not story.agent.awaits_more()


def test_nothing_waits_for_a_start_that_failed(story: Story):
    story.play("""
        prepare 1-0-0 -> taken
        start 1-0-0   -> taken, launch 1-0-0
        ended 1-0-0 1
    """)
    assert not story.agent.awaits_more()


def test_a_report_of_what_is_being_prepared_waits_for_its_start(story: Story):
    story.play("run 2-0-0 -> taken, prepare 2-0-0")
    assert story.agent.awaits_more()
    story.play("prepared 2-0-0 -> launch 2-0-0")
    assert story.agent.awaits_more()
    story.play("started 2-0-0")
    assert not story.agent.awaits_more()


def test_a_report_that_an_attempt_is_prepared_does_not_wait(story: Story):
    story.play("""
        prepare 2-0-0  -> taken, prepare 2-0-0
        prepared 2-0-0
    """)
    assert not story.agent.awaits_more()


def calling(*indexes: int) -> Agent:
    """An agent with calls of a map that are about to start."""
    agent, refs = Agent("me"), [AttemptRef(1, index, 0) for index in indexes]
    calls = Calls(
        runner="a" * 64, function="b" * 64, segments=("c" * 64,), firsts=(0,), count=len(refs)
    )
    work = TaskTemplate(1, "/t", ("true",), {}, 1, ResourceRequest(), calls=calls)
    agent.on_order(Order("me", 1, templates=(work,), run=tuple(refs)), 1)
    for ref in refs:
        agent.on_prepared(ref, 1)
        assert agent.next_launch() is not None
    return agent


def test_the_start_of_a_call_that_is_alone_waits_for_its_end():
    agent, ref = calling(0), AttemptRef(1, 0, 0)
    agent.on_started(ref, 2)
    assert agent.awaits_more()
    agent.on_ended(ref, Ended(Cause.EXITED, 0), 3)
    assert not agent.awaits_more()
    assert [stage.status for stage in agent.reports.take()] == [
        *(
            KernelStatus.PREPARING,
            KernelStatus.PULLING,
            KernelStatus.RUNNING,
            KernelStatus.TERMINATED,
        )
    ]


def test_the_start_of_one_of_several_calls_does_not_wait():
    agent = calling(0, 1)
    for index in (0, 1):
        agent.on_started(AttemptRef(1, index, 0), 2)
    assert not agent.awaits_more()
