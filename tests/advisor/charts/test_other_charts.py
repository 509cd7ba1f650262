"""Charts that are drawn from something else than one study: samples, options, a day, rates."""

from __future__ import annotations

import json

import pytest

from advisor.catalog import find_gpu
from advisor.charts import Chart, ChartInput, chart, rates
from advisor.charts.day import load
from advisor.charts.gpu_cost import by_gpu
from advisor.charts.svg import figure_svg
from advisor.charts.telemetry import charts as telemetry_charts
from advisor.estimates.models import known_model
from advisor.estimates.options import per_gpu
from advisor.estimates.service import EstimateRequest
from advisor.evidence import TrialEvidence
from gpuagent.wire import EngineSettings, GpuSample, HostSample
from tests.builders import (
    TTFT_P95,
    make_baseline_result,
    make_current,
    make_device,
    make_evidence,
    make_requests,
    make_served,
    make_study_spec,
    make_trial,
    make_variant,
    make_verify_result,
    make_workload,
)


def holds(built: Chart | None) -> Chart:
    """A chart whose table, picture and title are all there and that plain SVG can draw."""
    assert built is not None
    assert any(character.isdigit() for character in built.title)
    assert built.note
    assert {len(row) for row in built.rows} == {len(built.columns)}
    assert built.figure is not None
    json.dumps(built.figure, allow_nan=False)
    assert figure_svg(built.figure, built.label).startswith("<svg")
    return built


def samples(*, throttled: bool) -> list[HostSample]:
    return [
        HostSample(
            at_s=100.0 + n,
            cpu_frac=0.5,
            gpus=(
                GpuSample(
                    index=0,
                    power_w=300.0 + n,
                    throttle_reasons=("sw_power_cap",) if throttled and 3 <= n < 6 else (),
                ),
            ),
        )
        for n in range(10)
    ]


def test_telemetry_marks_lowered_clocks() -> None:
    power, cpu = telemetry_charts(samples(throttled=True))
    assert (power.id, cpu.id) == ("gpu-power", "cpu-busy")
    holds(power)
    assert "lowered for 3.0 s" in power.title.replace("\u00a0", " ")
    assert power.figure is not None
    assert [(s["x0"], s["x1"]) for s in power.figure["layout"]["shapes"]] == [(3.0, 6.0)]
    assert power.rows[4][2] == "sw_power_cap"


def test_telemetry_without_lowered_clocks_or_samples() -> None:
    power = telemetry_charts(samples(throttled=False))[0]
    assert power.figure is not None
    assert power.figure["layout"]["shapes"] == []
    assert telemetry_charts([]) == ()
    assert telemetry_charts([HostSample(at_s=1.0), HostSample(at_s=2.0)]) == ()


def test_cost_by_gpu_claims_no_order_where_intervals_overlap() -> None:
    gpus = [find_gpu(name) for name in ("H100 SXM", "L4", "A100 SXM4 80GB")]
    request = EstimateRequest(known_model("Qwen/Qwen3-8B"), gpus[0])
    built = holds(by_gpu(per_gpu(request, gpus), "L4"))
    assert built.title.startswith("Predicted")
    assert len(built.rows) == 3
    assert by_gpu((), "L4") is None


def test_a_day_follows_its_load() -> None:
    built = holds(load([1.0, 4.0, 9.0, 2.0], 2.0, 0.2))
    assert [row[2] for row in built.rows] == ["1", "3", "6", "2"]
    assert built.title.startswith("1 to 6 replicas")
    assert load([1.0], 2.0, 0.2) is None
    assert load([1.0, 2.0], 0.0, 0.2) is None


def at_rate(rate: float, ordinal: int, ttft_s: float):
    requests = make_requests(200, ttft_s=ttft_s, rate_per_s=rate)
    result = make_baseline_result().model_copy(update={"requests": requests, "arrivals": "poisson"})
    workload = make_workload(request_rate_per_s=rate)
    return make_trial(result, ordinal=ordinal, workload=workload)


def test_latency_and_goodput_over_the_rate() -> None:
    trials = [at_rate(2.0, 1, 0.1), at_rate(4.0, 2, 0.3)]
    built = holds(rates.latency(trials, "ttft_s", TTFT_P95))
    assert built.figure is not None
    assert built.figure["layout"]["shapes"][0]["y0"] == pytest.approx(200)
    good = holds(rates.goodput(trials, [TTFT_P95]))
    assert "2.0" in good.title


def test_one_rate_is_no_curve() -> None:
    assert rates.latency([at_rate(2.0, 1, 0.1)], "ttft_s", TTFT_P95) is None
    assert rates.goodput([at_rate(2.0, 1, 0.1), make_current()], [TTFT_P95]) is None
    assert rates.goodput([at_rate(2.0, 1, 0.1), at_rate(4.0, 2, 0.3)], []) is None


def test_the_runs_of_an_ab_trial_are_no_point_of_a_curve() -> None:
    verified = make_trial(
        make_verify_result(), ordinal=2, workload=make_workload(request_rate_per_s=4.0)
    )
    assert rates.goodput([at_rate(2.0, 1, 0.1), verified], [TTFT_P95]) is None


def test_coordinates_and_tradeoff_need_three_configurations() -> None:
    two = make_evidence(make_current(), make_variant())
    for chart_id in ("coordinates", "tradeoff"):
        assert chart(chart_id, ChartInput(two, two.current, two.trials[1])).is_empty


def test_the_front_holds_what_no_other_beats_in_both() -> None:
    three = make_evidence(
        make_current(),
        make_variant("float16", ordinal=2, ttft_s=0.3, itl_s=0.02),
        make_variant("float32", ordinal=3, ttft_s=0.05, itl_s=0.01),
    )
    built = chart("tradeoff", ChartInput(three, three.current, three.trials[2]))
    assert [row[-1] for row in built.rows] == ["no", "no", "yes"]


def served_on(ordinal: int, degree: int | None, ttft_s: float) -> TrialEvidence:
    return make_trial(
        make_served(make_baseline_result(ttft_s=ttft_s)),
        ordinal=ordinal,
        role="current" if ordinal == 1 else "variant",
        settings=EngineSettings(tensor_parallel=degree),
    )


def test_the_cost_of_a_split_counts_its_gpus_at_the_own_price() -> None:
    trials = (served_on(1, None, 0.1), served_on(2, 2, 0.1), served_on(3, 4, 0.1))
    found = make_evidence(
        *trials,
        spec=make_study_spec(engine="vllm", current=EngineSettings()),
        device=make_device("gpu", name="NVIDIA H200", count=4),
        prices={"H200 SXM": 3.0},
    )
    built = chart("tradeoff", ChartInput(found, found.current, trials[1]))
    costs = [float(row[3].removeprefix("$")) for row in built.rows]
    assert costs[1:] == pytest.approx([2 * costs[0], 4 * costs[0]], rel=0.02)
    assert "$3.00 per GPU and hour: the organisation's own price" in built.note


def test_names_of_points_at_one_height_stand_apart() -> None:
    trials = (served_on(1, None, 0.1), served_on(2, 2, 0.1), served_on(3, 4, 0.2))
    built = chart("tradeoff", ChartInput(make_evidence(*trials), trials[0], trials[1]))
    assert built.figure is not None
    names = [note for note in built.figure["layout"]["annotations"] if note.get("yshift")]
    assert sorted(note["yshift"] for note in names) == [-14, 14]
