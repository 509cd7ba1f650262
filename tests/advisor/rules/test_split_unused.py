"""The measured worth of a split: fails, passes, at the threshold, not applicable, missing."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.charts import ChartInput, chart
from advisor.evidence import TrialEvidence
from advisor.rules.checks import d010_split_unused
from advisor.rules.rule import Verdict
from gpuagent.wire.parallel import TensorParallelConfig
from tests.builders import make_current, make_evidence, make_trial, make_validity
from tests.inside_builders import make_split_point, make_split_result
from tests.rule_checks import (
    LOOSE_ITL,
    TIGHT_ITL,
    aiming_at,
    assert_says_what_is_missing,
    on_gpu,
    one,
    text_of,
)


def split(*points: Any, validity: str = "valid", **fields: Any) -> TrialEvidence:
    return make_trial(
        make_split_result(points=points, **fields),
        ordinal=2,
        role="diagnosis",
        config=TensorParallelConfig(),
        validity=make_validity(validity),
    )


def found(*points: Any, target: Any = TIGHT_ITL, **fields: Any) -> Any:
    study = {**on_gpu(count=4), **aiming_at(target)}
    return one(d010_split_unused, make_current(), split(*points, **fields), **study)


def test_without_a_trial_it_says_what_to_run() -> None:
    study = {**on_gpu(count=4), **aiming_at(TIGHT_ITL)}
    assert_says_what_is_missing(one(d010_split_unused, make_current(), **study))


def test_processes_on_one_processor_say_nothing_about_gpus() -> None:
    points = (make_split_point(1, 0.02), make_split_point(2, 0.01))
    assert_says_what_is_missing(found(*points, backend="gloo"))
    assert_says_what_is_missing(found(*points, validity="invalid"))


@pytest.mark.parametrize(
    ("step_s", "target", "verdict"),
    [
        (0.012, TIGHT_ITL, Verdict.FAIL),
        (0.012, LOOSE_ITL, Verdict.INFORMATIVE),
        (0.0197, TIGHT_ITL, Verdict.FAIL),
        (0.02, TIGHT_ITL, Verdict.PASS),
        (0.03, TIGHT_ITL, Verdict.PASS),
    ],
)
def test_a_split_is_advised_when_its_interval_is_below_one(
    step_s: float, target: Any, verdict: Verdict
) -> None:
    finding = found(
        make_split_point(1, 0.02), make_split_point(2, 0.05), make_split_point(4, step_s),
        target=target,
    )  # fmt: skip
    assert finding.verdict is verdict
    assert [item.n for item in finding.evidence] == [5, 5]
    if verdict is Verdict.FAIL:
        assert finding.change.text == "Serve with a tensor parallel size of 4."
        assert finding.effect.change_frac == pytest.approx(step_s / 0.02 - 1, abs=0.01)


def test_other_answers_are_told() -> None:
    finding = found(make_split_point(1, 0.02), make_split_point(2, 0.01, same_tokens=5))
    assert "5 of 8 answer tokens are the same" in text_of(finding)


def test_sizes_that_did_not_run_are_reasons() -> None:
    lone = found(make_split_point(1, 0.02), make_split_point(2, None, reason="this host has 1 GPU"))
    assert lone.verdict is Verdict.CANNOT_TELL
    assert lone.summary == "2 GPUs: this host has 1 GPU"
    large = found(make_split_point(1, None, reason="out of memory"), make_split_point(2, 0.01))
    assert large.verdict is Verdict.INFORMATIVE
    assert "no reference" in large.title


def test_a_measured_split_takes_the_place_of_the_predicted_chart() -> None:
    trial = split(
        make_split_point(1, 0.02),
        make_split_point(2, 0.0125),
        make_split_point(4, None, reason="x"),
    )
    evidence = make_evidence(make_current(), trial, **on_gpu(count=4))
    drawn = chart("tensor-parallel", ChartInput(evidence, None, None))
    assert drawn.title == "2 GPUs take 12.5\u00a0ms a decode step, 1 GPU 20.0\u00a0ms"
    assert [row[0] for row in drawn.rows] == ["1", "2", "4"]
    assert drawn.rows[2][1] == "–"
    assert drawn.rows[2][-1] == "x"
    assert "over NCCL" in drawn.note
