"""The score of `explain`: its figures against cases that are counted by hand, and its baselines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import explain_kept
import explain_metrics
import explain_report
import explain_rows
from explain_baselines import Dictionary, Sign, baro, codes, nsigma
from explain_cases import Case, answer
from explain_driver import pair_of
from explain_kept import KeptCases
from explain_kinds import KINDS, PAIRED, UNSEEN
from explain_metrics import OfCause, Share
from explain_truth import AFTER_10_S, AFTER_HEALING, AT_ONCE, NOTHING, UNKNOWN, Answered, Episode, Guess, Truth, Waiting

RIGHT, ELSEWHERE = Guess("paused", "broker 1", is_sure=True), Guess("paused", "broker 2", is_sure=True)


def case(cause: str, *guesses: Guess, component: str = "broker 1") -> Answered:
    return Answered("pause", 7, (Truth(cause, component, 0, 10),), guesses)


CASES = [
    case("paused", RIGHT),
    case("paused", ELSEWHERE, RIGHT),
    case("paused", Guess(UNKNOWN, "broker 1")),
    case("crashed", RIGHT),
    case(NOTHING, component=""),
]


def test_the_first_answers() -> None:
    assert explain_metrics.accuracy_at(CASES, 1) == Share(2, 5)
    assert explain_metrics.accuracy_at(CASES, 3) == Share(3, 5)
    assert explain_metrics.sure_and_wrong(CASES) == Share(2, 5)
    assert explain_metrics.abstentions(CASES) == Share(1, 4), "nothing happened once"


def test_precision_and_recall_of_each_cause() -> None:
    rows = {row.cause: row for row in explain_metrics.of_causes(CASES)}
    assert rows["paused"] == OfCause("paused", Share(1, 3), Share(1, 3))
    assert rows["paused"].f1 == pytest.approx(1 / 3)
    assert rows["crashed"].f1 == 0
    assert (rows[NOTHING].precision, rows[NOTHING].f1) == (Share(1, 1), 1)
    low, high = rows["paused"].f1_interval
    assert low < 1 / 3 < high


def test_the_interval_of_a_share() -> None:
    """The bounds are those of Wilson's published example: 81 of 263."""
    low, high = Share(81, 263).interval
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert str(Share(0, 0)) == "-"
    assert Share(20, 20).interval[1] == 1


def test_the_confusion_matrix_names_a_wrong_part() -> None:
    counts = explain_metrics.confusion(CASES)
    assert counts == {
        ("paused", "paused"): 1,
        ("paused", "paused, elsewhere"): 1,
        ("paused", UNKNOWN): 1,
        ("crashed", "paused"): 1,
        (NOTHING, NOTHING): 1,
    }


def test_pairs_are_found_by_all_their_causes() -> None:
    truths = (Truth("paused", "broker 1", 0, 1), Truth("crashed", "broker 2", 0, 1))
    one = Answered("pair", 1, truths, (RIGHT,))
    both = Answered("pair", 1, truths, (Guess("crashed", "broker 2"), RIGHT))
    assert explain_metrics.both_found([one, both], 3) == Share(1, 2)
    assert explain_metrics.accuracy_at([one, both], 1) == Share(2, 2)
    kinds = [pair_of(seed).split("+") for seed in range(42)]
    assert all(one != other for one, other in kinds)
    assert {tuple(pair) for pair in kinds} == {(one, other) for one in PAIRED for other in PAIRED if one != other}


def test_quantiles_with_answers_that_never_came() -> None:
    assert explain_metrics.quantile([3, 1, 2, float("inf")], 0.5) == 2
    assert explain_metrics.quantile([3, 1, 2, float("inf")], 0.99) == float("inf")


def test_what_can_be_read_at_which_question() -> None:
    events = [(900, {"id": "old"}), (1_500, {"id": "sign"}), (12_000, {"id": "late"})]
    episode = Episode("kill", 1, (Truth("crashed", "broker 1", 1_000, 9_000),), 40_000, events, ())
    asked = [episode.asked_ms(asking) for asking in (AT_ONCE, AFTER_10_S, AFTER_HEALING)]
    assert asked == [1_500, 11_000, 40_000]
    assert [event["id"] for event in episode.read_by(11_000)] == ["old", "sign"]


def test_what_waits_counts_only_as_long_as_it_waits() -> None:
    events = [(900, {"id": "old"}), (9_000, {"id": "written"})]
    waiting = [
        Waiting(800, ({"id": "stale"},)),
        Waiting(2_000, ({"id": "stale"}, {"id": "first"}, {"id": "written"})),
        Waiting(9_500, ()),
    ]
    episode = Episode("kill", 1, (Truth("crashed", "broker 1", 1_000, 9_000),), 40_000, events, (), waiting)
    assert episode.asked_ms(AT_ONCE) == 2_000, "what waited before is no sign"
    assert [event["id"] for event in episode.read_by(3_000)] == ["old", "stale", "first", "written"]
    assert [event["id"] for event in episode.read_by(11_000)] == ["old", "written"], "first was lost with its process"


def test_rankings_of_metrics_by_their_deviation() -> None:
    calm = [(time_ms, {"up@1": 1.0, "cpu@1": 10.0 + time_ms % 3, "cpu@2": 10.0}) for time_ms in range(0, 100, 7)]
    after = [(time_ms, {"up@1": 0.0, "cpu@1": 12.0, "cpu@2": 400.0}) for time_ms in range(100, 200, 10)]
    for rank in (nsigma, baro):
        found = rank([*calm, *after], 100, 200)
        assert found[0] == Sign("cpu", "broker 2")
        assert Sign("cpu", "broker 1") not in found
        assert rank(calm, 50, 100) == []


def test_codes_are_those_of_decisions() -> None:
    events = [
        {"id": "1", "metadata_offset": 3, "cause": "session-expired", "broker": 2},
        {"id": "2", "cause": "stalled", "broker": 2},
        {"id": "3", "metadata_offset": 4, "cause": "follower-caught-up", "topic": "orders"},
    ]
    assert codes(events) == [Sign("session-expired", "broker 2")]
    known = Dictionary([([Sign("session-expired", "broker 9")], "paused"), ([], "burst"), ([], "burst")])
    assert known.guesses(codes(events)) == (Guess("paused", "broker 2"),)
    assert known.guesses([]) == (Guess("burst", ""),)
    assert known.most_frequent == "burst"


def test_the_tables_of_some_cases() -> None:
    truth = (Truth("crashed", "broker 1", 0, 20_000),)
    right = (Guess("crashed", "broker 1", is_sure=True),)
    cases = [
        Case("kill", seed, truth, ((), right, right), 500, 0.1, (Sign("broker-gone", "broker 1"),), (), ())
        for seed in (1000, 1001)
    ]
    text = explain_report.page(f"# Title\n\n{explain_report.BEGIN}\nformer\n{explain_report.END}\nrest\n", cases, cases)
    assert text.startswith("# Title\n")
    assert text.endswith("rest\n")
    assert "former" not in text
    assert "| kill | crashed | 0 of 2 | 2 of 2 | 2 of 2 | 0.5 s |" in text
    assert explain_report.page(text, cases, cases) == text
    values = explain_rows.values_of(cases)
    assert (values["explain_healed"], values["explain_p50_s"]) == (100, 0.5)
    assert set(values) == {metric.name for metric in explain_rows.EXPLAIN.metrics}


def test_every_seed_has_every_kind() -> None:
    found = [kind for kind, seed in explain_rows.jobs([1000])]
    assert {*KINDS, *UNSEEN} < set(found)
    assert not set(KINDS) & set(UNSEEN)


def test_an_answer_to_nothing() -> None:
    assert answer([]) == ()


def test_cases_are_kept_and_not_run_again(tmp_path: Path) -> None:
    truth = (Truth("crashed", "broker 1", 0, 20_000),)
    answers = ((), (Guess("paused", "broker 2"),), (RIGHT, ELSEWHERE))
    signs = (Sign("up", "broker 1"),)
    kept = KeptCases(tmp_path / "results" / explain_kept.NAME)
    found = Case("kill", 2000, truth, answers, None, 0.25, signs, (), signs)
    kept.add(("kill", 2000), found)
    kept.add(("stop", 2000), None)
    kept.add(("quiet:0.5", 2000), found._replace(kind="quiet"))
    kept.save()
    again = KeptCases(tmp_path / "results" / explain_kept.NAME)
    wanted = [("kill", 2000), ("stop", 2000), ("power", 2000), ("quiet:0.5", 2000)]
    assert list(again.missing(wanted)) == [("power", 2000)]
    assert again.of(wanted) == [found, found._replace(kind="quiet:0.5")]
    first = (tmp_path / "results" / explain_kept.NAME).read_bytes()
    again.save()
    assert (tmp_path / "results" / explain_kept.NAME).read_bytes() == first
    assert explain_rows.measure(wanted[:2], again, minutes=1) == [found]
