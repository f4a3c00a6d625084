"""`barnabas groups list|describe|reset-offsets|delete|delete-offsets`: shows and changes consumer groups of either
protocol, as Kafka's kafka-consumer-groups tool does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import output
from barnabas.cli.contexts import choice
from barnabas.cli.groups_reset import (
    Goal,
    Offsets,
    ResetMethod,
    new_offsets,
    parse_duration_ms,
    parse_rows,
    parse_topic,
    to_rows,
)
from barnabas.cli.groups_view import STATES, TYPES, Described, GroupsView, MemberRow
from barnabas.cli.lines import parse_time
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT64_MAX, Bootstrap, ClientProperty, Json, read_text
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure

app = typer.Typer(help="List, describe, reset and delete consumer groups", no_args_is_help=True)

Groups = Annotated[list[str] | None, typer.Argument(metavar="GROUP...", help="Names of groups")]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; repeatable"),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]


@app.command(name="list")
def list_groups(
    pattern: Annotated[str, typer.Argument(help="Only names that match this shell pattern: 'order*'")] = "*",
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state: Stable, Empty, ...; repeatable")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type: classic or consumer; repeatable")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """List groups with their types and states"""
    states, kinds = _known(state, STATES, "state"), _known(kind, TYPES, "type")
    found = [
        one
        for one in GroupsView(bootstrap, properties).listed()
        if fnmatchcase(one.group, pattern)
        and (not states or one.state.lower() in states)
        and (not kinds or one.type.lower() in kinds)
    ]
    _show(["group", "type", "state", "simple"], found, as_json)


def _known(given: Iterable[str] | None, known: Collection[str], what: str) -> set[str]:
    """Returns the given values in lower case. Raises Failure for an unknown one, because a typo would give an empty
    result.
    """
    wrong = [one for one in given or () if one.lower() not in {each.lower() for each in known}]
    if wrong:
        raise Failure(f"unknown {what} {', '.join(wrong)}", "expected one of " + ", ".join(known))
    return {one.lower() for one in given or ()}


# -- describe


@app.command()
def describe(
    groups: Groups = None,
    all_groups: AllGroups = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show offsets and lag (the default)")] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Show members, with the number of their partitions")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Show state, coordinator and assignor")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also show assigned partitions and epochs")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show the members, offsets and lag of groups; --json includes everything"""
    view = GroupsView(bootstrap, properties)
    described = _existing(view, _chosen(view, groups, all_groups), epochs=verbose or as_json)
    offsets = offsets or not (members or state)
    rows = {one.group: _offset_rows(view, one) for one in described} if offsets or as_json else {}
    if as_json:
        output.show_json([_document(one, rows[one.group]) for one in described])
        return
    for one in described:
        if state:
            _show_state(one, verbose)
        if members:
            _show_members(one, verbose)
        if offsets:
            if not state and not members:
                _say_activity(one)
            _show_offsets(one, rows[one.group])


def _chosen(view: GroupsView, groups: Sequence[str] | None, all_groups: bool) -> list[str]:
    if bool(groups) == all_groups:
        raise Failure("give names of groups, or --all-groups")
    return [one.group for one in view.listed()] if all_groups else list(dict.fromkeys(groups or ()))


def _existing(view: GroupsView, groups: Sequence[str], *, epochs: bool = False) -> list[Described]:
    described = view.describe(groups, epochs=epochs)
    # A group that only has offsets is Empty; a group that does not exist is reported as Dead.
    missing = [one.group for one in described if one.state == "Dead"]
    if missing:
        raise Failure(f"no group {', '.join(missing)}")
    return described


def _offset_rows(view: GroupsView, described: Described) -> list[dict[str, Any]]:
    """Returns a row for each partition with an owner or an offset. Lag is the log end offset minus the offset."""
    committed = view.committed(described.group)
    owners = {partition: member for member in described.members for partition in member.partitions}
    partitions = sorted({*committed, *owners})
    ends = view.ends(partitions)
    rows = []
    for partition in partitions:
        current, end, owner = committed.get(partition), ends.get(partition), owners.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": current,
                "log_end_offset": end,
                "lag": None if current is None or end is None else max(0, end - current),
                "member_id": None if owner is None else owner.member_id,
                "host": None if owner is None else owner.host,
                "client_id": None if owner is None else owner.client_id,
            }
        )
    return rows


def _document(described: Described, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group": described.group,
        "type": described.type,
        "state": described.state,
        "coordinator": described.coordinator._asdict(),
        "assignor": described.assignor,
        "epoch": described.epoch,
        "assignment_epoch": described.assignment_epoch,
        "members": [_member_document(one) for one in described.members],
        "offsets": rows,
        "lag": sum(row["lag"] or 0 for row in rows),
    }


def _member_document(member: MemberRow) -> dict[str, Any]:
    return {
        **member._asdict(),
        "partitions": [one._asdict() for one in member.partitions],
        "target": None if member.target is None else [one._asdict() for one in member.target],
    }


def _say_activity(described: Described) -> None:
    if not described.members:
        output.say(f"group {described.group} has no active members")
    elif described.state != "Stable":
        output.say(f"group {described.group} is rebalancing ({described.state})")


def _show_offsets(one: Described, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ["topic", "partition", "current_offset", "log_end_offset", "lag", "member_id", "host", "client_id"]
    output.show_table(
        [name.replace("_", " ") for name in columns],
        [[row[name] for name in columns] for row in rows],
        title=f"{one.group}: offsets",
    )


def _show_state(one: Described, verbose: bool) -> None:
    coordinator = f"{one.coordinator.host}:{one.coordinator.port} ({one.coordinator.broker_id})"
    columns = ["group", "coordinator", "assignor", "type", "state", "members"]
    row: list[object] = [one.group, coordinator, one.assignor or None, one.type, one.state, len(one.members)]
    if verbose:
        columns += ["epoch", "assignment epoch"]
        row += [one.epoch, one.assignment_epoch]
    output.show_table(columns, [row], title=f"{one.group}: state")


def _show_members(one: Described, verbose: bool) -> None:
    columns = ["member id", "instance id", "host", "client id", "partitions"]
    if verbose:
        columns += ["epoch", "assignment", "target"]
    rows = []
    for member in one.members:
        row: list[object] = [member.member_id, member.instance_id, member.host, member.client_id]
        row.append(len(member.partitions))
        if verbose:
            target = None if member.target is None else _folded(member.target)
            row += [member.epoch, _folded(member.partitions), target]
        rows.append(row)
    output.show_table(columns, rows, title=f"{one.group}: members")


def _folded(partitions: Iterable[TopicPartition]) -> str | None:
    """Returns partitions in the form of --topic: "orders:0,1 returns:2"."""
    by_topic: dict[str, list[str]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items()) or None


# -- reset-offsets


@app.command(name="reset-offsets")
def reset_offsets(
    groups: Groups = None,
    all_groups: AllGroups = False,
    topics: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start offsets")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the log end offsets")] = False,
    to_current: Annotated[
        bool,
        typer.Option("--to-current", help="Reset to the committed offsets; to the log end offsets if there are none"),
    ] = False,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="Reset to a time: 2017-01-31T12:00, 1483271606000, or 2h (ago)")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Reset to a time before now: PT2H, P7D, 30m")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", min=-INT64_MAX, max=INT64_MAX, help="Move forward by N records, or back by -N"),
    ] = None,
    to_offset: Annotated[int | None, typer.Option(metavar="OFFSET", min=0, max=INT64_MAX)] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Reset to the offsets in a CSV file, as --export prints it"),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the change; without it, only show the change")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the change (the default)")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV and change nothing")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Reset the offsets of groups without members; --execute applies the change"""
    if execute and (dry_run or export):
        raise Failure("--execute changes offsets, --dry-run and --export do not: give only one of them")
    times = (to_datetime, by_duration)
    goal = _goal((to_earliest, to_latest, to_current), times, shift_by, to_offset, from_file)
    view = GroupsView(bootstrap, properties)
    names = _chosen(view, groups, all_groups)
    if from_file is not None:
        goal = goal._replace(rows=parse_rows(read_text(from_file).splitlines(), names))
    _refuse_active(view.describe(names))
    committed = {name: view.committed(name) for name in names}
    planned = {name: _plan(view, goal, name, committed[name], topics, all_topics) for name in names}
    if execute:
        _commit(view, planned)
    if export:
        print("\n".join(to_rows(planned)))
        return
    _show_plan(planned, committed, as_json)
    count = output.counted(sum(map(len, planned.values())), "offset")
    output.say_done(f"reset {count}") if execute else output.say(
        f"would reset {count}; add --execute to apply the change"
    )


def _commit(view: GroupsView, planned: Mapping[str, Offsets]) -> None:
    choice.warn_if_production(f"resets offsets of {', '.join(planned)}")
    for name, offsets in planned.items():
        view.commit(name, offsets)


def _goal(
    plain: tuple[bool, bool, bool],
    times: tuple[str | None, str | None],
    shift_by: int | None,
    to_offset: int | None,
    file: Path | None,
) -> Goal:
    now_ms = round(time.time() * 1000)
    found = [
        Goal(method)
        for method, given in zip((ResetMethod.EARLIEST, ResetMethod.LATEST, ResetMethod.CURRENT), plain, strict=True)
        if given
    ]
    moment, duration = times
    if moment is not None:
        found.append(Goal(ResetMethod.TIME, parse_time(moment, now_ms)))
    if duration is not None:
        found.append(Goal(ResetMethod.TIME, now_ms - parse_duration_ms(duration)))
    if shift_by is not None:
        found.append(Goal(ResetMethod.SHIFT, shift_by))
    if to_offset is not None:
        found.append(Goal(ResetMethod.OFFSET, to_offset))
    if file is not None:
        found.append(Goal(ResetMethod.FILE))
    if len(found) != 1:
        raise Failure("give exactly one target", "expected one of " + ", ".join(method.value for method in ResetMethod))
    return found[0]


def _refuse_active(described: Iterable[Described]) -> None:
    for one in described:
        if one.is_active:
            members = output.counted(len(one.members), "member")
            raise Failure(f"group {one.group} is active ({one.state}, {members})", "stop its consumers first")


def _plan(
    view: GroupsView,
    goal: Goal,
    group: str,
    committed: Mapping[TopicPartition, int],
    topics: Sequence[str] | None,
    all_topics: bool,
) -> Offsets:
    if goal.method is ResetMethod.FILE and not topics and not all_topics:
        partitions = sorted((goal.rows or {}).get(group, {}))
    elif bool(topics) == all_topics:
        raise Failure("choose --topic TOPIC[:0,1] or --all-topics")
    else:
        partitions = sorted(committed) if all_topics else _requested(view, topics or ())
    if goal.method is ResetMethod.FILE:
        partitions = [each for each in partitions if each in (goal.rows or {}).get(group, {})]
    missing = view.missing(partitions)
    if missing:
        raise Failure(f"these partitions do not exist, or have no leader: {', '.join(map(str, missing))}")
    return new_offsets(goal, group, partitions, committed, view)


def _requested(view: GroupsView, topics: Iterable[str]) -> list[TopicPartition]:
    found: set[TopicPartition] = set()
    for text in topics:
        topic, indexes = parse_topic(text)
        found.update(view.partitions(topic) if indexes is None else (TopicPartition(topic, i) for i in indexes))
    return sorted(found)


def _show_plan(
    planned: Mapping[str, Offsets], committed: Mapping[str, Mapping[TopicPartition, int]], as_json: bool
) -> None:
    rows = [
        (group, *partition, committed[group].get(partition), offset)
        for group, offsets in planned.items()
        for partition, offset in sorted(offsets.items())
    ]
    _show(["group", "topic", "partition", "current_offset", "new_offset"], rows, as_json)


# -- delete, delete-offsets


@app.command()
def delete(
    groups: Groups = None,
    all_groups: AllGroups = False,
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Delete groups without members, and their offsets; asks first at a terminal"""
    view = GroupsView(bootstrap, properties)
    names = _chosen(view, groups, all_groups)
    choice.warn_if_production(f"deletes {', '.join(names)} with all offsets")
    _confirm(f"Delete {', '.join(names)} with all offsets?", yes)
    refused = view.delete(names) if names else {}
    _show_outcome([(name,) for name in names], ["group"], [refused[name] for name in names], as_json)


@app.command(name="delete-offsets")
def delete_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    topics: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; repeatable"),
    ],
    yes: Yes = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Delete the offsets of a group for topics that it does not consume; asks first at a terminal"""
    view = GroupsView(bootstrap, properties)
    partitions = _requested(view, topics)
    choice.warn_if_production(f"deletes offsets of {group}")
    _confirm(f"Delete the offsets of {group} for {', '.join(topics)}?", yes)
    refused = view.delete_offsets(group, partitions)
    rows = [(group, *each) for each in partitions]
    _show_outcome(rows, ["group", "topic", "partition"], [refused.get(each) for each in partitions], as_json)


def _confirm(question: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _show_outcome(
    rows: Sequence[tuple[object, ...]], columns: list[str], refused: Sequence[str | None], as_json: bool
) -> None:
    """Prints the result for each item. Raises Failure unless all items were deleted."""
    shown = [(*row, why or "deleted") for row, why in zip(rows, refused, strict=True)]
    _show([*columns, "outcome"], shown, as_json)
    kept = sum(why is not None for why in refused)
    if kept:
        raise Failure(f"{kept} of {len(rows)} could not be deleted")


def _show(columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool) -> None:
    if as_json:
        output.show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.show_table([name.replace("_", " ") for name in columns], rows)
