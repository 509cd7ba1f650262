from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

import advisor.charts as charts
from advisor.charts import CHARTS, ONLY_FOR_BOUNDARY, Chart, ChartInput, chart, study_charts
from advisor.charts.svg import figure_svg, nice_ticks
from advisor.evidence import DeviceFacts
from gpuagent.wire import EngineSettings, SlaTarget
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_kv_trial,
    make_request,
    make_requests,
    make_study_spec,
    make_trial,
    make_variant,
    make_verification,
)
from tests.inside_builders import (
    make_attention_result,
    make_batching_result,
    make_cache_details,
    make_calibrate_result,
    make_kernels_result,
    make_quantisation_result,
)
from tests.served_builders import TARGETS, make_boundary, make_served_trial, make_timeline


def study(*trials: Any, **overrides: Any) -> ChartInput:
    """A study whose first trial is current and whose last baseline is best."""
    evidence = make_evidence(*trials, **overrides)
    best = next((t for t in reversed(evidence.trials) if t.role == "variant"), None)
    return ChartInput(evidence, evidence.current, best or evidence.current)


def served() -> ChartInput:
    """A study that looked for the highest rate of two configurations."""
    return study(
        make_served_trial(make_boundary(2.0), ordinal=1, role="current"),
        make_served_trial(
            make_boundary(),
            timeline=make_timeline(),
            ordinal=2,
            role="variant",
            settings=EngineSettings(max_running=64),
        ),
        spec=make_study_spec(
            engine="vllm", targets=TARGETS, boundary=True, day_req_s=(1.0, 6.0, 3.0)
        ),
    )


@pytest.fixture
def full(request: pytest.FixtureRequest) -> ChartInput:
    spec = getattr(request.node, "callspec", None)
    if spec is not None and spec.params.get("chart_id") in {
        *ONLY_FOR_BOUNDARY,
        *("server-timeline", "day-load"),
    }:
        return served()
    diagnosis = [
        make_trial(result, ordinal=10 + index, role="diagnosis")
        for index, result in enumerate(
            (
                make_calibrate_result(),
                make_kernels_result(),
                make_attention_result(),
                make_quantisation_result(),
                make_batching_result(),
            )
        )
    ]
    trials = (
        make_current(),
        make_kv_trial(details=make_cache_details()),
        make_variant("float16", ordinal=5, ttft_s=0.09, itl_s=0.02),
        make_variant(),
        make_verification(),
        *diagnosis,
    )
    # A GPU, since some charts predict for one.
    gpu = DeviceFacts("bench-1", "gpu", "NVIDIA H100 80GB HBM3", 1, 85_000_000_000)
    return study(*trials, device=gpu)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def plain_colours(value: Any) -> Any:
    """Tokens replaced by a colour that plotly knows."""
    if isinstance(value, str):
        return "#336699" if value.startswith("token:") else value
    if isinstance(value, list):
        return [plain_colours(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_colours(item) for key, item in value.items()}
    return value


def test_every_chart_file_is_registered_and_ids_match() -> None:
    folder = Path(charts.__file__).parent
    helpers = {"__init__", "base", "dots", "figure", "rate_curve", "samples", "svg", "words"}
    # Drawn from a prediction, a trace, samples or several studies: no study's registry lists them.
    elsewhere = {"estimates", "trace_timeline", "telemetry", "gpu_cost", "rates"}
    modules = {path.stem for path in folder.glob("*.py")} - helpers - elsewhere
    assert modules == {builder.__module__.rpartition(".")[2] for builder in CHARTS.values()}


@pytest.mark.parametrize("chart_id", CHARTS)
def test_a_full_study_fills_every_chart(chart_id: str, full: ChartInput) -> None:
    built = chart(chart_id, full)
    assert built.id == chart_id
    assert built.empty_reason is None
    assert any(character.isdigit() for character in built.title), built.title
    assert built.note
    assert built.rows
    assert all(len(row) == len(built.columns) for row in built.rows)


@pytest.mark.parametrize("chart_id", CHARTS)
def test_plotly_accepts_the_figure_and_json_holds_it(chart_id: str, full: ChartInput) -> None:
    figure = chart(chart_id, full).figure
    assert figure is not None
    json.dumps(figure, allow_nan=False)
    go.Figure(plain_colours(copy.deepcopy(figure)))


@pytest.mark.parametrize("chart_id", CHARTS)
def test_colours_are_token_names_only(chart_id: str, full: ChartInput) -> None:
    found = list(texts(chart(chart_id, full).figure))
    assert not [text for text in found if text.startswith(("#", "rgb"))]
    css = (Path(charts.__file__).parents[2] / "static/css/tokens.css").read_text()
    for text in found:
        if text.startswith("token:"):
            assert f"--{text[6:].partition('/')[0]}:" in css, text


@pytest.mark.parametrize("chart_id", CHARTS)
def test_without_a_trial_the_chart_says_what_is_missing(chart_id: str) -> None:
    built = chart(chart_id, study())
    assert built.is_empty
    assert built.empty_reason
    assert built.empty_reason.endswith(".")
    assert built.rows == ()


def test_a_cancelled_study_promises_nothing() -> None:
    built = chart("ttft-trials", study(cancelled=True))
    assert "cancelled" in (built.empty_reason or "")


def test_the_sla_line_is_drawn_at_the_limit_with_its_value(full: ChartInput) -> None:
    figure = chart("itl-trials", full).figure
    assert figure is not None
    line = figure["layout"]["shapes"][0]
    assert line["x0"] == line["x1"] == pytest.approx(50)
    assert line["line"]["color"] == "token:bad"
    assert any("SLA limit 50" in text for text in texts(figure["layout"]["annotations"]))


def test_the_title_names_the_change_and_the_limit(full: ChartInput) -> None:
    title = chart("itl-trials", full).title.replace("\u00a0", " ")
    assert title == "ITL p95 falls from 62.9 ms to 31.5 ms in trial 3; the limit is 50 ms"


def test_too_few_requests_show_the_median_and_say_so() -> None:
    built = chart("ttft-trials", study(make_current(n_requests=20)))
    assert built.title.startswith("TTFT p50")
    assert "p95 needs more requests" in built.note


def test_a_trial_without_the_percentile_is_a_dash_with_its_reason() -> None:
    data = study(make_current(), make_variant(n_requests=20))
    built = chart("ttft-trials", data)
    cells = built.rows[1]
    assert cells[1] == "–"
    assert "needs 72 samples" in cells[2]
    assert built.figure is not None
    assert len(built.figure["data"]) == 1


def test_spread_counts_failed_requests_as_over_any_limit() -> None:
    requests = make_requests(100, ttft_s=0.1, failed=5)
    trial = make_trial(make_baseline_result(requests=requests))
    built = chart("ttft-spread", study(trial))
    assert built.title.replace("\u00a0", " ").startswith("95.0 % of requests keep TTFT")
    assert "5 requests failed" in built.note
    assert built.figure is not None
    assert built.figure["data"][0]["y"][-1] == pytest.approx(95.0)


def test_a_share_is_never_rounded_up_to_all() -> None:
    slow = make_request(1e6, ttft_s=9.0)
    requests = (*make_requests(3000, ttft_s=0.05, output_tokens=2), slow)
    built = chart("ttft-spread", study(make_trial(make_baseline_result(requests=requests))))
    assert built.title.replace("\u00a0", " ").startswith("99.9 %")


def test_many_samples_are_thinned_but_keep_the_tail() -> None:
    built = chart("itl-spread", study(make_current(n_requests=400)))
    assert built.figure is not None
    trace = built.figure["data"][0]
    assert len(trace["x"]) < 200
    assert trace["y"][-1] == pytest.approx(100.0)
    assert trace["y"] == sorted(trace["y"])


def test_kv_speed_states_the_ratio_at_the_longest_context(full: ChartInput) -> None:
    title = chart("kv-speed", full).title.replace("\u00a0", " ")
    assert title == "The KV cache is worth 17 × at 512 tokens of context"


def test_kv_speed_without_the_uncached_side_says_why() -> None:
    data = study(make_current(), make_kv_trial(uncached_s_per_token=None))
    built = chart("kv-speed", data)
    assert "too slow to recompute" in built.rows[0][3]
    assert built.title.startswith("With the KV cache decode runs at")


def test_kv_memory_compares_with_the_formula(full: ChartInput) -> None:
    assert chart("kv-memory", full).title.endswith("as the formula says")
    wrong = study(make_current(), make_kv_trial(bytes_per_token=46_080))
    title = chart("kv-memory", wrong).title.replace("\u00a0", " ")
    assert title.endswith("100 % more than the formula")


def test_kv_memory_without_a_shape_has_no_formula_line() -> None:
    built = chart("kv-memory", study(make_current(), make_kv_trial(), shape=None))
    assert built.figure is not None
    assert len(built.figure["data"]) == 1
    assert {row[2] for row in built.rows} == {"–"}


def test_prefill_with_five_repeats_draws_no_interval(full: ChartInput) -> None:
    built = chart("prefill-grid", full)
    assert "too few for an interval" in built.note
    assert {row[3] for row in built.rows} == {"–"}


def test_study_charts_leave_out_empty_ones_beside_full_ones(full: ChartInput) -> None:
    groups = study_charts(full)
    assert [group[0].id for group in groups] == [
        "ttft-trials",
        "ttft-spread",
        "tradeoff",
        "kv-speed",
        "prefill-grid",
        "roofline",
        "attention-time",
        "format-tradeoff",
        "batch-scaling",
        "coordinates",
    ]
    assert all(not built.is_empty for group in groups for built in group)
    assert "e2e-trials" not in [built.id for group in groups for built in group]


def test_end_to_end_is_drawn_for_a_study_that_has_it_as_a_target() -> None:
    spec = make_study_spec(targets=(SlaTarget(metric="e2e_s", statistic="p90", limit=2),))
    groups = study_charts(study(make_current(), spec=spec))
    assert "e2e-trials" in [built.id for group in groups for built in group]


@pytest.mark.parametrize("chart_id", CHARTS)
def test_svg_draws_inside_its_box(chart_id: str, full: ChartInput) -> None:
    built: Chart = chart(chart_id, full)
    assert built.figure is not None
    svg = figure_svg(built.figure, built.label)
    assert svg.startswith("<svg")
    assert "token:" not in svg
    assert "style=" not in svg
    for name, value in re.findall(r' (x|cx|x1|x2|y|cy|y1|y2)="(-?[\d.]+)"', svg):
        assert -20 <= float(value) <= (660 if "x" in name else 320), (name, value)


def test_svg_escapes_what_a_trial_is_called() -> None:
    figure = {
        "data": [],
        "layout": {
            "xaxis": {"title": {"text": "<script>"}, "range": [0, 1]},
            "yaxis": {"range": [0, 1]},
        },
    }
    svg = figure_svg(figure, '"><script>')
    assert "<script>" not in svg


def test_ticks_are_round_and_few() -> None:
    assert nice_ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert nice_ticks(0, 0.35) == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35])
    assert all(math.isfinite(tick) for tick in nice_ticks(3, 3))
