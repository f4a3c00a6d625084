"""The routes about links between brokers, and about ACLs, SCRAM users and quotas."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from barnabas.console.actions import security
from barnabas.console.changing import action
from barnabas.console.reading import require_filled
from barnabas.console.rights_files import ACLS, QUOTAS, SCRAM_USERS
from barnabas.console.views.links import links_view
from barnabas.console.visit import Handler, Visit


async def links(visit: Visit) -> Response:
    screens = visit.screens
    return visit.answer(screens.once("links", lambda: links_view(screens.cluster)))


async def acls(visit: Visit) -> Response:
    require_filled(visit.live)
    return await ACLS.answer(visit)


async def scram_users(visit: Visit) -> Response:
    require_filled(visit.live)
    return await SCRAM_USERS.answer(visit)


async def quotas(visit: Visit) -> Response:
    require_filled(visit.live)
    return await QUOTAS.answer(visit)


HANDLERS: Final[dict[str, Handler]] = {
    "links": links,
    "acls": acls,
    "scram_users": scram_users,
    "quotas": quotas,
    "add_acl": action("add-acl", security.add_acl),
    "remove_acl": action("remove-acl", security.remove_acl),
    "set_scram_user": action("set-scram-user", security.set_scram_user),
    "remove_scram_user": action("remove-scram-user", security.remove_scram_user),
    "set_quotas": action("set-quotas", security.set_quotas),
}
