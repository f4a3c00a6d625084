"""`barnabas whatif`: predicts what a failure, a restart or a change would do."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli import output
from barnabas.cli.clients import address, check_reachable
from barnabas.cli.contexts import choice
from barnabas.cli.local_cluster import interruptible
from barnabas.cli.options import DEFAULT_BOOTSTRAP, At, Bootstrap, ClientProperty, HistoryOption, Json, key_values
from barnabas.cli.whatif_view import show_answer
from barnabas.embedded.failures import Failure
from barnabas.monitor.broker_connection import Address, Security
from barnabas.monitor.connections import Unreachable
from barnabas.whatif import Answer, BadQuestion, Question, Situation, ask, parse_question
from barnabas.whatif.live import situation_now


def whatif(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="QUESTION...",
            help="kill ID..., rack NAME..., disk ID:PATH..., restart ID..., drain ID..., min-isr TOPIC=N..., "
            "or restart-all",
        ),
    ],
    limit: Annotated[int, typer.Option(help="The number of partitions to list, the worst first", min=0)] = 20,
    as_json: Json = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Write the moves of a drain to this file, for `barnabas reassign execute`"
        ),
    ] = None,
    at: At = None,
    history: HistoryOption = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show what a failure, a restart or a change would do

    The command only reads, and works with any Kafka cluster. The answer is computed by the decisions of the controller:
    the next leader of each partition, what goes offline or under its min ISR, and the order of a rolling restart.

    With --at and --history, the answer is about that moment of a recorded history. Facts that the history lacks, such
    as the voters, come from the cluster, if it answers.

    The exit code is 0 if nothing is lost, 5 if a partition goes under its min ISR, 6 if one goes offline or needs an
    unclean election, 3 if the change cannot be made, and 1 if no broker answers.
    """
    try:
        question = parse_question(words)
        with interruptible():
            cluster = _Cluster(bootstrap, properties or [])
            if at is not None or history is not None:
                state = importlib.import_module("barnabas.cli.whatif_past").situation_at(at, history, *cluster.access)
            else:
                state = cluster.situation_now(question)
            answer = ask(state, question)
    except BadQuestion as error:
        raise Failure(str(error)) from error
    if save is not None:
        _save(answer, save)
    if as_json:
        output.show_json(answer.to_json())
    else:
        show_answer(answer, limit)
    sys.stdout.flush()
    raise typer.Exit(answer.exit_code)


class _Cluster:
    """The cluster of the command's options."""

    def __init__(self, bootstrap: str, properties: list[str]) -> None:
        self._bootstrap = bootstrap
        self._values = key_values(properties, "--property")

    @property
    def access(self) -> tuple[tuple[Address, ...], Security]:
        """Returns the addresses of the cluster, and the settings to log in. Raises Failure."""
        try:
            security = Security.from_properties(self._values)
        except (ValueError, OSError) as error:
            raise Failure(str(error)) from error
        return tuple(address(each.strip()) for each in self._bootstrap.split(",") if each.strip()), security

    def situation_now(self, question: Question) -> Situation:
        check_reachable(self._bootstrap, self._values)
        try:
            return asyncio.run(situation_now(*self.access, question, clock_ms=_clock_ms))
        except Unreachable as error:
            raise Failure(f"no broker answers: {error}", choice.unreachable_hint()) from error


def _save(answer: Answer, path: Path) -> None:
    if not answer.moves:
        raise Failure(f"{answer.question} moves nothing, so there is nothing to save")
    path.write_text(answer.reassignment_text(), encoding="utf-8")
    output.say(f"wrote {path}: `barnabas reassign execute --reassignment-json-file {path}` begins the moves")


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
