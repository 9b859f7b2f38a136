"""The documentation explains every code that users see, where the product says it does."""

import ast

from drawings.alerts import ALERTS
from iris_core.placement.reasons import EXPLANATIONS, ReasonCode
from iris_gateway.http.problem_types import PROBLEM_TYPES
from iris_proxy.http.refusal import REFUSAL_TYPES
from tests.house.repository import ROOT, sources
from tests.house.test_repository import anchors

VIEWS = "services/state/iris_state/views/deployments.py"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def explained() -> str:
    return page("troubleshooting.md")


def texts(expression: ast.AST) -> set[str]:
    """Every string in an expression."""
    return {
        node.value
        for node in ast.walk(expression)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def condition_codes() -> set[str]:
    """The codes of a deployment's conditions: strings passed as ``code``, or assigned to a variable
    of that name.
    """
    [tree] = [source.tree for source in sources() if str(source.path) == VIEWS]
    passed = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "code"
    ]
    assigned = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "code"
    ]
    return set().union(*map(texts, passed + assigned))


def test_every_condition_of_a_deployment_is_explained():
    codes = condition_codes()
    assert {"crash_loop", "rolled_back", "update_failed"} <= codes
    assert [code for code in sorted(codes) if f"| `{code}` |" not in explained()] == []


def test_every_pending_reason_is_explained_under_its_own_anchor():
    assert list(EXPLANATIONS) == list(ReasonCode)
    assert {code.value for code in ReasonCode} - anchors(page("reasons.md")) == set()


def test_every_problem_type_is_explained_under_an_anchor_of_its_own():
    assert set(PROBLEM_TYPES) - anchors(page("problems.md")) == set()


def test_every_refusal_of_the_proxy_is_explained():
    assert [code for code in REFUSAL_TYPES if f"| `{code}` |" not in page("problems.md")] == []


def test_every_section_that_the_product_names_is_there():
    """Problem types name sections of the troubleshooting page, alerts their runbook."""
    named = {row.section for row in PROBLEM_TYPES.values() if row.section}
    named |= {alert.runbook.partition("#")[2] for alert in ALERTS}
    assert named - anchors(explained()) == set()
    assert {alert.runbook.partition("#")[0] for alert in ALERTS} == {"docs/troubleshooting.md"}
