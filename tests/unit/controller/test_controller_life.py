"""The table of a controller's life in ZooKeeper mode."""

from __future__ import annotations

import pytest

from barnabas.controller.zookeeper.lifecycle import STEPS, Action, ControllerLife, ControllerSignal, ControllerState

_PATHS: dict[ControllerState, list[ControllerSignal]] = {
    ControllerState.OFFLINE: [],
    ControllerState.CLAIMING: [ControllerSignal.SESSION_OPENED],
    ControllerState.STANDBY: [ControllerSignal.SESSION_OPENED, ControllerSignal.BEATEN],
    ControllerState.LOADING: [ControllerSignal.SESSION_OPENED, ControllerSignal.WON],
    ControllerState.ACTIVE: [ControllerSignal.SESSION_OPENED, ControllerSignal.WON, ControllerSignal.LOADED],
}


def life_in(state: ControllerState) -> ControllerLife:
    life = ControllerLife()
    for signal in _PATHS[state]:
        life.on(signal)
    assert life.state is state
    return life


@pytest.mark.parametrize("state", [state for state in ControllerState if state is not ControllerState.OFFLINE])
def test_an_expired_session_ends_the_office_before_the_next_one_opens(state: ControllerState) -> None:
    """G34: resign, open, register, watch, claim, read everything again: in this order, from every state."""
    life = life_in(state)
    done = [*life.on(ControllerSignal.SESSION_EXPIRED), *life.on(ControllerSignal.SESSION_OPENED)]
    assert done == [
        Action.RESIGN,
        Action.OPEN_SESSION,
        Action.REGISTER_BROKER,
        Action.WATCH_CONTROLLER,
        Action.CLAIM,
    ]
    assert life.on(ControllerSignal.WON) == (Action.LOAD,)


def test_a_session_that_expires_before_it_was_used_is_opened_again() -> None:
    """G34: an expiry does not end the process."""
    life = ControllerLife()
    assert life.on(ControllerSignal.SESSION_EXPIRED) == (Action.OPEN_SESSION,)
    assert Action.CLAIM in life.on(ControllerSignal.SESSION_OPENED)


@pytest.mark.parametrize("state", list(ControllerState))
def test_a_failed_authentication_changes_nothing(state: ControllerState) -> None:
    """G34: it ends neither the process nor a session that works."""
    life = life_in(state)
    assert life.on(ControllerSignal.AUTH_FAILED) == ()
    assert life.state is state


@pytest.mark.parametrize("state", [ControllerState.LOADING, ControllerState.ACTIVE])
@pytest.mark.parametrize("signal", [ControllerSignal.FENCED, ControllerSignal.CONTROLLER_IS_ANOTHER])
def test_a_deposed_controller_resigns_first(state: ControllerState, signal: ControllerSignal) -> None:
    """G31: nothing more is written or sent."""
    life = life_in(state)
    assert life.on(signal)[0] is Action.RESIGN
    assert life.state is ControllerState.STANDBY


def test_every_way_out_of_office_begins_with_the_resignation() -> None:
    in_office = {ControllerState.LOADING, ControllerState.ACTIVE}
    leaving = [step.actions for state in in_office for step in STEPS[state].values() if step.target not in in_office]
    assert len(leaving) >= 8
    assert all(actions[0] is Action.RESIGN for actions in leaving)


def test_a_claim_that_was_beaten_looks_again_before_it_waits() -> None:
    """The controller that won can be gone by then: its event came while the claim was under way, and meant nothing."""
    life = life_in(ControllerState.CLAIMING)
    assert life.on(ControllerSignal.CONTROLLER_GONE) == ()
    assert life.on(ControllerSignal.BEATEN) == (Action.WATCH_CONTROLLER,)
    assert life.on(ControllerSignal.CONTROLLER_GONE) == (Action.CLAIM,)


def test_an_activation_that_fails_gives_the_znode_back() -> None:
    life = life_in(ControllerState.LOADING)
    assert life.on(ControllerSignal.LOAD_FAILED) == (
        Action.RESIGN,
        Action.DELETE_CONTROLLER,
        Action.WATCH_CONTROLLER,
    )
