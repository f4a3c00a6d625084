"""The options of `barnabas simulate`. `simulate_runs` does the work and loads brokers and clients."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import Json
from barnabas.embedded.failures import Failure

_DEFAULT_HOURS = 1 / 60

Seed = Annotated[int, typer.Option("--seed", help="Seed of the run; with --explore, the first seed")]
Explore = Annotated[int | None, typer.Option("--explore", metavar="COUNT", help="Search this many seeds for failures")]
Faults = Annotated[str, typer.Option("--faults", metavar="KIND,...", help="Kinds of faults: `all`, `none`, or a list")]
Hours = Annotated[
    float, typer.Option("--hours", help="Duration of the faults, in virtual hours", show_default="a minute")
]
Only = Annotated[str | None, typer.Option("--only", metavar="N,...", help="Only these faults of the seed, by number")]
Brokers = Annotated[int, typer.Option("--brokers", min=1, help="Number of nodes with the broker role")]
Controllers = Annotated[
    int,
    typer.Option(
        "--controllers", min=0, help="Number of nodes with only the controller role; 0: the brokers are controllers"
    ),
]
OneFault = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="AT_MS:KIND:NODE[-PEER]:MS[:AMOUNT]",
        help="This fault instead of those of the seed; can be repeated",
    ),
]
Changes = Annotated[
    str, typer.Option("--changes", metavar="KIND,...", help="Changes by operators: `all`, `none`, or a list")
]
Producers = Annotated[int, typer.Option("--producers", min=0, help="Number of producers")]
Consumers = Annotated[int, typer.Option("--consumers", min=0, help="Number of consumers, chains or members")]
Rate = Annotated[float, typer.Option("--rate", min=0.01, help="Records per second of each producer")]
Work = Annotated[
    str, typer.Option("--work", metavar="KIND", help="What clients do: `records`, `transactions` or `groups`")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the time line to this file, as a page")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Number of processes for --explore; default: one per core")
]


def simulate(
    seed: Seed = 1,
    explore: Explore = None,
    faults: Faults = "all",
    hours: Hours = _DEFAULT_HOURS,
    only: Only = None,
    brokers: Brokers = 1,
    controllers: Controllers = 0,
    zookeeper: Annotated[bool, typer.Option("--zookeeper", help="Keep the metadata in a ZooKeeper server")] = False,
    work: Work = "records",
    kafka_defaults: Annotated[
        bool,
        typer.Option("--kafka-defaults", help="Leave times and sizes at Kafka's defaults, not drawn from the seed"),
    ] = False,
    fault: OneFault = None,
    changes: Changes = "all",
    producers: Producers = 2,
    consumers: Consumers = 2,
    rate: Rate = 10.0,
    html: Html = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Run a cluster with faults in virtual time and check its guarantees

    The seed determines everything: the same seed gives the same run, event by event. The exit code is 1 if a guarantee
    was broken.
    """
    try:
        runs = importlib.import_module("barnabas.cli.simulate_runs")
    except ModuleNotFoundError as error:
        if error.name != "aiokafka":
            raise
        raise Failure("the simulator needs the package aiokafka", "pip install 'barnabas[orders]'") from None
    settings = runs.settings_for(
        seed,
        faults,
        hours,
        brokers=brokers,
        controllers=controllers,
        work=work,
        zookeeper=zookeeper,
        draws_properties=not kafka_defaults,
        changes=changes,
        size=(producers, consumers, rate),
    )
    if explore is None:
        failed = runs.replay(runs.with_faults(settings, only, fault or ()), html, as_json=as_json)
    elif only is not None or fault or html is not None:
        raise Failure("--only, --fault and --html are for one seed: omit --explore")
    else:
        failed = runs.explore(settings, explore, jobs or os.cpu_count() or 1, as_json=as_json)
    if failed:
        raise typer.Exit(1)
