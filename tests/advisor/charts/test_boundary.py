"""Charts over the rates of a search for the highest one, and of the server's own gauges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from advisor.charts import ChartInput, boundary, chart, study_charts
from advisor.charts.svg import figure_svg
from advisor.evidence import TrialEvidence
from gpuagent.wire import EngineSettings
from gpuagent.wire.serving import ServerTimeline
from tests.builders import make_evidence, make_study_spec
from tests.served_builders import (
    TARGETS,
    make_boundary,
    make_point,
    make_served_trial,
    make_timeline,
)

WIDE = EngineSettings(max_running=64)


def study(*trials: TrialEvidence, **overrides: Any) -> ChartInput:
    spec = make_study_spec(engine="vllm", targets=TARGETS, boundary=True)
    evidence = make_evidence(*trials, spec=spec, **overrides)
    return ChartInput(evidence, evidence.current, evidence.trials[-1] if trials else None)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_the_title_says_how_much_more_load_the_best_settings_take() -> None:
    data = study(
        make_served_trial(make_boundary(2.0), ordinal=1, role="current"),
        make_served_trial(make_boundary(5.0), ordinal=2, role="variant", settings=WIDE),
    )
    built = chart("ttft-by-rate", data)
    assert plain(built.title) == (
        "TTFT p90: trial 2 keeps all targets up to 5.00 req/s instead of 2.00 req/s with the "
        "current settings"
    )
    assert "Trial 2: concurrent sequences 64." in built.note or "64" in built.note
    assert [row[1] for row in built.rows] == ["1.00", "4.00", "6.00", "16.0"] * 2
    assert built.rows[3][-1] == "misses the targets, stopped early"
    assert built.rows[0][-1] == "keeps the targets"
    assert built.figure is not None
    # Two highest rates and the limit.
    assert sorted(s["x0"] for s in built.figure["layout"]["shapes"]) == [0, 2.0, 5.0]


@pytest.mark.parametrize(("low", "overlap"), [(1.5, True), (2.1, False)])
def test_a_bracket_that_reaches_into_another_proves_no_order(low: float, overlap: bool) -> None:
    data = study(
        make_served_trial(make_boundary(2.0), ordinal=1, role="current"),
        make_served_trial(make_boundary(5.0, low=low), ordinal=2, role="variant", settings=WIDE),
    )
    for name in ("ttft-by-rate", "highest-rate"):
        assert chart(name, data).title.endswith("; the brackets overlap") is overlap


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (make_boundary(None, points=(make_point(1.0, 0.9),)), "missed already at 1.00 req/s"),
        (make_boundary(None, points=(make_point(1.0, 0.1),)), "no higher rate was found"),
        (
            make_boundary(None, points=(make_point(1.0, 0.1, client_bound="it was late"),)),
            "the client was the limit at all 1 rates",
        ),
    ],
)
def test_without_a_bracket_the_title_says_which_side_was_seen(found: Any, words: str) -> None:
    built = boundary.trial_charts(make_served_trial(found))
    assert built
    assert all(words in plain(one.title) for one in built)
    assert all(figure_svg(one.figure or {}, one.label).startswith("<svg") for one in built)


def test_too_few_requests_are_drawn_by_rank_without_a_band() -> None:
    point = make_point(2.0, 0.2)
    few = [t.model_copy(update={"value": None, "low": None, "high": None}) for t in point.targets]
    found = make_boundary(None, points=(point.model_copy(update={"targets": tuple(few)}),))
    (built, *_) = boundary.trial_charts(make_served_trial(found))
    assert plain(built.rows[0][2]) == "200 ms"
    assert built.rows[0][3] == "–"
    # An older agent sends no rank, so nothing is drawn and nothing is made up.
    old = [t.model_copy(update={"rank_value": None}) for t in few]
    found = make_boundary(None, points=(point.model_copy(update={"targets": tuple(old)}),))
    ids = [one.id for one in boundary.trial_charts(make_served_trial(found))]
    assert ids == ["goodput-by-rate", "throughput-by-rate"]


def test_a_client_bound_rate_is_no_part_of_the_line() -> None:
    points = (make_point(1.0, 0.1), make_point(2.0, 0.5, client_bound="it was late"))
    (built, *_) = boundary.trial_charts(make_served_trial(make_boundary(None, points=points)))
    assert built.figure is not None
    line = next(t for t in built.figure["data"] if t["mode"] == "lines+markers")
    assert line["x"] == [1.0]
    assert built.rows[1][-1] == "says nothing: it was late"
    assert "client was the limit" in [a["text"] for a in built.figure["layout"]["annotations"]]


def test_names_of_lines_that_end_alike_do_not_lie_on_each_other() -> None:
    trials = [
        make_served_trial(make_boundary(2.0 + n), ordinal=n, role="variant", settings=WIDE)
        for n in (1, 2, 3)
    ]
    built = chart("ttft-by-rate", study(*trials))
    assert built.figure is not None
    names = {a["text"]: a for a in built.figure["layout"]["annotations"] if "yshift" in a}
    shifts = sorted(a["yshift"] for text, a in names.items() if "Trial" in text or "Best" in text)
    assert len(shifts) == 3
    assert all(above - below >= 14 for below, above in pairwise(shifts))
    alone = boundary.trial_charts(trials[0])[0]
    assert alone.figure is not None
    # The line rises to the last point, so its word stands above and to the left.
    (word,) = (a for a in alone.figure["layout"]["annotations"] if a["text"] == "stopped early")
    assert (word["xanchor"], word["yshift"]) == ("right", 18)


def test_studies_without_the_question_have_no_such_chart_and_others_say_why() -> None:
    data = study(make_served_trial(boundary_reason="no time was left", role="current"))
    assert chart("ttft-by-rate", data).is_empty
    assert boundary.trial_charts(data.evidence.trials[0]) == ()


def test_a_scrape_without_an_answer_is_a_gap_never_a_zero() -> None:
    built = chart("server-timeline", study(make_served_trial(timeline=make_timeline())))
    assert built.figure is not None
    running = [t["x"] for t in built.figure["data"] if t["name"] == "Running"]
    assert running == [[0, 1, 2, 3], [5, 6, 7, 8, 9]]
    assert built.rows[4][2:] == ("–", "–", "–", "–")
    assert plain(built.title) == (
        "Requests waited in 3 of 9 readings, up to 3 at once beside 4 running; the KV cache was "
        "at most 45 % full"
    )
    assert "1 of them without an answer" in built.note
    domains = [
        axis["domain"] for key, axis in built.figure["layout"].items() if key.startswith("yaxis")
    ]
    assert len(domains) == 4
    assert all(low < high for low, high in domains)


def test_where_there_is_no_timeline_the_reason_is_shown() -> None:
    why = "the server answered no request for its metrics"
    built = chart("server-timeline", study(make_served_trial(timeline_reason=why)))
    assert built.empty_reason == "The server answered no request for its metrics."
    silent = ServerTimeline(at_s=(0.0,), running=(None,), waiting=(None,), kv_frac=(None,))
    built = chart("server-timeline", study(make_served_trial(timeline=silent)))
    assert built.title == "The server did not say what ran and what waited"
    assert built.rows[0][2:] == ("–", "–", "–", "–")


def test_the_day_of_a_study_is_drawn_from_the_measured_rate_of_today() -> None:
    spec = make_study_spec(
        engine="vllm", targets=TARGETS, boundary=True, day_req_s=(1.0, 12.0, 3.0)
    )
    trial = make_served_trial(make_boundary(2.0), ordinal=1, role="current")
    data = ChartInput(make_evidence(trial, spec=spec), trial, trial)
    built = chart("day-load", data)
    # 12 req/s at 2 × 0.8 each are eight replicas.
    assert built.title.startswith("1 to 8 replicas follow the day")
    assert plain(built.note).startswith("Measured: one replica keeps the targets up to 2.00 req/s")
    assert ["day-load"] in [[c.id for c in group] for group in study_charts(data)]
    nothing = ChartInput(make_evidence(spec=spec), None, None)
    assert "Not measured yet" in (chart("day-load", nothing).empty_reason or "")
    without = study(trial)
    assert "day-load" not in [c.id for group in study_charts(without) for c in group]
