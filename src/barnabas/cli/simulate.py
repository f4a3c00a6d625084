"""The options of `barnabas simulate`. `simulate_runs` does the work and loads brokers and clients."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from barnabas.cli.options import Json, is_given
from barnabas.embedded.failures import Failure

_DEFAULT_HOURS = 1 / 60
_BROKERS_OF_AN_APPLICATION = 3
#: The only options that can be combined with a selection of small worlds.
_OF_WORLDS = frozenset({"world", "seed", "explore", "faults", "fault", "hours", "shorten", "jobs", "as_json"})
#: The options that can be combined with --app.
_OF_APPLICATIONS = frozenset({"app", "seed", "explore", "faults", "brokers", "kafka_defaults", "jobs", "as_json"})

Seed = Annotated[int, typer.Option("--seed", help="Seed of the run; with --explore, the first seed")]
Explore = Annotated[int | None, typer.Option("--explore", metavar="COUNT", help="Search this many runs for failures")]
Faults = Annotated[str, typer.Option("--faults", metavar="KIND,...", help="Kinds of faults: `all`, `none`, or a list")]
Hours = Annotated[
    float, typer.Option("--hours", help="Duration of the faults, in virtual hours", show_default="a minute")
]
Only = Annotated[str | None, typer.Option("--only", metavar="N,...", help="Only these faults of the seed, by number")]
Brokers = Annotated[
    int | None,
    typer.Option("--brokers", min=1, help="Number of nodes with the broker role; default: 1, with --app 3"),
]
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
        metavar="AT_MS:KIND:NODE[-PEER]:MS[:AMOUNT][@EVENT]",
        help="A fault to inject instead of those of the seed; repeatable. With @EVENT it begins at this event",
    ),
]
Changes = Annotated[
    str, typer.Option("--changes", metavar="KIND,...", help="Changes by operators: `all`, `none`, or a list")
]
Features = Annotated[
    str,
    typer.Option(
        "--features",
        metavar="KIND,...",
        help="Features of clients' work: `all`, of which each seed draws some, `none`, or a list",
    ),
]
Producers = Annotated[int, typer.Option("--producers", min=0, help="Number of producers")]
Consumers = Annotated[
    int, typer.Option("--consumers", min=0, help="Number of consumers, or with other --work of chains or members")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.01, help="Records per second of each producer", show_default="drawn from the seed"),
]
Work = Annotated[
    str, typer.Option("--work", metavar="KIND", help="What clients do: `records`, `transactions` or `groups`")
]
Zookeeper = Annotated[bool, typer.Option("--zookeeper", help="Keep the metadata in a ZooKeeper server")]
KafkaDefaults = Annotated[
    bool, typer.Option("--kafka-defaults", help="Use Kafka's defaults for times and sizes; the seed draws none")
]
Untied = Annotated[bool, typer.Option("--untied", help="Draw no faults that are tied to events of the brokers")]
App = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:FUNCTION", help="Run a scenario of an application instead of our clients"),
]
World = Annotated[
    str | None,
    typer.Option(
        "--world",
        metavar="NAME,...",
        help="`cluster`, or a small world: `replication`, `transactions`, `zookeeper`, `quorum`, `security`; with "
        "--explore: all",
        show_default="cluster",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the time line to this file, as a page")
]
SeedsOnly = Annotated[
    bool,
    typer.Option("--seeds-only", help="With --explore: only seeds, no variations of runs that reached something new"),
]
HistoryOption = Annotated[
    Path | None,
    typer.Option("--history", metavar="FILE", help="Also record the cluster's states into this new file"),
]
Shorten = Annotated[
    bool,
    typer.Option(
        "--shorten", help="If the run fails: search for the smallest run that fails in the same way, and show it"
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Number of processes for --explore; default: one per core")
]


def simulate(
    ctx: typer.Context,
    seed: Seed = 1,
    explore: Explore = None,
    faults: Faults = "all",
    hours: Hours = _DEFAULT_HOURS,
    only: Only = None,
    brokers: Brokers = None,
    controllers: Controllers = 0,
    zookeeper: Zookeeper = False,
    work: Work = "records",
    kafka_defaults: KafkaDefaults = False,
    untied: Untied = False,
    fault: OneFault = None,
    changes: Changes = "all",
    features: Features = "all",
    producers: Producers = 2,
    consumers: Consumers = 2,
    rate: Rate = None,
    html: Html = None,
    history: HistoryOption = None,
    shorten: Shorten = False,
    world: World = None,
    app: App = None,
    seeds_only: SeedsOnly = False,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Run a cluster with faults in virtual time and check its guarantees

    The same seed gives the same run, event by event. The exit code is 1 if a guarantee was broken.
    """
    runs, jobs = _loaded_runs(), jobs or os.cpu_count() or 1
    if app is not None:
        _end(_simulate_application(ctx, app, jobs))
        return
    worlds = importlib.import_module("barnabas.cli.simulate_worlds")
    has_cluster, kinds = worlds.kinds_of(world, explores=explore is not None)
    if not has_cluster:
        _end(_simulate_small_worlds(ctx, worlds, kinds, jobs))
        return
    settings = _settings_of(runs, ctx.params)
    if explore is None:
        chosen = runs.with_faults(settings, only, fault or ())
        _end(runs.replay(chosen, html, history, shortens=shorten, as_json=as_json))
    elif only is not None or fault or html is not None or history is not None or shorten:
        raise Failure("--only, --fault, --html, --history and --shorten are for one seed: omit --explore")
    else:
        _end(runs.explore(settings, explore, jobs, as_json=as_json, varies=not seeds_only, kinds=kinds))


def _settings_of(runs: ModuleType, chosen: Mapping[str, Any]) -> Any:
    """Returns the settings of a run of a whole cluster, from the parameters of the command."""
    return runs.settings_for(
        chosen["seed"],
        chosen["faults"],
        chosen["hours"],
        brokers=chosen["brokers"] or 1,
        controllers=chosen["controllers"],
        work=chosen["work"],
        zookeeper=chosen["zookeeper"],
        draws_properties=not chosen["kafka_defaults"],
        ties_faults=not chosen["untied"],
        changes=chosen["changes"],
        features=chosen["features"],
        size=(chosen["producers"], chosen["consumers"], chosen["rate"]),
    )


def _end(failed: bool) -> None:
    if failed:
        raise typer.Exit(1)


def _simulate_application(ctx: typer.Context, app: str, jobs: int) -> bool:
    """Runs a scenario of an application. Returns whether a run failed."""
    _refuse_other_options(ctx)
    applications = importlib.import_module("barnabas.cli.simulate_application")
    chosen = ctx.params
    brokers = chosen["brokers"] or _BROKERS_OF_AN_APPLICATION
    settings = applications.settings_for(app, chosen["seed"], chosen["faults"], brokers, chosen["kafka_defaults"])
    return bool(applications.run(app, settings, chosen["explore"], jobs, as_json=chosen["as_json"]))


def _simulate_small_worlds(ctx: typer.Context, worlds: ModuleType, kinds: Sequence[Any], jobs: int) -> bool:
    """Runs small worlds without whole clusters. Returns whether one failed."""
    given = [name for name in ctx.params if is_given(ctx, name) and name not in _OF_WORLDS]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise Failure(f"--world cannot be combined with {options}", "a small world has its own clients and nodes")
    chosen = ctx.params
    if chosen["explore"] is None:
        faults_s = max(1, round(chosen["hours"] * 3600)) if is_given(ctx, "hours") else None
        faults = (chosen["faults"], chosen["fault"] or ())
        settings = worlds.settings_for(kinds[0], chosen["seed"], *faults, faults_s)
        return bool(worlds.replay(settings, shortens=chosen["shorten"], as_json=chosen["as_json"]))
    if any(is_given(ctx, name) for name in ("faults", "fault", "shorten", "hours")):
        raise Failure("--faults, --fault, --shorten and --hours are for one seed of a small world: omit --explore")
    return bool(worlds.explore(kinds, chosen["seed"], chosen["explore"], jobs, as_json=chosen["as_json"]))


def _loaded_runs() -> ModuleType:
    """Returns the module that does the work. Raises Failure if a package that it needs is not installed."""
    try:
        return importlib.import_module("barnabas.cli.simulate_runs")
    except ModuleNotFoundError as error:
        if error.name != "aiokafka":
            raise
        raise Failure("the simulator needs the package aiokafka", "pip install 'barnabas[orders]'") from None


def _refuse_other_options(ctx: typer.Context) -> None:
    """Raises Failure for an option that has no meaning with --app: the scenario determines these settings."""
    given = [name for name in ctx.params if is_given(ctx, name) and name not in _OF_APPLICATIONS]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise Failure(f"--app cannot be combined with {options}", "the scenario decides what clients do")
