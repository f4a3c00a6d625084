"""The life of a broker's controller in ZooKeeper mode, as a table: the next state and the actions for each event in
each state.

    OFFLINE --session opened--> CLAIMING --won--> LOADING --loaded--> ACTIVE
                                   |  ^              |                   |
                            beaten v  | gone         v fenced, or another one claimed
                                 STANDBY <-----------'-------------------'

The actions of a step are carried out in their order. When a session expires, the controller resigns before the next
session opens (G34); then the broker registers, claims and reads as at its first start. An event that a state does not
list changes nothing: an authentication that failed ends neither the process nor a session that works.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from barnabas.common.automaton import Automaton


class ControllerState(Enum):
    #: No session: nothing can be read or written.
    OFFLINE = "offline"
    #: Another broker is the controller, or it is not known who is.
    STANDBY = "standby"
    CLAIMING = "claiming"
    #: This broker is the controller and reads the metadata.
    LOADING = "loading"
    ACTIVE = "active"


class ControllerSignal(Enum):
    """The events that change the state of the controller."""

    SESSION_OPENED = "a new session is open"
    SESSION_EXPIRED = "the session expired"
    AUTH_FAILED = "the authentication failed"
    CONTROLLER_GONE = "/controller does not exist"
    CONTROLLER_IS_ANOTHER = "/controller names another broker, or an old session"
    WON = "the claim succeeded"
    BEATEN = "the claim failed"
    LOADED = "the metadata is read"
    LOAD_FAILED = "the metadata cannot be read, or the first decisions fail"
    FENCED = "a write was refused because of the controller epoch"


class Action(Enum):
    """The actions that the controller takes."""

    #: Discards timers, queues, channels and caches: nothing is written or sent any more (G41).
    RESIGN = "resign"
    OPEN_SESSION = "open a session"
    #: Creates the broker's own znode, or replaces the one of an earlier session.
    REGISTER_BROKER = "register the broker"
    #: Sets the watch first, then reads: a change in between is an event (G42).
    WATCH_CONTROLLER = "watch /controller"
    CLAIM = "claim /controller"
    LOAD = "set all watches, then read the metadata"
    SERVE = "decide"
    #: Checks the controller epoch in the same multi, so that the znode of a successor stays.
    DELETE_CONTROLLER = "delete /controller"


class Step(NamedTuple):
    target: ControllerState
    actions: tuple[Action, ...]


_S, _E, _A = ControllerState, ControllerSignal, Action
_EXPIRED: Final = Step(_S.OFFLINE, (_A.RESIGN, _A.OPEN_SESSION))
_FAILED: Final = Step(_S.STANDBY, (_A.RESIGN, _A.DELETE_CONTROLLER, _A.WATCH_CONTROLLER))
_DEPOSED: Final = Step(_S.STANDBY, (_A.RESIGN, _A.WATCH_CONTROLLER))

STEPS: Final[Mapping[ControllerState, Mapping[ControllerSignal, Step]]] = {
    _S.OFFLINE: {
        _E.SESSION_OPENED: Step(_S.CLAIMING, (_A.REGISTER_BROKER, _A.WATCH_CONTROLLER, _A.CLAIM)),
        _E.SESSION_EXPIRED: Step(_S.OFFLINE, (_A.OPEN_SESSION,)),
    },
    _S.STANDBY: {
        _E.SESSION_EXPIRED: _EXPIRED,
        _E.CONTROLLER_GONE: Step(_S.CLAIMING, (_A.CLAIM,)),
    },
    _S.CLAIMING: {
        _E.SESSION_EXPIRED: _EXPIRED,
        _E.WON: Step(_S.LOADING, (_A.LOAD,)),
        _E.BEATEN: Step(_S.STANDBY, (_A.WATCH_CONTROLLER,)),
    },
    _S.LOADING: {
        _E.SESSION_EXPIRED: _EXPIRED,
        _E.LOADED: Step(_S.ACTIVE, (_A.SERVE,)),
        _E.LOAD_FAILED: _FAILED,
        _E.FENCED: _DEPOSED,
        _E.CONTROLLER_IS_ANOTHER: _DEPOSED,
        _E.CONTROLLER_GONE: Step(_S.CLAIMING, (_A.RESIGN, _A.WATCH_CONTROLLER, _A.CLAIM)),
    },
    _S.ACTIVE: {
        _E.SESSION_EXPIRED: _EXPIRED,
        _E.LOAD_FAILED: _FAILED,
        _E.FENCED: _DEPOSED,
        _E.CONTROLLER_IS_ANOTHER: _DEPOSED,
        _E.CONTROLLER_GONE: Step(_S.CLAIMING, (_A.RESIGN, _A.WATCH_CONTROLLER, _A.CLAIM)),
    },
}


class ControllerLife:
    """The state of a broker's controller, and its transitions."""

    def __init__(self) -> None:
        moves = {state: frozenset(step.target for step in steps.values()) for state, steps in STEPS.items()}
        self._automaton = Automaton(moves, ControllerState.OFFLINE)

    @property
    def state(self) -> ControllerState:
        return self._automaton.state

    def on(self, signal: ControllerSignal) -> tuple[Action, ...]:
        """Moves to the next state. Returns the actions to carry out, in this order; none for an event that has no
        meaning in this state.
        """
        step = STEPS[self._automaton.state].get(signal)
        if step is None:
            return ()
        self._automaton.move(step.target)
        return step.actions
