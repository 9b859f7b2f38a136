"""The matrix of rights, cell by cell, and that nothing else compares roles."""

import ast

import pytest

from iris_core.access.rights import CALLER_ROLES, RIGHTS, Membership, Verb, may
from iris_core.messages.gateway_state import Caller
from tests.house.repository import ROOT, sources

# by verb: who may with a record of one's own | with one of others | as a member of its project |
# as an admin of that; initials of user, admin, worker, task
MATRIX = {
    Verb.COMMAND: "uat|uat",
    Verb.SUBMIT_FOR: "uat|a",
    Verb.SUBMIT_BELOW: "uat|a",
    Verb.SUBMIT_TO: "a|a|uat|uat",
    Verb.CHANGE: "uat|a|a|ua",
    Verb.REPEAT: "uat|a",
    Verb.EXECUTE: "uat|a",
    Verb.READ_OUTPUT: "uawt|a",
    Verb.READ_CODE: "uawt|a",
    Verb.READ_USAGE: "uawt|a",
    Verb.READ_AUDIT: "uawt|a",
    Verb.READ_ORIGIN: "uawt|a",
    Verb.USE_BUNDLE: "uawt|a",
    Verb.HOLD: "ua|a",
    Verb.RELEASE: "ua|a",
    Verb.NOTIFY: "ua|a",
    Verb.EXCEED_BAND: "a|a",
    Verb.SET_BELOW: "a|a|a|ua",
    Verb.SET_MEMBERS: "a|a|a|ua",
    Verb.ADMINISTER: "a|a",
}


@pytest.mark.parametrize("verb", Verb, ids=lambda verb: verb.name.lower())
def test_who_may_do_it(verb):
    def permitted(owner, membership=Membership.NONE):
        callers = ((role, Caller(user="ann", role=role)) for role in CALLER_ROLES)
        return "".join(role[0] for role, one in callers if may(one, verb, owner, membership))

    own, others, *in_project = MATRIX[verb].split("|")
    assert (permitted("ann"), permitted("bob")) == (own, others)
    assert permitted(None) == permitted("bob")
    found = [permitted("bob", one) for one in (Membership.MEMBER, Membership.ADMIN)]
    assert found == (in_project or [others, others])


def test_each_verb_has_a_right():
    assert RIGHTS.keys() == set(Verb)


def test_an_unknown_role_may_do_nothing():
    caller = Caller(user="ann", role="guest")
    assert not any(may(caller, verb, owner) for verb in Verb for owner in ("ann", "bob", None))


def compares_roles(text: str) -> bool:
    """Whether code compares an attribute `role` with something."""
    return any(
        isinstance(part, ast.Attribute) and part.attr == "role"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
    )


def test_roles_are_compared_in_the_matrix_only():
    """The command `iris admin token` edits roles, and the audit deletes an admin's entries last."""
    allowed = {
        "libs/iris_core/iris_core/access/rights.py",
        "libs/iris/iris/cli/commands/operate/admin/token.py",
        "services/state/iris_state/records/audit.py",
    }
    found = {
        str(source.path)
        for source in sources()
        if compares_roles((ROOT / source.path).read_text(encoding="utf-8"))
    }
    assert found == allowed


def test_no_page_compares_the_role_of_its_reader():
    pages = (ROOT / "services/gateway/iris_gateway/dashboard/templates").glob("*.html")
    assert [page.name for page in pages if "caller.role" in page.read_text(encoding="utf-8")] == []
