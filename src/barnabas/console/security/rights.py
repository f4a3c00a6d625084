"""The routes of the console, and who can use each: the one table from which the application is built and tested."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Role(IntEnum):
    """The roles of users. A higher role has the rights of the lower ones; NOBODY is a client that has not logged in."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


ROLES: Final = {role.name.lower(): role for role in Role if role is not Role.NOBODY}


#: Routes that also answer about a moment of the history.
PAST: Final = frozenset(
    {
        "overview",
        "map",
        "topics",
        "topic",
        "partition",
        "lanes",
        "brokers",
        "broker",
        "links",
        "quorum",
        "timeline",
        "search",
        "groups",
        "group",
        "whatif",
        "compare",
        "incident",
        "incident_file",
        "history",
    }
)
#: The routes of the past that show what happened before the moment; the others show its state alone.
WITH_EVENTS: Final = frozenset({"overview", "topic", "partition", "lanes", "timeline", "incident_file"})


class Route(NamedTuple):
    """A route of the console. `name` is the name of the handler. A change is refused in read-only mode, and goes to the
    audit log.
    """

    method: str
    path: str
    name: str
    role: Role

    @property
    def is_change(self) -> bool:
        return self.path.startswith(("/api/actions/", "/api/lab/"))


ROUTES: Final = (
    Route("GET", "/api/session", "session", Role.NOBODY),
    Route("POST", "/api/login", "login", Role.NOBODY),
    Route("POST", "/api/logout", "logout", Role.NOBODY),
    Route("POST", "/api/logout-everywhere", "logout_everywhere", Role.VIEWER),
    Route("GET", "/api/overview", "overview", Role.VIEWER),
    Route("GET", "/api/map", "map", Role.VIEWER),
    Route("GET", "/api/topics", "topics", Role.VIEWER),
    Route("GET", "/api/topic-policies", "topic_policies", Role.VIEWER),
    Route("GET", "/api/topic", "topic", Role.VIEWER),
    Route("GET", "/api/partition", "partition", Role.VIEWER),
    Route("GET", "/api/brokers", "brokers", Role.VIEWER),
    Route("GET", "/api/broker", "broker", Role.VIEWER),
    Route("GET", "/api/cluster-configs", "cluster_configs", Role.VIEWER),
    Route("GET", "/api/quorum", "quorum", Role.VIEWER),
    Route("GET", "/api/timeline", "timeline", Role.VIEWER),
    Route("GET", "/api/search", "search", Role.VIEWER),
    Route("GET", "/api/lanes", "lanes", Role.VIEWER),
    Route("GET", "/api/groups", "groups", Role.VIEWER),
    Route("GET", "/api/group", "group", Role.VIEWER),
    Route("GET", "/api/messages", "messages", Role.VIEWER),
    Route("GET", "/api/message", "message", Role.VIEWER),
    Route("GET", "/api/tail", "tail", Role.VIEWER),
    Route("GET", "/api/links", "links", Role.VIEWER),
    Route("GET", "/api/acls", "acls", Role.OPERATOR),
    Route("GET", "/api/scram-users", "scram_users", Role.OPERATOR),
    Route("GET", "/api/quotas", "quotas", Role.OPERATOR),
    Route("GET", "/api/history", "history", Role.VIEWER),
    Route("GET", "/api/whatif", "whatif", Role.VIEWER),
    Route("GET", "/api/compare", "compare", Role.VIEWER),
    Route("GET", "/api/incident", "incident", Role.VIEWER),
    Route("GET", "/api/incident-file", "incident_file", Role.VIEWER),
    Route("GET", "/api/moves", "moves", Role.VIEWER),
    Route("GET", "/api/move-plan", "move_plan", Role.VIEWER),
    Route("GET", "/api/directory-plan", "directory_plan", Role.VIEWER),
    Route("GET", "/api/live", "live", Role.VIEWER),
    Route("GET", "/api/audit", "audit", Role.OPERATOR),
    Route("POST", "/api/actions/elect", "elect", Role.OPERATOR),
    Route("POST", "/api/actions/create-topic", "create_topic", Role.OPERATOR),
    Route("POST", "/api/actions/delete-topic", "delete_topic", Role.ADMIN),
    Route("POST", "/api/actions/alter-configs", "alter_configs", Role.OPERATOR),
    Route("POST", "/api/actions/add-partitions", "add_partitions", Role.OPERATOR),
    Route("POST", "/api/actions/delete-records", "delete_records", Role.ADMIN),
    Route("POST", "/api/actions/reset-offsets", "reset_offsets", Role.OPERATOR),
    Route("POST", "/api/actions/delete-group", "delete_group", Role.ADMIN),
    Route("POST", "/api/actions/delete-offsets", "delete_offsets", Role.ADMIN),
    Route("POST", "/api/actions/clone-topic", "clone_topic", Role.OPERATOR),
    Route("POST", "/api/actions/recreate-topic", "recreate_topic", Role.ADMIN),
    Route("POST", "/api/actions/change-replication", "change_replication", Role.ADMIN),
    Route("POST", "/api/actions/abort-transaction", "abort_transaction", Role.ADMIN),
    Route("POST", "/api/actions/delete-topics", "delete_topics", Role.ADMIN),
    Route("POST", "/api/actions/delete-records-of-topics", "delete_records_of_topics", Role.ADMIN),
    Route("POST", "/api/actions/alter-configs-of-topics", "alter_configs_of_topics", Role.OPERATOR),
    Route("POST", "/api/actions/add-partitions-to-topics", "add_partitions_to_topics", Role.OPERATOR),
    Route("POST", "/api/actions/acknowledge", "acknowledge", Role.OPERATOR),
    Route("POST", "/api/actions/reassign", "reassign", Role.ADMIN),
    Route("POST", "/api/actions/throttle-moves", "throttle_moves", Role.ADMIN),
    Route("POST", "/api/actions/cancel-moves", "cancel_moves", Role.ADMIN),
    Route("POST", "/api/actions/verify-moves", "verify_moves", Role.ADMIN),
    Route("POST", "/api/actions/produce", "produce", Role.OPERATOR),
    Route("POST", "/api/actions/produce-again", "produce_again", Role.OPERATOR),
    Route("POST", "/api/actions/copy-records", "copy_records", Role.OPERATOR),
    Route("POST", "/api/actions/add-acl", "add_acl", Role.ADMIN),
    Route("POST", "/api/actions/remove-acl", "remove_acl", Role.ADMIN),
    Route("POST", "/api/actions/set-scram-user", "set_scram_user", Role.ADMIN),
    Route("POST", "/api/actions/remove-scram-user", "remove_scram_user", Role.ADMIN),
    Route("POST", "/api/actions/set-quotas", "set_quotas", Role.ADMIN),
    Route("GET", "/api/lab", "lab", Role.ADMIN),
    Route("POST", "/api/lab/stop", "lab_stop", Role.ADMIN),
    Route("POST", "/api/lab/kill", "lab_kill", Role.ADMIN),
    Route("POST", "/api/lab/pause", "lab_pause", Role.ADMIN),
    Route("POST", "/api/lab/resume", "lab_resume", Role.ADMIN),
    Route("POST", "/api/lab/start", "lab_start", Role.ADMIN),
)
