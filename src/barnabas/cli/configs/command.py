"""`barnabas configs describe|alter`, with the arguments of Kafka's kafka-configs tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from barnabas.cli import output
from barnabas.cli.configs.access import Access, Entity, EntityKind, Entry
from barnabas.cli.configs.changes import (
    after_deletion,
    changes_of,
    check,
    hint_for,
    is_set,
    parse_added,
    parse_deleted,
    read_added,
)
from barnabas.cli.contexts import choice
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json
from barnabas.embedded.failures import Failure

EntityType = Annotated[
    EntityKind | None, typer.Option("--entity-type", help="topics, brokers, or broker-loggers (levels of log messages)")
]
EntityName = Annotated[
    str | None, typer.Option("--entity-name", metavar="NAME", help="Name of a topic, or id of a broker")
]
EntityDefault = Annotated[
    bool, typer.Option("--entity-default", "--broker-defaults", help="The dynamic default of all brokers")
]
Topic = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="Short for --entity-type topics with a name")
]
Broker = Annotated[
    str | None, typer.Option("--broker", metavar="ID", help="Short for --entity-type brokers with an id")
]
Logger = Annotated[
    str | None, typer.Option("--broker-logger", metavar="ID", help="Short for --entity-type broker-loggers with an id")
]

app = typer.Typer(help="Show and change dynamic configs of topics, brokers and broker loggers", no_args_is_help=True)


class _Named(NamedTuple):
    """The entities that the options name. If there is neither a name nor `is_default`, these are all entities of one
    kind.
    """

    kind: EntityKind
    name: str | None
    is_default: bool

    def entity(self) -> Entity:
        """Returns the one entity to change. Raises Failure unless one is named."""
        if self.name is None and not self.is_default:
            raise Failure("name what to change: --entity-name NAME, or --entity-default for all brokers")
        return Entity(self.kind, self.name or "")

    def entities(self, access: Access) -> list[Entity]:
        """Returns the entities to show, in the order of Kafka's tool: the default of all brokers comes last."""
        if self.name is not None or self.is_default:
            return [self.entity()]
        if self.kind is EntityKind.TOPICS:
            return [Entity(self.kind, name) for name in access.topics()]
        brokers = [Entity(self.kind, str(broker)) for broker in sorted(access.brokers)]
        return brokers if self.kind is EntityKind.LOGGERS else [*brokers, Entity(self.kind, "")]


@app.command()
def describe(
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    topic: Topic = None,
    broker: Broker = None,
    logger: Logger = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All keys with all synonyms, not only those that are set dynamically")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the type, the synonyms and the documentation of each key")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show the values of keys, and where each comes from; without a name, of all topics or brokers"""
    named = _named(entity_type, entity_name, entity_default, topic, broker, logger)
    with Access(bootstrap, properties) as access:
        found = [(entity, access.describe(entity)) for entity in named.entities(access)]
    shown = [(entity, [each for each in entries if everything or is_set(entity, each)]) for entity, entries in found]
    if as_json:
        output.show_json([_document(entity, entries) for entity, entries in shown])
        return
    for number, (entity, entries) in enumerate(shown):
        if number:
            print()
        print(f"{'All' if everything else 'Dynamic'} configs for {entity} are:")
        if entries:
            _show(entries, synonyms=everything or verbose, verbose=verbose)


@app.command()
def alter(
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    topic: Topic = None,
    broker: Broker = None,
    logger: Logger = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", "--add-config", metavar="K=V,...", help="Keys to set, a list as K=[A,B]; repeatable"),
    ] = None,
    add_file: Annotated[
        Path | None,
        typer.Option("--add-file", "--add-config-file", metavar="FILE", help="A properties file of keys to set"),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete", "--delete-config", metavar="K,...", help="Keys to reset to their defaults; repeatable"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster validate the changes, and only show them")
    ] = False,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Accept keys that the brokers do not list, for plugins")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Set keys of one topic, broker or broker's loggers, or reset them; other keys stay as they are"""
    entity = _named(entity_type, entity_name, entity_default, topic, broker, logger).entity()
    if add and add_file is not None:
        raise Failure("give only one of --add and --add-file")
    added = parse_added(add or []) if add_file is None else read_added(add_file)
    changes = changes_of(added, parse_deleted(delete or []))
    if not changes:
        raise Failure("nothing to alter", "give --add, --add-file or --delete")
    with Access(bootstrap, properties) as access:
        listed = access.describe(entity)
        known = [] if entity.name else [each.name for each in access.describe(_any_broker(access))]
        if not allow_unknown:
            check(entity, changes, listed, known)
        if not dry_run:
            choice.warn_if_production(f"alters {', '.join(changes)} of {entity}")
        try:
            access.alter(entity, changes, validate_only=dry_run)
        except Failure as refused:
            raise Failure(refused.message, refused.hint or hint_for(changes, listed)) from refused
    if dry_run:
        _show_changes(entity, changes, listed)
        output.say("nothing was changed; omit --dry-run to apply the change")
    else:
        print(f"Completed updating config for {entity}.")


def _named(
    entity_type: EntityKind | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    logger: str | None,
) -> _Named:
    """Raises Failure unless the options name entities in exactly one way."""
    short = [
        _Named(kind, name, False)
        for kind, name in ((EntityKind.TOPICS, topic), (EntityKind.BROKERS, broker), (EntityKind.LOGGERS, logger))
        if name is not None
    ]
    if len(short) + (entity_name is not None) + entity_default > 1:
        raise Failure("give only one of --entity-name, --entity-default, --topic, --broker, --broker-logger")
    if short:
        if entity_type not in (None, short[0].kind):
            raise Failure(f"--entity-type {entity_type} names another kind of entity than {short[0].kind}")
        found = short[0]
    else:
        kind = entity_type or (EntityKind.BROKERS if entity_default else None)
        if kind is None:
            raise Failure("give --entity-type topics, brokers or broker-loggers; or --topic, --broker, --broker-logger")
        found = _Named(kind, entity_name, entity_default)
    if found.name == "":
        raise Failure("a name must not be empty", "the default of all brokers is --entity-default")
    if found.is_default and found.kind is not EntityKind.BROKERS:
        raise Failure(f"{found.kind} have no --entity-default: only brokers have one")
    return found


def _any_broker(access: Access) -> Entity:
    return Entity(EntityKind.BROKERS, str(min(access.brokers)))


def _show(entries: Sequence[Entry], *, synonyms: bool, verbose: bool) -> None:
    columns = ["key", "value", "source", "notes"]
    columns += ["type"] if verbose else []
    columns += ["synonyms"] if synonyms else []
    columns += ["documentation"] if verbose else []
    rows = []
    for entry in entries:
        row = [entry.name, _value(entry), _source(entry.source), _notes(entry)]
        row += [entry.type.lower()] if verbose else []
        row += [_synonyms(entry)] if synonyms else []
        row += [entry.documentation or "-"] if verbose else []
        rows.append(row)
    output.show_table(columns, rows)


def _show_changes(entity: Entity, changes: Mapping[str, str | None], listed: Sequence[Entry]) -> None:
    entries = {entry.name: entry for entry in listed}
    rows: list[Sequence[object]] = []
    for key, value in changes.items():
        entry = entries.get(key)
        now, source = ("not set", None) if entry is None else (_value(entry), _source(entry.source))
        if value is not None:
            rows.append(
                (
                    key,
                    now,
                    source,
                    "(sensitive)" if entry is not None and entry.sensitive else value or '""',
                    _source(entity.own_source),
                )
            )
        else:
            later, later_source = (None, None) if entry is None else after_deletion(entity, entry)
            rows.append((key, now, source, later, None if later_source is None else _source(later_source)))
    output.show_table(["key", "now", "source", "then", "its source"], rows, title=f"changes of {entity}")


def _document(entity: Entity, entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "entity_type": str(entity.kind),
        "entity_name": entity.name or None,
        "configs": [{**each._asdict(), "synonyms": [one._asdict() for one in each.synonyms]} for each in entries],
    }


def _value(entry: Entry) -> str:
    if entry.sensitive:
        return "(sensitive)"
    return "-" if entry.value is None else entry.value or '""'


def _source(source: str) -> str:
    """Returns a readable name: DYNAMIC_DEFAULT_BROKER_CONFIG -> "dynamic default broker"."""
    return source.removesuffix("_CONFIG").replace("_", " ").lower()


def _notes(entry: Entry) -> str:
    return ", ".join(note for note, holds in (("read-only", entry.read_only), ("sensitive", entry.sensitive)) if holds)


def _synonyms(entry: Entry) -> str:
    """Returns the synonyms as Kafka's tool prints them."""
    hidden = "null" if entry.sensitive else None
    return ", ".join(f"{one.source}:{one.name}={hidden or one.value}" for one in entry.synonyms) or "-"
