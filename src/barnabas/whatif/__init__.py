"""Predictions of what a failure, a restart or a change would do to a cluster, by the controller's own decisions.

    answer = ask(situation_of(table, facts), parse_question(["kill", "3"]))
    answer.to_json()

Imports `decisions`, and the table of `monitor`; the modules that compute an answer do no I/O. Begin with `asking.py`,
then `situation.py` and `model.py`.
"""

from __future__ import annotations

from barnabas.whatif.answers import Answer
from barnabas.whatif.asking import ask
from barnabas.whatif.questions import BadQuestion, Question, parse_question
from barnabas.whatif.situation import Situation

__all__ = ["Answer", "BadQuestion", "Question", "Situation", "ask", "parse_question"]
