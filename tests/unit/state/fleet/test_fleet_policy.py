"""The section `[fleet]` and the values by which rounds of the fleet decide."""

from __future__ import annotations

from iris_service.process_settings import FleetSettings
from iris_state.policy import FLEET_POLICY
from iris_state.service.service import fleet_policy


def test_the_defaults_of_the_section_are_those_of_the_decisions() -> None:
    assert fleet_policy(FleetSettings()) == FLEET_POLICY
