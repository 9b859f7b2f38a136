"""The troubleshooting page explains every code that users see."""

import ast

from iris_core.reasons import ReasonCode
from tests.house.repository import ROOT, sources

VIEWS = "services/state/iris_state/views/deployments.py"


def explained() -> str:
    return (ROOT / "docs" / "troubleshooting.md").read_text()


def texts(expression: ast.AST) -> set[str]:
    """Every string in an expression."""
    return {
        node.value for node in ast.walk(expression) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def condition_codes() -> set[str]:
    """The codes of a deployment's conditions: strings passed as ``code``, or assigned to a variable of that name."""
    [tree] = [source.tree for source in sources() if str(source.path) == VIEWS]
    passed = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "code"]
    assigned = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "code"
    ]
    return set().union(*map(texts, passed + assigned))


def test_every_condition_of_a_deployment_is_explained():
    codes = condition_codes()
    assert {"crash_loop", "rolled_back", "update_failed"} <= codes
    assert [code for code in sorted(codes) if f"| `{code}` |" not in explained()] == []


def test_every_reason_why_a_task_is_pending_is_explained():
    assert [code.value for code in ReasonCode if f"`{code}`" not in explained()] == []
