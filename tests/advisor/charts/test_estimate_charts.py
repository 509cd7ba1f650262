"""Predicted latency over load: bands hold the line, gaps are said, plotly and SVG both draw it."""

from __future__ import annotations

import pytest

from advisor.catalog import find_gpu
from advisor.charts.estimates import latency
from advisor.charts.svg import figure_svg
from advisor.estimates.models import known_model
from advisor.estimates.options import LOADS, per_load
from advisor.estimates.service import EstimateRequest


def request(model: str = "Qwen/Qwen3-32B", tp: int = 2) -> EstimateRequest:
    return EstimateRequest(known_model(model), find_gpu("H100 SXM"), tp=tp, isl=1024, osl=512)


@pytest.mark.parametrize("metric", ["tpot", "ttft"])
def test_the_band_holds_the_line_at_every_load(metric: str) -> None:
    chart = latency(metric, LOADS, per_load(request()), 16)
    assert chart.figure is not None
    high, low, line = (trace["y"] for trace in chart.figure["data"])
    assert all(a <= b <= c for a, b, c in zip(low, line, high, strict=True))
    assert len(chart.rows) == len(LOADS)
    assert {row[-1] for row in chart.rows} == {"yes", "no"}
    assert "of 9 points lie among measured ones" in chart.note
    assert figure_svg(chart.figure, chart.label).startswith("<svg")


def test_the_asked_load_is_marked_only_where_it_lies_on_the_axis() -> None:
    estimates = per_load(request())
    shown, beyond = (latency("tpot", LOADS, estimates, load).figure for load in (16, 5000))
    assert shown is not None
    assert beyond is not None
    assert len(shown["layout"]["shapes"]) == 1
    assert beyond["layout"]["shapes"] == []


def test_a_model_that_does_not_fit_has_no_line() -> None:
    chart = latency("tpot", LOADS, per_load(request("meta-llama/Llama-3.1-70B", tp=1)), 16)
    assert chart.is_empty
    assert "does not fit" in str(chart.empty_reason)
