"""What the messages of operators and deployments ask for, as this release and the one before write
them.
"""

from __future__ import annotations

import msgspec
import pytest

from iris_core import codec
from iris_core.admission.actions import (
    DEPLOYMENT_ACTIONS,
    DrainWorker,
    RollBackDeployment,
    ScaleDeployment,
)
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import AdminCommand, Caller, DeployCommand

ROOT = Caller("root", "admin")


def test_the_bytes_of_the_release_before_are_read():
    drain = codec.pack(["drain", "w0", ["root", "admin"], "r1", 7, {"reason": "a new disk"}])
    assert codec.unpack(drain, AdminCommand).asked == DrainWorker("a new disk")
    scale = codec.pack(["scale", "chat", ["root", "admin"], "r2", 7, None, 3, 0, 5, ""])
    assert codec.unpack(scale, DeployCommand).asked == ScaleDeployment(replicas=3, version=5)


def test_the_release_before_reads_what_is_sent():
    arguments = codec.to_builtins(DrainWorker("a new disk"))
    sent = codec.unpack(codec.pack(AdminCommand("drain", "w0", ROOT, "r", 7, arguments)), list)
    assert (sent[0], sent[1], sent[5]) == ("drain", "w0", {"reason": "a new disk"})
    fields = msgspec.structs.asdict(RollBackDeployment(revision=2, version=9))
    sent = codec.unpack(codec.pack(DeployCommand("rollback", "chat", ROOT, "r", 7, **fields)), list)
    assert sent[5:] == [None, 0, 2, 9, "", b""]


@pytest.mark.parametrize("kind", DEPLOYMENT_ACTIONS.values(), ids=lambda kind: kind.__name__)
def test_every_action_on_a_deployment_survives_its_message(kind: type):
    asked = kind()
    message = DeployCommand(kind.action, "chat", ROOT, "r", 7, **msgspec.structs.asdict(asked))
    assert codec.unpack(codec.pack(message), DeployCommand).asked == asked


@pytest.mark.parametrize(
    ("action", "arguments", "words"),
    [
        ("explode", {}, "unknown action: explode"),
        ("drain", {"why": "x"}, "drain: object contains unknown field `why`"),
        (
            "drain",
            {"reason": "x" * 1001},
            "drain: reason must be a string of at most 1000 characters",
        ),
        (
            "set_quota",
            {"max_pending_tasks": -1},
            "set_quota: max_pending_tasks must be a whole number >= 0",
        ),
        (
            "set_quota",
            {"max_band": True},
            "set_quota: max_band must be a whole number, not true or false",
        ),
        ("set_quota", {"max_band": 4}, "set_quota: max_band must be a whole number <= 3"),
    ],
)
def test_an_invalid_action_is_refused_with_its_argument(
    action: str, arguments: dict[str, object], words: str
):
    with pytest.raises(Refused) as refused:
        _ = AdminCommand(action, "w0", ROOT, "r", 7, arguments).asked
    assert (refused.value.code, refused.value.detail) == (Code.INVALID, words)
