"""Taints and the settling of a node depend on time: each test passes the time in."""

import pytest
from nodes import node, spec, well

from dracpu_agent.devices.device import Taint
from dracpu_agent.report.conditions import conditions_of
from dracpu_agent.report.node_status import phase_of
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.settling import Settling
from dracpu_agent.work.tainting import PATIENCE_SECONDS, Tainting
from dracpu_api.settings import Mode

NOT_READY = Taint("dra.cpu/not-ready")


def phase(state):
    return phase_of(state, conditions_of(state, well()))


def tainting(state, standing=None):
    return Tainting(state, lambda: standing or well(), Changes(state))


def test_devices_are_tainted_only_after_the_runtime_was_away_for_a_while():
    state = node()
    taints = tainting(state)
    assert taints.step(100.0) is None
    state.containers.disconnected()
    assert taints.step(100.0) == 100.0 + PATIENCE_SECONDS
    assert taints.step(100.0 + PATIENCE_SECONDS - 1) == 100.0 + PATIENCE_SECONDS
    assert state.devices()[0].taints == ()
    assert taints.step(100.0 + PATIENCE_SECONDS) is None
    assert state.devices()[0].taints == (NOT_READY,)
    state.containers.synchronize([])
    taints.step(200.0)
    assert state.devices()[0].taints == ()
    state.containers.disconnected()
    assert taints.step(200.0) == 200.0 + PATIENCE_SECONDS, "patience begins anew"


@pytest.mark.parametrize("problem", [{"static_cpu_manager": True}, {"without_cpuset": "/kubepods"}])
def test_what_only_a_person_can_repair_taints_the_devices_at_once(problem):
    state = node()
    tainting(state, well(**problem)).step(0)
    assert state.devices()[0].taints == (NOT_READY,)


def test_a_checkpoint_that_cannot_be_written_taints_the_devices():
    state = node()
    taints = tainting(state, well(checkpoint_problem="disk full"))
    taints.step(0)
    assert state.devices()[0].taints == ()
    taints.step(PATIENCE_SECONDS)
    assert state.devices()[0].taints == (NOT_READY,)


def test_a_node_has_settled_when_its_former_devices_were_closed_for_settle_seconds():
    state = node()
    settling = Settling(state, Changes(state))
    assert settling.step(0) is None
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=10))
    assert settling.step(100) == 110
    assert settling.step(109.9) == 110
    assert phase(state) == "Settling"
    assert settling.step(110) is None
    assert phase(state) == "Ready"
    state.configure(spec(settle_seconds=10))
    assert settling.step(200) == 210, "the next change settles for its own time"


def test_settings_that_shorten_the_settling_apply_to_the_time_that_has_passed():
    state = node()
    settling = Settling(state, Changes(state))
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=60))
    assert settling.step(100) == 160
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=20))
    assert settling.step(110) == 120
    settling.step(120)
    assert phase(state) == "Ready"
