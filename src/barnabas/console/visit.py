"""A request, as a handler sees it: the user, the parameters and the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.parameters import Parameters
from barnabas.console.problems import Problem
from barnabas.console.screens import LiveScreens, Screens, to_json
from barnabas.console.security.rights import Role
from barnabas.console.security.scope import Scope
from barnabas.console.security.sessions import Session
from barnabas.console.state import Console


@dataclass(slots=True)
class Visit:
    console: Console
    request: Request
    session: Session | None
    role: Role
    #: The screens of a moment of the history, if the request names one.
    past: Screens | None = None

    @property
    def parameters(self) -> Parameters:
        return Parameters(self.request.query_params)

    @property
    def address(self) -> str:
        client = self.request.client
        return "" if client is None else client.host

    @property
    def user(self) -> str:
        return "" if self.session is None else self.session.user

    @property
    def browser(self) -> str:
        """Returns what distinguishes the session from others; empty without one."""
        return "" if self.session is None else self.session.token

    @property
    def scope(self) -> Scope:
        """Returns what this visitor sees."""
        return self.console.scope_of(self.session)

    @property
    def live(self) -> LiveScreens:
        """Returns the screens of the cluster that the request names, by the visitor's scope. Raises Problem if there is
        none of that name.
        """
        scope = self.scope
        return self.console.scoped_live(self.console.screens_of(self.parameters.text("cluster", ""), scope), scope)

    @property
    def screens(self) -> Screens:
        """Returns the screens of the moment that the request names, or of now. Raises Problem."""
        return self.live if self.past is None else self.console.scoped_past(self.past, self.scope)

    async def body(self) -> dict[str, Any]:
        """Returns the body of a change. Raises Problem for a body that is not a JSON object."""
        try:
            found = orjson.loads(await self.request.body())
        except orjson.JSONDecodeError as error:
            raise Problem("bad-request", f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise Problem("bad-request", "the body is not a JSON object")
        return found

    def answer(self, data: object) -> Response:
        """Returns the answer of a reading route; without data before the cluster's first poll."""
        return json_response(self.screens.cluster.envelope(data))

    def answer_of_console(self, data: object) -> Response:
        """Returns the answer of a route that the console knows by itself, also while no broker answers."""
        return json_response(self.screens.cluster.envelope(None) | {"data": data})


Handler = Callable[[Visit], Awaitable[Response]]


def json_response(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def file_response(text: str | bytes, name: str, media_type: str) -> Response:
    """Returns a file to save. `name` has only harmless characters."""
    return Response(text, media_type=media_type, headers={"content-disposition": f'attachment; filename="{name}"'})
