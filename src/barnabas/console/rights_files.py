"""The ACLs, SCRAM users and quotas of a cluster as files: JSON, whose rows are what the actions take, and CSV.

They have what the screen shows, so no password, salt or key. An export is written to the audit log, because such a list
tells who can reach what.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

from barnabas.console.changing import audited
from barnabas.console.cluster_view import ClusterView
from barnabas.console.csv_text import CSV, csv_text, file_name
from barnabas.console.problems import Problem
from barnabas.console.views.security import ENTITIES, QUOTA_KEYS, acls_view, quotas_view, scram_users_view
from barnabas.console.visit import Visit, file_response

Rows = list[dict[str, Any]]
FORMATS: Final = ("json", "json-file", "csv")
_JSON: Final = "application/json"
#: The name of all users, client ids or addresses without a quota of their own, as Kafka's tools write it.
_DEFAULT: Final = "<default>"


@dataclass(frozen=True, slots=True)
class RightsList:
    """A list of the cluster: its name, its rows with `problem`, and its columns and rows as CSV."""

    name: str
    view: Callable[[ClusterView], Awaitable[dict[str, Any]]]
    table: Callable[[Rows], tuple[Iterable[str], Rows]]

    async def answer(self, visit: Visit) -> Response:
        """Answers the list, or the file that the request names."""
        form, cluster = visit.parameters.choice("format", FORMATS, "json"), visit.live.cluster
        if form == "json":
            return visit.answer(await self.view(cluster))
        found: Rows = []

        async def read() -> dict[str, Any]:
            listed = await self.view(cluster)
            if listed["rows"] is None:
                raise Problem("refused", listed["problem"])
            found.extend(listed["rows"])
            return {"text": f"{len(found)} rows"}

        await audited(visit, f"export-{self.name}", {"format": form.removesuffix("-file")}, read)
        if form == "csv":
            columns, rows = self.table(found)
            return file_response(csv_text(list(columns), rows), file_name(cluster.name, f"{self.name}.csv"), CSV)
        about = {"kind": self.name, "cluster": cluster.name, "cluster_id": cluster.table.cluster_id}
        content = about | {"time_ms": cluster.clock_ms(), "rows": found}
        body = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        return file_response(body, file_name(cluster.name, f"{self.name}.json"), _JSON)


def _as_it_is(*columns: str) -> Callable[[Rows], tuple[Iterable[str], Rows]]:
    return lambda rows: (columns, rows)


def _quotas(rows: Rows) -> tuple[Iterable[str], Rows]:
    """Returns a column for each kind of entity and each quota, those that Kafka knows first."""
    kinds = dict.fromkeys([*ENTITIES, *(kind for row in rows for kind in row["entity"])])
    keys = dict.fromkeys([*QUOTA_KEYS, *(key for row in rows for key in row["quotas"])])
    shown = [
        {kind: _DEFAULT if name is None else name for kind, name in row["entity"].items()} | row["quotas"]
        for row in rows
    ]
    return [*kinds, *keys], shown


ACLS: Final = RightsList(
    "acls",
    acls_view,
    _as_it_is("resource", "name", "pattern", "principal", "host", "operation", "permission"),
)
SCRAM_USERS: Final = RightsList("scram-users", scram_users_view, _as_it_is("user", "mechanism", "iterations"))
QUOTAS: Final = RightsList("quotas", quotas_view, _quotas)
