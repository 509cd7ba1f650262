from __future__ import annotations

import pytest

from advisor.charts import CHARTS, ONLY_WHEN_MEASURED, Chart, ChartInput, chart, study_charts
from advisor.charts.svg import figure_svg
from gpuagent.wire.trial import Measurements
from tests.builders import make_current, make_evidence, make_trial
from tests.inside_builders import (
    make_attention_result,
    make_batching_result,
    make_calibrate_result,
    make_ceilings,
    make_kernels_result,
    make_quantisation_result,
    make_variant,
)

CASES: dict[str, tuple[Measurements, str, str]] = {
    # id: result, words of the title, words of the table
    "ceilings": (make_calibrate_result(), "0.180 TFLOP/s in float32", "not here"),
    "recoverable": (make_kernels_result(), "gate_proj / up_proj (prefill)", "70"),
    "step-forms": (make_kernels_result(), "39.9 ms compiled", "1,675"),
    "gemm-share": (make_kernels_result(), "% of its ceiling", "gate_proj / up_proj"),
    "attention-time": (
        make_attention_result(),
        "window 256 + 16 global is fastest",
        "this backend needs a CUDA device",
    ),
    "attention-memory": (make_attention_result(), "window 256 + 16 global needs", "16,000"),
    "format-tradeoff": (
        make_quantisation_result(),
        "dynamic int8 worse in quality",
        "torchao is not installed",
    ),
    "batch-scaling": (make_batching_result(), "at batch 8", "45"),
}


def drawn(chart_id: str, result: Measurements | None) -> Chart:
    trials = [make_current()]
    if result is not None:
        trials.append(make_trial(result, ordinal=2, role="diagnosis"))
    evidence = make_evidence(*trials)
    return chart(chart_id, ChartInput.of_trial(evidence, trials[-1].trial_id))


def test_every_chart_of_a_diagnosis_has_a_case() -> None:
    assert set(CASES) == ONLY_WHEN_MEASURED <= set(CHARTS)


@pytest.mark.parametrize("chart_id", sorted(CASES))
def test_title_table_and_picture_tell_the_same(chart_id: str) -> None:
    result, title, cell = CASES[chart_id]
    found = drawn(chart_id, result)
    assert title in found.title.replace("\u00a0", " ")
    assert found.id == chart_id
    assert found.figure is not None
    assert any(cell in text.replace("\u00a0", " ") for row in found.rows for text in row)
    assert {len(row) for row in found.rows} == {len(found.columns)}
    assert "<svg" in figure_svg(found.figure, found.label, height=260)


@pytest.mark.parametrize("chart_id", sorted(CASES))
def test_without_data_there_is_a_sentence(chart_id: str) -> None:
    found = drawn(chart_id, None)
    assert found.is_empty
    assert found.empty_reason


def test_what_never_ran_is_said() -> None:
    nothing = make_attention_result(make_variant("eager", reason="no kernel"))
    assert drawn("attention-time", nothing).empty_reason == "No variant of attention ran."
    assert drawn("attention-memory", nothing).is_empty
    bare = make_calibrate_result().model_copy(update={"ceilings": make_ceilings(entries=())})
    assert drawn("ceilings", bare).is_empty


def test_a_study_shows_a_box_only_for_what_was_measured() -> None:
    plain = make_evidence(make_current())
    ids = {c.id for group in study_charts(ChartInput(plain, None, None)) for c in group}
    assert not ids & ONLY_WHEN_MEASURED
    trial = make_trial(make_batching_result(), ordinal=2, role="diagnosis")
    data = ChartInput(make_evidence(make_current(), trial), None, None)
    assert {c.id for group in study_charts(data) for c in group} & ONLY_WHEN_MEASURED == {
        "batch-scaling"
    }
