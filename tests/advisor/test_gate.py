from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from advisor.errors import Conflict, InvalidInput
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.gate import GateCheck, GateReport, gate
from advisor.gate_formats import junit, markdown
from gpuagent.wire import EngineSettings, FailureReason, LengthSpec, SlaTarget
from tests import builders

OTHER = "00000000-0000-0000-0000-000000000002"
LOOSE = (SlaTarget(metric="ttft_s", statistic="p95", limit=1.0),)


def study(
    *, trial: TrialEvidence | None = None, spec: dict[str, Any] | None = None, **result: Any
) -> StudyEvidence:
    """A finished study of the current settings alone."""
    trial = trial or builders.make_trial(builders.make_baseline_result(**result))
    fields = {"targets": LOOSE, **(spec or {})}
    return builders.make_evidence(trial, spec=builders.make_study_spec(**fields))


def baseline(**fields: Any) -> StudyEvidence:
    made = study(**{"seed": 500, **fields})
    return builders.make_evidence(*made.trials, spec=made.spec, study_id=OTHER, number=3)


def check(report: GateReport, name: str) -> GateCheck:
    return next(c for c in report.checks if c.name.startswith(name))


@pytest.mark.parametrize(
    ("limit_s", "status", "code"),
    [(0.4, "passed", 0), (0.1, "failed", 1)],
)
def test_targets_alone_decide_without_a_baseline(limit_s: float, status: str, code: int) -> None:
    target = SlaTarget(metric="ttft_s", statistic="p95", limit=limit_s)
    report = gate(study(spec={"targets": (target,)}))
    assert (report.status, report.exit_code) == (status, code)
    assert check(report, "TTFT p95").n == 100


def test_too_few_requests_are_not_proven() -> None:
    report = gate(study(n_requests=10))
    assert (report.status, report.exit_code) == ("not_proven", 3)
    assert "needs" in report.sentence


def test_the_current_settings_are_judged_not_the_best_ones() -> None:
    slow = builders.make_trial(builders.make_baseline_result(ttft_s=2.0))
    fast = builders.make_trial(
        builders.make_baseline_result("float32", ttft_s=0.1),
        ordinal=2,
        role="variant",
        settings=EngineSettings(dtype="float32"),
    )
    spec = builders.make_study_spec(targets=LOOSE)
    assert gate(builders.make_evidence(slow, fast, spec=spec)).status == "failed"


def test_equal_speed_is_no_regression() -> None:
    report = gate(study(), baseline())
    assert report.status == "passed", report.sentence
    assert report.baseline_number == 3
    found = check(report, "TTFT against")
    assert found.low is not None
    assert found.low < 0.02
    assert found.n == 40


@pytest.mark.parametrize(("slower", "status"), [(1.25, "fail"), (1.02, "pass")])
def test_a_regression_needs_more_than_the_noise_between_trials(slower: float, status: str) -> None:
    report = gate(study(ttft_s=0.15 * slower), baseline())
    assert check(report, "TTFT against").status == status


def test_faster_is_no_regression() -> None:
    report = gate(study(itl_s=0.03), baseline())
    assert check(report, "End-to-end").status == "pass"
    assert "−4" in check(report, "End-to-end").sentence


def test_between_both_limits_it_cannot_tell_and_says_how_many_requests_would() -> None:
    def noisy(ttft_s: float, seed: int) -> dict[str, Any]:
        return {"requests": builders.make_requests(30, ttft_s=ttft_s, cov=0.3, seed=seed)}

    report = gate(study(**noisy(0.105, 1)), baseline(**noisy(0.1, 2)))
    found = check(report, "TTFT against")
    assert found.status == "not_proven"
    assert "requests" in found.sentence
    assert report.exit_code == 3


def test_few_blocks_of_overlapping_requests_prove_nothing() -> None:
    requests = builders.make_requests(40, rate_per_s=2.0)
    workload = builders.make_workload(request_rate_per_s=2.0)
    spec = {"workload": workload}
    fields: dict[str, Any] = {"requests": requests, "arrivals": "poisson", "spec": spec}
    found = check(gate(study(**fields), baseline(**fields)), "TTFT against")
    assert found.status == "not_proven"
    assert "blocks" in found.sentence


def test_throughput_is_worse_where_it_falls() -> None:
    target = SlaTarget(metric="output_tok_s", statistic="mean", limit=1.0)
    report = gate(study(itl_s=0.09, spec={"targets": (target,)}), baseline())
    found = check(report, "Throughput against")
    assert found.status == "fail"
    assert found.value is not None
    assert found.value < -0.2


def test_memory_and_perplexity_may_not_rise() -> None:
    report = gate(study(peak_memory_bytes=1.3e9, perplexity=19.0), baseline())
    assert check(report, "Memory").status == "fail"
    assert check(report, "Perplexity").status == "fail"
    report = gate(study(peak_memory_bytes=1.12e9, perplexity=18.1), baseline())
    assert check(report, "Memory").status == "pass"
    assert check(report, "Perplexity").status == "pass"


@pytest.mark.parametrize(("failed", "status"), [(0, "pass"), (1, "not_proven"), (10, "fail")])
def test_failed_requests_are_compared_exactly(failed: int, status: str) -> None:
    requests = builders.make_requests(100, ttft_s=0.15, itl_s=0.06, failed=failed)
    found = check(gate(study(requests=requests), baseline()), "Failed requests")
    assert found.status == status


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (FailureReason.OUT_OF_MEMORY, "failed"),
        (FailureReason.CONFIG_ERROR, "failed"),
        (FailureReason.AGENT_LOST, "error"),
        (FailureReason.MODEL_NOT_FOUND, "error"),
    ],
)
def test_settings_that_cannot_run_fail_and_broken_machines_are_errors(
    reason: FailureReason, status: str
) -> None:
    trial = builders.make_trial(failure=builders.make_failure(reason))
    report = gate(study(trial=trial), baseline())
    assert report.status == status
    assert [c.group for c in report.checks] == ["run"]


def test_an_invalid_measurement_proves_nothing() -> None:
    trial = builders.make_trial(
        builders.make_baseline_result(), validity=builders.make_validity("invalid")
    )
    assert gate(study(trial=trial)).status == "not_proven"


def _on_gpu() -> TrialEvidence:
    return builders.make_trial(
        builders.make_baseline_result(), environment=builders.make_environment("cuda:0")
    )


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (lambda: baseline(trial=_on_gpu()), "hardware"),
        (
            lambda: baseline(
                spec={"workload": builders.make_workload(input_tokens=LengthSpec(mean=65))}
            ),
            "input length",
        ),
        (lambda: baseline(arrivals="poisson"), "arrival"),
        (
            lambda: baseline(trial=builders.make_trial(failure=builders.make_failure())),
            "no valid measurement",
        ),
        (study, "itself"),
    ],
)
def test_a_baseline_that_measured_something_else_is_refused(before: Any, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        gate(study(), before())
    assert told in refused.value.fields["baseline"][0]


def test_what_changed_beside_the_numbers_is_named() -> None:
    environment = builders.make_environment(versions={"torch": "2.12.0", "transformers": "5.1.0"})
    before = builders.make_trial(
        builders.make_baseline_result(seed=500),
        environment=environment,
        settings=EngineSettings(dtype="float32"),
    )
    report = gate(study(), baseline(trial=before))
    assert report.changed == ("dtype: float32 → bfloat16", "torch: 2.12.0 → 2.13.0")


def test_an_unfinished_study_and_one_with_nothing_to_judge_by_are_refused() -> None:
    with pytest.raises(Conflict, match="not finished"):
        gate(builders.make_evidence(finished=False))
    with pytest.raises(Conflict, match="cancelled"):
        gate(builders.make_evidence(cancelled=True))
    with pytest.raises(InvalidInput, match="no targets"):
        gate(study(spec={"targets": ()}))


def test_without_targets_every_latency_is_compared() -> None:
    report = gate(study(spec={"targets": ()}), baseline())
    assert {"TTFT", "ITL", "End-to-end"} <= {c.name.split(" ")[0] for c in report.checks}
    assert report.status == "passed", report.sentence


def test_the_false_alarm_rate_of_equal_configurations_is_small() -> None:
    seeds = range(40)
    reports = [gate(study(seed=s), baseline(seed=1000 + s)) for s in seeds]
    assert sum(r.status == "failed" for r in reports) == 0


def test_junit_has_a_case_for_each_check_and_survives_odd_names() -> None:
    made = study(ttft_s=2.0)
    odd = builders.make_evidence(*made.trials, spec=made.spec, name='<b>"x"\x08&')
    report = gate(odd, baseline())
    root = ET.fromstring(junit(report))
    suite = root[0]
    assert suite.attrib["tests"] == str(len(report.checks)) == str(len(suite.findall("testcase")))
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) >= 2
    assert '<b>"x"' in suite.attrib["name"]


def test_markdown_shows_every_check_and_no_foreign_markup() -> None:
    made = study()
    odd = builders.make_evidence(*made.trials, spec=made.spec, name="<img> | @team [x](y)")
    report = gate(odd, baseline())
    text = markdown(report)
    assert text.startswith("### Passed: all")
    assert text.count("| pass |") == len(report.checks)
    assert "<img>" not in text
    assert "\\@team \\[x\\](y)" in text
