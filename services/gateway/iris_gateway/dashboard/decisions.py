"""Decisions about sessions, deployments and their routes in words, for people. Pure.

A row of history names its handler; here is what each says when it succeeded, and otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DECISIONS: Mapping[str, tuple[str, str]] = {
    "ScheduleNewSessions": ("got its hosts", "got no hosts"),
    "PrepareSessions": ("was sent to its hosts", "was not prepared in time"),
    "StartSessions": ("was told to start", "did not start in time"),
    "TerminateSessions": ("was stopped", "did not stop in time"),
    "DetectCancellation": ("was cancelled before it started", "was not cancelled"),
    "DetectTermination": ("is ending", "goes on"),
    "RegressToPending": ("waits for hosts again", "keeps its hosts"),
    "PromoteToPrepared": ("is ready to start", "is not ready to start"),
    "PromoteToRunning": ("runs", "does not run yet"),
    "PromoteToTerminated": ("has ended", "has not ended yet"),
    "AmendJob": ("was changed", "was not changed"),
    "CheckPendingDeployment": ("was accepted", "was not accepted"),
    "ScalingDeployment": (
        "has the wanted number of routes",
        "does not have the wanted number of routes",
    ),
    "CheckReplicaDeployment": ("is to have another number of routes", "keeps its number of routes"),
    "ReconcileDeployment": ("has the wanted number of routes", "had too few or too many routes"),
    "AutoscaleDeployment": (
        "got another number of routes by its rule",
        "kept its number of routes by its rule",
    ),
    "RollingDeployment": ("was updated", "could not be updated"),
    "UpdateDeployment": ("began an update", "did not begin an update"),
    "DestroyDeployment": ("is being deleted", "could not be deleted"),
    "DestroyingDeployment": ("was deleted", "was deleted before all of its routes had ended"),
    "ProvisioningRoute": ("started", "failed to start"),
    "HealthCheckRoute": ("passes its probe", "fails its probe"),
    "RunningRoute": ("runs", "ended by itself"),
    "RouteEviction": (
        "is replaced, because it stayed unhealthy",
        "is kept although it is unhealthy",
    ),
    "EndRoute": ("is being stopped", "could not be stopped"),
    "TerminatingRoute": ("has ended", "did not end in time"),
    "ServiceDiscoverySync": ("gets requests", "gets no requests"),
}


def decision(row: Mapping[str, Any]) -> str:
    """What a row of history says, in words; the handler's name if it is one of a newer state
    service.
    """
    done, otherwise = DECISIONS.get(row["handler"], (row["handler"], row["handler"]))
    if row["handler"] == "HealthCheckRoute" and row["result"] == "STALE":
        return "has no recent result of its probe"
    return str(done if row["result"] == "SUCCESS" else otherwise)
