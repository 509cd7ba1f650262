"""Results of other tools as studies: what a file has is judged, what it lacks is not made up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from advisor.comparable import UNKNOWN_HARDWARE
from advisor.comparison import Side, compare_trials
from advisor.gate import gate
from advisor.imports import ImportRefused, judge_import, read_import
from advisor.imports.convert import ImportedStudy, convert
from advisor.reports.method import method_lines
from advisor.rules import RULES
from advisor.rules.engine import evaluate
from advisor.rules.imported import FROM_A_FILE, OF_REQUESTS
from advisor.rules.rule import Finding
from advisor.targets import target_statuses
from advisor.what_if import WhatIfQuery, what_if
from gpuagent.wire import LengthSpec, SlaTarget
from gpuagent.wire.trial import ImportedResult
from tests.advisor.imports import samples
from tests.builders import make_evidence, make_study_spec, make_trial, make_workload

TTFT = SlaTarget(metric="ttft_s", statistic="p95", limit=0.1)
RATE = SlaTarget(metric="output_tok_s", statistic="mean", limit=2)
E2E = SlaTarget(metric="e2e_s", statistic="p95", limit=1)


def made(document: Any, *targets: SlaTarget, **more: Any) -> ImportedStudy:
    content = document if isinstance(document, str) else json.dumps(document)
    trial = read_import(content.encode())[0]
    return convert(trial, sha256="0" * 64, benchmark=0, targets=targets, imported_at_s=1.0, **more)


def result_of(one: ImportedStudy) -> ImportedResult:
    assert isinstance(one.result.measurements, ImportedResult)
    return one.result.measurements


def evidence_of(one: ImportedStudy) -> Any:
    trial = make_trial(
        one.result.measurements,
        config=one.config,
        workload=one.spec.workload,
        environment=one.result.environment,
        validity=one.result.validity,
    )
    return make_evidence(trial, spec=one.spec, shape=None, device=None)


def test_single_requests_are_taken_over_and_prove_targets() -> None:
    one = made(samples.vllm(), TTFT, RATE, hardware="H100 SXM")
    found = result_of(one)
    assert len(found.requests) == found.sent == 200
    assert found.arrivals == "poisson"
    assert one.spec.workload.request_rate_per_s == 1.0
    assert one.spec.workload.input_tokens == LengthSpec(kind="measured", mean=32)
    assert one.result.environment.host is None
    assert one.result.environment.device == "H100 SXM"
    statuses = target_statuses(evidence_of(one).current, one.spec)
    assert [s.verdict for s in statuses] == ["met", "met"]
    assert {s.basis for s in statuses} == {"imported"}


@pytest.mark.parametrize(
    ("document", "sent"),
    [(samples.guidellm(), 100), (samples.aiperf(), 503), (samples.LOCUST, 1000)],
    ids=["guidellm", "aiperf", "locust"],
)
def test_sums_stay_sums(document: Any, sent: int) -> None:
    one = made(document, TTFT, E2E)
    found = result_of(one)
    assert found.requests == ()
    assert found.sent == sent
    ttft, e2e = target_statuses(evidence_of(one).current, one.spec)
    assert e2e.verdict == "not_proven"
    assert e2e.value is not None
    assert "nothing is proven" in e2e.reason
    if document is samples.LOCUST:
        assert ttft.verdict == "not_measured"
        assert "only percentiles" in ttft.reason
        assert one.spec.workload.input_tokens.kind == "unknown"
    assert one.result.validity.verdict == "warn"
    assert one.result.environment.device == UNKNOWN_HARDWARE


def test_a_burst_or_a_closed_loop_is_no_rate() -> None:
    burst = made(samples.vllm(request_rate="inf"))
    assert burst.spec.workload.request_rate_per_s is None
    assert result_of(burst).arrivals == "closed_loop"
    held = made(samples.vllm(max_concurrency=4))
    assert held.spec.workload.request_rate_per_s is None


def test_chunks_that_hide_tokens_make_no_throughput() -> None:
    one = made(samples.vllm(output_throughput=40.0), RATE)
    assert result_of(one).hidden_tokens
    (status,) = target_statuses(evidence_of(one).current, one.spec)
    assert (status.verdict, status.value) == ("not_proven", 40.0)
    assert "hide single tokens" in status.reason


def chunked() -> dict[str, Any]:
    """10 tokens in each chunk of an answer."""
    return samples.vllm(
        output_lens=[40] * 200, total_output_tokens=8000, output_throughput=40.0, duration=200.0
    )


def test_gaps_between_chunks_never_prove_a_miss() -> None:
    tight, wide = (SlaTarget(metric="itl_s", statistic="p95", limit=x) for x in (0.005, 0.02))
    mean = SlaTarget(metric="itl_s", statistic="mean", limit=0.005)
    for target, verdict in ((tight, "not_proven"), (mean, "not_proven"), (wide, "met")):
        one = made(chunked(), target)
        (status,) = target_statuses(evidence_of(one).current, one.spec)
        (judged,) = judge_import(read_import(json.dumps(chunked()).encode())[0], [target])
        assert (status.verdict, judged.verdict) == (verdict, verdict)
        if verdict == "not_proven":
            assert "several tokens" in status.reason
            assert judged.reason == status.reason
            assert status.needed_n is None
    single = samples.vllm(itls=[[]] * 200, output_throughput=40.0)
    one = made(single, tight)
    (status,) = target_statuses(evidence_of(one).current, one.spec)
    assert status.verdict == "not_measured"
    assert "several tokens" in status.reason


def test_gaps_of_chunks_are_compared_with_nothing() -> None:
    target = SlaTarget(metric="itl_s", statistic="p95", limit=1)
    before = evidence_of(made(chunked(), target, hardware="H100 SXM"))
    slower = chunked() | {"itls": [[0.02] * 3] * 200}
    after = evidence_of(made(slower, target, hardware="H100 SXM"))
    other = replace(after.current, trial_id="other")
    after = replace(after, study_id="other", trials=(other,))
    sides = [Side(one, one.current) for one in (before, after)]
    (pair,) = compare_trials(sides).pairs
    assert "ttft_s" in {delta.metric for delta in pair.deltas}
    assert not {"itl_s", "output_tok_s"} & {delta.metric for delta in pair.deltas}
    checks = {one.name: one for one in gate(after, before).checks if one.group == "regression"}
    assert checks["ITL against the baseline"].status == "not_proven"
    assert "several tokens" in checks["ITL against the baseline"].sentence


@pytest.mark.parametrize("single", [True, False])
def test_the_cost_of_a_token_counts_hidden_tokens(single: bool) -> None:
    document = chunked()
    if not single:
        del document["itls"]
    (row,) = what_if(evidence_of(made(document)), WhatIfQuery(usd_per_hour=1.44)).ranking
    assert row.usd_per_million == pytest.approx(10.0)


def test_what_cannot_be_a_study_is_refused() -> None:
    with pytest.raises(ImportRefused, match="twice"):
        made(samples.vllm(), TTFT, TTFT)
    for field in ("name", "hardware"):
        for text in ("<b>x</b>", "a\tb", "\u202ex"):
            with pytest.raises(ImportRefused, match="no markup") as refused:
                made(samples.vllm(), **{field: text})
            assert refused.value.field == field
    with pytest.raises(ImportRefused, match="concurrency"):
        made(samples.vllm(max_concurrency=0.5))
    assert made(samples.vllm(label="<b>nightly</b>")).spec.name == "vllm bench serve: bnightly/b"
    workload = make_workload(input_tokens=LengthSpec(kind="unknown", mean=1))
    with pytest.raises(ValidationError, match="fixed or lognormal"):
        make_study_spec(workload=workload)
    with pytest.raises(ValidationError, match="go together"):
        make_study_spec(engine="imported")


# --- rules -------------------------------------------------------------------------------------


def findings_of(document: Any) -> dict[str, Finding]:
    return {found.rule_id: found for found in evaluate(evidence_of(made(document)))}


def test_rules_that_need_single_requests_say_what_to_run() -> None:
    assert {rule.id for rule in RULES} >= OF_REQUESTS
    found = findings_of(samples.aiperf())
    for rule_id in OF_REQUESTS:
        assert found[rule_id].verdict == "not_applicable"
        assert "only percentiles" in found[rule_id].title
        assert "--save-detailed" in found[rule_id].missing
    whole = findings_of(samples.vllm())
    assert all(whole[rule_id].verdict != "not_applicable" for rule_id in OF_REQUESTS)


def test_no_rule_reads_tokens_or_gaps_from_chunks() -> None:
    found = findings_of(chunked())
    for rule_id in ("prefill-dominant", "decode-stalls"):
        assert found[rule_id].verdict == "not_applicable"
        assert "several tokens" in found[rule_id].title
        assert "an agent measures" in found[rule_id].missing


def test_nothing_is_said_of_settings_and_lengths_that_nobody_knows() -> None:
    found = findings_of(samples.vllm())
    assert found["attention-eager"].verdict == "not_applicable"
    assert found["lengths-differ"].verdict == "not_applicable"
    assert "in a study that an agent measures" in found["profile-bottleneck"].missing
    assert "an agent" in found["measurement-invalid"].change.text


def test_a_missed_target_speaks_of_the_import_and_not_of_settings() -> None:
    tight = SlaTarget(metric="ttft_s", statistic="p95", limit=0.01)
    evidence = evidence_of(made(samples.vllm(), tight))
    found = {one.rule_id: one for one in evaluate(evidence)}["target-missed"]
    assert found.verdict == "fail"
    assert found.evidence[0].text.startswith("The imported result: TTFT p95 50.0")
    assert "The imported result does not keep this limit" in found.change.text
    assert "measure the model in a study with an agent" in found.change.text
    for absent in ("configuration", "Current settings", "other settings"):
        assert absent not in found.change.text + found.evidence[0].text


def test_the_method_of_an_import_says_what_its_records_hold() -> None:
    itl = SlaTarget(metric="itl_s", statistic="p95", limit=1)
    memory = SlaTarget(metric="memory_bytes", statistic="peak", limit=1)

    def lines(document: Any) -> str:
        return " ".join(method_lines(evidence_of(made(document, TTFT, itl, RATE, memory))))

    plain, queued = lines(samples.vllm()), lines(samples.vllm(queue_times=[0.1] * 200))
    for text in (plain, queued):
        assert "client queueing included" not in text
        assert "allocator" not in text
    assert "TTFT of the single requests is first output token − real send time." in plain
    assert "intended send" not in plain
    assert "the tool's own queue included" in queued
    assert "every gap between two chunks" in lines(chunked())
    assert "client queueing included" in " ".join(method_lines(make_evidence(make_trial())))


@pytest.mark.parametrize("document", [samples.vllm(), samples.aiperf()], ids=["single", "sums"])
def test_what_no_file_gives_needs_an_agent(document: Any) -> None:
    for found in evaluate(evidence_of(made(document))):
        if found.verdict == "not_applicable" and found.rule_id not in FROM_A_FILE:
            assert found.missing.count("an agent measures") == 1, found.rule_id
    other = make_evidence(make_trial())
    assert not any("an agent measures" in (one.missing or "") for one in evaluate(other))


def test_failures_count_from_sums_too_and_are_not_guessed() -> None:
    assert "3 of 503" in findings_of(samples.aiperf())["requests-failed"].title
    file = samples.vllm()
    for key in ("start_times", "ttfts", "itls", "failed", "num_prompts"):
        del file[key]
    found = findings_of(file)["requests-failed"]
    assert (found.verdict, found.title) == (
        "not_applicable",
        "The file does not count failed requests",
    )
