"""Tasks that wait behind open attempts of their job, and then run in their place, as the state
service records them.
"""

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Chain, Order
from iris_state.effects.orders import parts
from iris_state.records.indexes.chains import Chains
from tests.support.script import Script


@pytest.fixture
def script():
    made = Script()
    yield made
    made.close()


MAP = """
    worker w0 cpu=1
    submit /a replicas=4 map=yes
    schedule                        -> placed 1
    chain /a/1 /a/2 behind /a/0     -> placed
"""


def test_a_chain_holds_what_one_of_it_needs_until_its_last_has_ended(script):
    script.play(
        MAP
        + """
        capacity w0                 -> cpu=0
        place /a/3 w0               -> no_room
        /a/0 running                -> RUNNING
        /a/0 exit 0                 -> SUCCEEDED
        place /a/3 w0               -> no_room
        /a/1 running
        /a/1 exit 0                 -> SUCCEEDED
        place /a/3 w0               -> no_room
        /a/2 running
        /a/2 exit 0                 -> SUCCEEDED
        capacity w0                 -> cpu=1
        place /a/3 w0               -> placed
        """
    )


def test_what_waits_says_behind_what(script):
    script.play(MAP)
    found = script.world.query("task", task="/a/1")
    assert found["note"] == "waits on w0 behind /a/0 (attempt 0), in whose place it runs next"
    script.play("/a/1 running -> RUNNING")
    assert script.world.query("task", task="/a/1")["note"] is None


def test_a_chain_goes_on_when_the_one_it_began_with_has_ended(script):
    script.play(
        MAP
        + "/a/0 running\n /a/0 exit 0 -> SUCCEEDED\n chain /a/3 behind /a/0 -> placed\n /a/3 -> ASSIGNED"
    )


def test_nothing_waits_behind_a_chain_that_is_over(script):
    script.play(
        """
        worker w0 cpu=1
        submit /a replicas=3 map=yes
        schedule
        /a/0 running
        /a/0 exit 0
        chain /a/1 behind /a/0      -> chain_ended
        /a/1                        -> PENDING
        """
    )


def test_what_needs_more_than_cpu_and_memory_waits_behind_nothing(script):
    script.play(
        """
        worker w0 cpu=1
        submit /a replicas=2
        schedule
        chain /a/1 behind /a/0      -> malformed
        """
    )


def test_a_victim_takes_its_whole_chain_along_uncharged(script):
    script.play(
        MAP
        + """
        /a/0 running
        submit /p band=production
        /a/0 preempt for /p/0       -> PENDING preemptions=1
        /a/1                        -> PENDING preemptions=0
        /a/2                        -> PENDING preemptions=0
        attempt /a/1#0              -> state=killed charged_to=-
        capacity w0                 -> cpu=0
        /a/0#0 stopped
        /a/1#0 stopped
        /a/2#0 stopped
        capacity w0                 -> cpu=1
        """
    )


def test_what_has_not_started_is_not_charged_when_its_worker_is_lost(script):
    script.play(
        MAP
        + "/a/0 running\n lose w0\n /a/1 -> PENDING preemptions=0\n attempt /a/1#0 -> charged_to=reschedule"
    )


def test_a_new_leader_orders_what_waits_behind_the_same(script):
    script.play(
        MAP
        + "/a/0 running\n takeover 1\n heartbeat w0\n /a/1 running -> RUNNING\n /a/1 exit 0 -> SUCCEEDED"
    )


def test_what_is_ordered_together_with_the_first_of_its_chain_waits_for_it(script):
    script.play(MAP)
    orders = script.world.machine.round.orders
    orders.again()
    [order] = orders.take(1, script.world.now_ms).values()
    head, *rest = (AttemptRef(1, index, 0) for index in range(3))
    assert (order.run, order.chains) == ((head, *rest), (Chain((head,), tuple(rest)),))


def test_chains_are_counted_in_any_order_of_their_attempts():
    head, second, third = (1, 0, 0), (1, 1, 0), (1, 2, 0)
    behind = (0, 0)
    chains = Chains()
    assert chains.join(second, behind, {})  # as from a snapshot, where the first has a later index
    assert not chains.join(head, None, {second})
    assert not chains.join(third, behind, {head, second})
    assert not chains.leave(head, None)
    assert set(chains.of(third, behind)) == {second, third}
    assert not chains.leave(second, behind)
    assert chains.leave(third, behind)
    assert not chains.has(head)


def test_parts_of_an_order_say_what_was_ordered_before(monkeypatch):
    monkeypatch.setattr("iris_state.effects.orders.CHUNK_BYTES", 60)
    refs = tuple(AttemptRef(1, index, 0) for index in range(1, 5))
    head = AttemptRef(1, 0, 0)
    order = Order("i", 1, run=refs, chains=(Chain((head,), refs),))
    found = [chain for part in parts(order) for chain in part.chains]
    assert [ref for chain in found for ref in chain.members] == list(refs)
    assert all(chain.ahead == (head, *refs[: refs.index(chain.members[0])]) for chain in found)
