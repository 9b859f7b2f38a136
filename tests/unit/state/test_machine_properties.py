"""For any inputs in any order every invariant holds after each of them, and replay gives the same
ledger.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Eviction, JobReason, Nomination, Placement, Plan
from iris_core.messages.state_worker import Ended, Stage
from iris_core.placement.reasons import NOT_YET_LOOKED_AT
from iris_core.spec.jobs import Coscheduling, JobSpec
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_state.policy import Policy
from tests.support import first_fit
from tests.support.world import DEAF, HELD, LISTENS, Host, World, picture

HOSTS = ("a0", "a1", "b0", "b1")
NAMES = ("/a", "/b", "/a/x", "/a/x/y", "/b/x")
USERS = ("ann", "bob")

hosts = st.sampled_from(HOSTS)
names = st.sampled_from(NAMES)
callers = st.sampled_from([Caller("ann"), Caller("bob"), Caller("root", "admin")])
stages = st.sampled_from(list(KernelStatus))
ends = st.sampled_from(
    [
        Ended(Cause.EXITED, exit_code=0),
        Ended(Cause.EXITED, exit_code=1),
        Ended(Cause.EXITED, signal=9),
        Ended(Cause.INFRASTRUCTURE),
        Ended(Cause.MISSING),
        Ended(Cause.CANCELLED, signal=15),
        Ended(Cause.TIMEOUT),
    ]
)
refs = st.builds(AttemptRef, st.integers(0, 6), st.integers(-1, 3), st.integers(-1, 3))
specs = st.builds(
    JobSpec,
    name=names,
    command=st.just(("true",)),
    replicas=st.integers(1, 3),
    resources=st.builds(ResourceRequest, st.sampled_from([0, 500, 1000, 2000])),
    coscheduling=st.sampled_from(
        [None, Coscheduling("rack"), Coscheduling("rack", "leader"), Coscheduling("nowhere")]
    ),
    band=st.sampled_from(["production", "interactive", "batch"]),
    max_retries_failure=st.integers(0, 2),
    max_retries_preemption=st.integers(0, 2),
    max_task_failures=st.integers(0, 2),
    scheduling_timeout_s=st.sampled_from([None, 20.0]),
    timeout_s=st.sampled_from([None, 15.0]),
)


class AnythingGoes(RuleBasedStateMachine):
    """Hosts, schedulers and people who say what they like; the world checks everything after each
    word.
    """

    @initialize()
    def begin(self):
        policy = Policy(
            max_reschedules=2, prepare_tries=1, start_tries=1, schedule_tries=2, begin_anew=True
        )
        self.world = World(policy)
        for name in HOSTS:
            self.world.register(Host(name, Amount(2000), {"rack": name[0]}))

    def teardown(self):
        if hasattr(self, "world"):
            mine, theirs = (
                picture(m, self.world.now_ms) for m in (self.world.machine, self.world.replayed())
            )
            assert mine == theirs

    # ── people ────────────────────────────────────────────────────────────────────────────────────

    @rule(
        spec=specs,
        caller=callers,
        if_exists=st.sampled_from(["error", "keep", "replace"]),
        keyed=st.booleans(),
    )
    def submit(self, spec, caller, if_exists, keyed):
        self.world.submit(spec, caller, if_exists=if_exists, idempotency_key="k" if keyed else "")

    @rule(name=names, caller=callers)
    def cancel(self, name, caller):
        self.world.cancel(name, caller)

    @rule(name=names, caller=callers, failed_only=st.booleans())
    def rerun(self, name, caller, failed_only):
        self.world.rerun(name, caller, failed_only=failed_only)

    @rule(action=st.sampled_from(["drain", "undrain", "mark_lost"]), host=hosts)
    def operate(self, action, host):
        self.world.admin(action, host)

    @rule(user=st.sampled_from(USERS), pending=st.integers(0, 4), band=st.integers(0, 3))
    def limit(self, user, pending, band):
        self.world.admin("set_quota", user, max_pending_tasks=pending, max_band=band)

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────────

    @rule()
    def schedule(self):
        self.world.plan(first_fit.plan(self.world.snapshot()))

    @rule(
        job=st.integers(0, 6),
        indexes=st.lists(st.integers(0, 3), max_size=3),
        workers=st.lists(st.integers(0, 4), max_size=3),
    )
    def place_anything(self, job, indexes, workers):
        placement = Placement(job, tuple(indexes), tuple(workers))
        self.world.plan(Plan("wild", self.world.machine.sequence, HOSTS, (placement,)))

    @rule(victims=st.lists(refs, max_size=3), waiting=st.lists(st.tuples(refs, hosts), max_size=2))
    def evict_anything(self, victims, waiting):
        nominations = tuple(Nomination(ref.job, ref.index, host) for ref, host in waiting)
        self.world.plan(Plan("wild", 0, evictions=(Eviction(tuple(victims), nominations),)))

    @precondition(lambda self: self.world.ledger.jobs)
    @rule(data=st.data())
    def evict_what_runs(self, data):
        running = [AttemptRef(*key) for p in self.world.ledger.presence.values() for key in p.open]
        waiting = [AttemptRef(*key, 0) for key in self.world.ledger.queue]
        if running and waiting:
            victims = data.draw(
                st.lists(st.sampled_from(running), min_size=1, max_size=2, unique=True)
            )
            ref, host = data.draw(st.sampled_from(waiting)), data.draw(hosts)
            eviction = Eviction(tuple(victims), (Nomination(ref.job, ref.index, host),))
            self.world.plan(Plan("keen", 0, evictions=(eviction,)))

    @rule(job=st.integers(0, 6), looks=st.integers(1, 5))
    def explain(self, job, looks):
        self.world.plan(Plan("s", 0, reasons=(JobReason(job, NOT_YET_LOOKED_AT, looks),)))

    # ── hosts ─────────────────────────────────────────────────────────────────────────────────────

    def believed(self, host):
        return list(self.world.hosts[host].believes)

    @rule(host=hosts, data=st.data(), status=stages)
    def get_on(self, host, data, status):
        """A host says where something it has been given stands; never backwards, as no host
        would.
        """
        if self.believed(host):
            ref = data.draw(st.sampled_from(self.believed(host)))
            self.world.say(host, Stage(ref, status, self.world.now_ms))

    @rule(host=hosts, data=st.data(), ended=ends)
    def end(self, host, data, ended):
        if self.believed(host):
            ref = data.draw(st.sampled_from(self.believed(host)))
            self.world.say(host, Stage(ref, KernelStatus.TERMINATED, self.world.now_ms, ended))

    @rule(host=hosts, ref=refs, status=stages, ended=st.none() | ends)
    def say_anything(self, host, ref, status, ended):
        self.world._report(
            self.world.hosts[host], stages=(Stage(ref, status, self.world.now_ms, ended),)
        )

    @rule(host=hosts, data=st.data())
    def heartbeat(self, host, data):
        without = (
            data.draw(st.lists(st.sampled_from(self.believed(host)), unique=True))
            if self.believed(host)
            else []
        )
        for ref in without:
            self.world.hosts[host].believes.pop(ref)
        self.world.heartbeat(host, healthy=data.draw(st.booleans()))

    @rule(host=hosts, data=st.data())
    def restart(self, host, data):
        lost = (
            data.draw(st.lists(st.sampled_from(self.believed(host)), unique=True))
            if self.believed(host)
            else []
        )
        self.world.restart(host, without=lost)

    @rule(host=hosts, manner=st.sampled_from([LISTENS, DEAF, HELD]))
    def listen(self, host, manner):
        self.world.hosts[host].manner = manner

    @rule(host=hosts, error=st.sampled_from(["", "no answer"]))
    def answer(self, host, error):
        self.world.answer_held(host, error)

    # ── the clock and the leader ──────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([0.5, 3, 12, 40, 70]), heartbeat=st.booleans())
    def wait(self, seconds, heartbeat):
        self.world.wait(seconds, heartbeat=heartbeat)

    @rule(seconds=st.integers(1, 100))
    def step_back(self, seconds):
        """The shell's clock goes back; the machine's time never does."""
        self.world.machine.step([], self.world.now_ms - seconds * 1000)
        assert self.world.machine.last_ms == self.world.now_ms

    @rule()
    def take_over(self):
        self.world._lead()
        self.world.mirror = None


AnythingGoes.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
TestAnythingGoes = AnythingGoes.TestCase
