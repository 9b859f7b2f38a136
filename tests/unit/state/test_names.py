"""Names of jobs and idempotency keys: what is valid, and what a repeated one does.
docs/design/semantics.md#jobs.
"""

import json

import pytest

from iris_core.messages.gateway_state import Caller
from iris_core.quota import Quota
from iris_core.spec.jobs import MAX_REPLICAS, JobSpec
from tests.support.world import World


def test_a_live_name_is_taken(script):
    script.play("""
        submit /a           -> created j1
        submit /a           -> conflict /a exists and is pending
        worker w0
        schedule
        submit /a           -> conflict /a exists and is running
    """)


def test_a_new_run_replaces_one_that_has_ended(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 exit 1
        job /a              -> FAILED
        submit /a           -> created j2
        job /a              -> PENDING id=j2
        job j1              -> FAILED id=j1
    """)


def test_keep_returns_the_live_one(script):
    script.play("""
        submit /a                   -> created j1
        submit /a if_exists=keep    -> ok j1
        queue                       -> /a/0
        cancel /a
        submit /a if_exists=keep    -> created j2
    """)


def test_keep_does_not_take_the_live_job_of_somebody_else(script):
    """`iris run` exited with 0, and the work of its user never ran."""
    script.play("""
        submit /a user=ann                      -> created j1
        submit /a user=bob if_exists=keep       -> created j2
        submit /a user=ann if_exists=keep       -> ok j1
        submit /a user=bob if_exists=keep       -> ok j2
    """)


def test_keep_says_that_the_live_one_was_submitted_before():
    world = World()
    first, other = (JobSpec(name="/a", command=(command,)) for command in ("train", "other"))
    answers = [world.submit(spec, if_exists="keep") for spec in (first, other)]
    made, kept = (json.loads(answer.body)["warnings"] for answer in answers)
    assert not any("submitted before" in warning for warning in made)
    assert kept == [
        "/a (j1) was submitted before; it goes on as it is, and nothing of this request is applied"
    ]


def test_replace_cancels_the_live_one_first(script):
    script.play("""
        worker w0
        submit /a user=ann
        schedule
        /a/0 running
        submit /a if_exists=replace user=ann    -> created j2
        job j1                                  -> KILLED cause=replaced
        job /a                                  -> PENDING id=j2
        capacity w0                             -> cpu=0
    """)


def test_replace_replaces_ones_own_only(script):
    script.play("""
        submit /a user=ann
        submit /a user=bob
        submit /a if_exists=replace user=bob    -> created j3
        job j1                                  -> PENDING
        job j2                                  -> KILLED cause=replaced
    """)


def test_replacing_a_parent_ends_its_children(script):
    script.play("""
        submit /a
        submit /a/b
        submit /a if_exists=replace     -> created j3
        job /a/b                        -> KILLED
    """)


def test_the_same_idempotency_key_is_one_job_for_ever(script):
    script.play("""
        worker w0
        submit /a key=k user=ann    -> created j1
        submit /a key=k user=ann    -> replayed j1
        schedule
        /a/0 exit 0
        submit /a key=k user=ann    -> replayed j1
        submit /a key=k user=ann    -> replayed j1
    """)


def test_an_idempotency_key_stands_for_one_request_only(script):
    script.play("""
        submit /a key=k cpu=1   -> created j1
        submit /b key=k cpu=1   -> idempotency_mismatch this idempotency key has made /a, which differs in name
        job /b                  -> unknown
        submit /a key=k cpu=2   -> idempotency_mismatch this idempotency key has made /a, which differs in resources
        submit /a key=k cpu=1   -> replayed j1
    """)


def test_an_idempotency_key_belongs_to_its_user(script):
    script.play("""
        submit /a key=k user=ann    -> created j1
        submit /b key=k user=bob    -> created j2
    """)


def test_nobody_learns_a_key_by_acting_for_another(script):
    script.play("""
        submit /a key=k user=ann                -> created j1
        submit /a key=k user=bob for_user=ann   -> forbidden bob may not submit a job for ann
    """)


def test_a_key_outlives_its_job(script):
    script.play("""
        policy keep_jobs=1
        submit /a key=k     -> created j1
        submit /b
        cancel /a
        cancel /b
        wait 1
        job j1              -> unknown
        submit /a key=k     -> conflict ~has ended and is forgotten
        job /a              -> unknown
    """)


def test_a_key_whose_job_was_forgotten_long_ago_makes_a_new_one(script):
    script.play("""
        policy keep_jobs=1 keep_keys_days=0.001
        submit /a key=k     -> created j1
        submit /b key=l
        cancel /a
        cancel /b
        wait 80
        submit /a key=k     -> conflict ~has ended and is forgotten
        submit /b key=l     -> replayed j2
        wait 7
        submit /a key=k     -> created j3
        submit /b key=l     -> replayed j2
    """)


def test_beyond_the_memory_for_keys_the_one_forgotten_first_goes(script):
    script.play("""
        policy keep_jobs=1 keep_keys_bytes=840
        submit /a key=k1
        submit /b key=k2
        submit /c key=k3
        submit /d key=k4
        cancel /a
        cancel /b
        cancel /c
        cancel /d
        wait 1
        submit /x key=k2    -> conflict ~j2, which has ended and is forgotten
        submit /y key=k3    -> conflict ~j3, which has ended and is forgotten
        submit /z key=k1    -> created j5
    """)


def test_a_request_is_answered_with_its_job_or_that_it_is_forgotten(script):
    script.play("""
        policy keep_jobs=1
        submit /a request=once      -> created j1
        submit /b
        cancel /a
        submit /a request=once      -> created j1
        cancel /b
        wait 1
        submit /a request=once      -> conflict ~has made job j1, which has ended and is forgotten
        job /a                      -> unknown
    """)


def test_a_cancellation_repeated_after_its_job_is_forgotten_did_nothing(script):
    script.play("""
        policy keep_jobs=1
        submit /a
        submit /b
        cancel /a request=once      -> accepted j1
        cancel /b
        wait 1
        cancel /a request=once      -> conflict ~this request is about job j1, which has ended and is forgotten
    """)


def test_of_answers_the_newest_are_kept_by_number_and_by_bytes(script):
    world = script.world
    for number in range(30):
        script.play(f"submit /a{number} request=r{number}")
    script.play("policy keep_answers=10\nwait 1")
    assert list(world.ledger.answers) == [f"r{number}" for number in range(20, 30)]
    script.play("policy keep_answers_bytes=2100\nwait 1")
    assert list(world.ledger.answers) == ["r26", "r27", "r28", "r29"]
    assert sum(len(body) for _, body in world.ledger.answers.values()) < 20


def test_a_user_without_a_quota_has_only_so_many_tasks_waiting(script):
    script.world.ledger.default_quota = Quota("", max_pending_tasks=3)
    script.play("""
        submit /a replicas=2 user=ann   -> created
        submit /b replicas=2 user=ann   -> over_quota ~ann may have 3 pending tasks (the default), has 2 and asks for 2 more
        submit /b replicas=2 user=bob   -> created
    """)
    assert script.world.query("quota", user="ann")["max_pending_tasks"] == 3


def test_a_user_has_only_so_much_memory_of_jobs_that_live(script):
    script.world.ledger.default_quota = Quota("", max_live_bytes=100_000)

    def submit(name: str, user: str, if_exists: str = "fail") -> tuple[str, str]:
        spec = JobSpec(name=name, command=("true",), env={"A": "x" * 40_000})
        answer = script.world.submit(spec, Caller(user, "user"), if_exists=if_exists)
        return answer.status, answer.body.decode()

    assert [submit("/a", "ann")[0], submit("/b", "ann")[0]] == ["created", "created"]
    status, words = submit("/c", "ann")
    assert status == "over_quota"
    assert "ann may have 97.66KiB live bytes (the default), has 8" in words
    assert submit("/c", "bob")[0] == "created"
    assert submit("/b", "ann", if_exists="replace")[0] == "created"
    script.play("cancel /a user=ann")
    assert submit("/d", "ann")[0] == "created"
    assert 80_000 < script.world.query("quota", user="ann")["live_bytes"] < 100_000
    labels = ",".join(f'"k{number}":"{"x" * 250}"' for number in range(60))
    script.play(f"update /d labels={{{labels}}}   -> over_quota ~live bytes")


def test_the_same_request_is_answered_the_same(script):
    script.play("""
        submit /a request=once  -> created j1
        submit /a request=once  -> created j1
        submit /a               -> conflict
    """)


def test_a_refusal_is_answered_the_same(script):
    script.play("""
        submit /a
        submit /a request=late  -> conflict
        cancel /a
        submit /a request=late  -> conflict
    """)


@pytest.mark.parametrize(
    ("replicas", "outcome"), [(0, "invalid"), (1, "created"), (MAX_REPLICAS, "created")]
)
def test_replicas_are_bounded(script, replicas, outcome):
    script.play(f"submit /a replicas={replicas} -> {outcome}")


def test_ten_thousand_and_one_replicas_are_refused(script):
    script.play("submit /a replicas=10001 -> invalid ~10001 is not between 1 and 10000")


@pytest.mark.parametrize(
    "name", ["a", "/", "/a/", "/a//b", "/-a", "/a/7", "/a b", "/" + "x" * 64, "/a" * 17, "/../a"]
)
def test_what_is_no_name_is_refused(script, name):

    answer = script.world.submit(JobSpec(name=name, command=("true",)))
    assert answer.status == "invalid"
    assert not script.world.ledger.jobs


def test_sixteen_levels_are_a_name(script):
    script.play(f"submit {'/a' * 16} -> created")


def test_a_job_under_a_job_that_ended_is_refused(script):
    script.play("""
        submit /a
        cancel /a
        submit /a/b     -> parent_ended ~/a has ended (killed)
        worker w0
        submit /c
        schedule
        /c/0 exit 0
        submit /c/d     -> parent_ended
    """)


def test_a_job_under_a_parent_that_is_named_and_not_known_is_refused(script):
    """Its name alone may lead below a job that is forgotten; whoever names the parent wants it to
    be there.
    """
    script.play("""
        submit /a/b parent=/a       -> not_found ~there is no job /a
        submit /a/b                 -> created j1
        submit /c
        submit /c/d parent=/c       -> created j3
        submit /c/e parent=/a       -> invalid ~/c/e is not a child of /a
        submit /e parent=/c         -> invalid
    """)


def test_a_child_of_nobody_is_its_parents_owners(script):
    """Inside a task nobody says who he is: without authentication such a caller is anonymous and
    may do anything.
    """
    script.play("""
        submit /a user=ann
        submit /a/b user=anonymous role=admin key=k     -> created j2
        submit /a/b user=anonymous role=admin key=k     -> replayed j2
        cancel /a/b user=ann                            -> accepted
    """)


def test_a_child_is_one_of_its_owners_job_of_that_name(script):
    """Names belong to people: under a name that is somebody else's it is a root."""
    script.play("""
        submit /a user=ann
        submit /a/b user=bob                -> created j2
        job j2                              -> PENDING parent=/a
        submit /a/b user=ann                -> created j3
        submit /a/c user=ops role=admin     -> created j4
    """)
    children = [child["job"]["id"] for child in script.world.query("tree", job="j1")["children"]]
    assert children == ["j3", "j4"]


def test_a_child_that_names_a_parent_of_somebody_else_is_refused():
    world, ann, bob = World(), Caller("ann"), Caller("bob")
    world.submit(JobSpec(name="/a", command=("true",)), ann)
    for parent in ("/a", "/a@ann"):
        child = JobSpec(name="/a/b", command=("true",))
        refused = json.loads(world.submit(child, bob, parent=parent).body)["detail"]
        assert refused == "/a belongs to ann; only its owner submits under it"


def test_a_user_submits_for_nobody_else(script):
    script.play("""
        submit /a user=bob for_user=ann                 -> forbidden
        submit /a user=ops role=admin for_user=ann      -> created
        cancel /a user=ann                              -> accepted
    """)


def test_rerun_submits_again_what_ended(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 user=ann tolerate=1
        rerun /a user=ann           -> conflict
        schedule
        /a/0 exit 0
        /a/1 exit 1
        rerun /a user=bob           -> forbidden
        rerun /a user=ann           -> created j2
        job /a                      -> PENDING tasks=pending:2 id=j2
    """)


# ── Progress Guarantee, Spiral 2 and "Test Plan": by name ─────────────────────────────────────────


def test_child_job_inherits_root_submitted_at(script):
    script.play("""
        at 1
        submit /parent
        at 2
        submit /parent/child
        at 3
        submit /parent/child/grandchild
        job /parent                     -> PENDING root=1
        job /parent/child               -> PENDING root=1 parent=/parent
        job /parent/child/grandchild    -> PENDING root=1
    """)


def test_orphan_child_uses_own_submitted_at(script):
    script.play("""
        at 1
        submit /older
        at 5
        submit /gone/child      -> created
        job /gone/child         -> PENDING root=5 parent=/gone
    """)
