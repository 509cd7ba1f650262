"""Rules on what a server counts: fails, passes, threshold, within targets, missing evidence."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.rules.checks import (
    m013_prefix_unused,
    s013_front_end_bound,
    s014_speculation_rejected,
    v008_counts_disagree,
)
from advisor.rules.rule import Finding, Verdict
from advisor.thresholds import (
    COUNT_TOLERANCE,
    FRONT_END_MAX_SHARE,
    FRONT_END_MIN_SAMPLES,
    PREFIX_HIT_MIN,
    SPEC_ACCEPTANCE_GOOD,
    SPEC_ACCEPTANCE_MIN,
)
from gpuagent.wire import EngineSettings, LengthSpec, SlaTarget
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_request,
    make_served,
    make_study_spec,
    make_trial,
    make_validity,
    make_workload,
)
from tests.rule_checks import (
    LOOSE_ITL,
    LOOSE_TTFT,
    TIGHT_TTFT,
    assert_says_what_is_missing,
    one,
    text_of,
    through_engine,
)

MODULES = (
    m013_prefix_unused,
    s013_front_end_bound,
    s014_speculation_rejected,
    v008_counts_disagree,
)


def found(
    module: Any,
    *targets: SlaTarget,
    settings: EngineSettings | None = None,
    shared: float = 0.0,
    requests: Any = None,
    **served: Any,
) -> Finding:
    settings = settings or EngineSettings()
    workload = make_workload(input_tokens=LengthSpec(mean=1000), shared_prefix_frac=shared)
    spec = make_study_spec(
        engine="vllm", current=settings, targets=targets or (TIGHT_TTFT,), workload=workload
    )
    more = {} if requests is None else {"requests": requests}
    result = make_served(make_baseline_result(arrivals="closed_loop", **more), **served)
    trial = make_trial(result, settings=settings, workload=workload)
    return one(module, trial, spec=spec)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_without_a_server_a_rule_says_what_is_missing(module: Any) -> None:
    assert_says_what_is_missing(one(module))
    assert_says_what_is_missing(one(module, make_current()))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.ID)
def test_a_server_that_told_nothing_is_not_judged(module: Any) -> None:
    assert_says_what_is_missing(found(module))


@pytest.mark.parametrize(
    "module",
    [m013_prefix_unused, s013_front_end_bound, s014_speculation_rejected],
    ids=lambda module: module.ID,
)
def test_an_invalid_measurement_gives_no_advice(module: Any) -> None:
    workload = make_workload(shared_prefix_frac=0.5)
    result = make_served(prefix_hit_frac={"value": 0.0}, spec_accepted_frac={"value": 0.0})
    trial = make_trial(result, validity=make_validity("invalid"), workload=workload)
    finding = through_engine(module.ID, make_evidence(trial))
    assert finding.verdict is Verdict.NOT_APPLICABLE


# --- counts ------------------------------------------------------------------------------------


def counted(what: str, client: int, server: int | None, reason: str | None = None) -> Finding:
    count = {"what": what, "client": client, "server": server, "reason": reason}
    return found(v008_counts_disagree, counts=[count])


@pytest.mark.parametrize(
    ("what", "server", "verdict"),
    [
        ("requests", 1000, Verdict.PASS),
        ("requests", 999, Verdict.FAIL),
        ("requests", 1001, Verdict.FAIL),
        ("output_tokens", 1000, Verdict.PASS),
        ("output_tokens", 1012, Verdict.FAIL),
        ("input_tokens", 980, Verdict.FAIL),
    ],
)
def test_requests_are_counted_exactly_and_tokens_within_the_tolerance(
    what: str, server: int, verdict: Verdict
) -> None:
    finding = counted(what, 1000, server)
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "The client counted 1,000" in text_of(finding)
        assert finding.change is not None


def test_at_the_tolerance_tokens_are_the_same() -> None:
    assert COUNT_TOLERANCE.value == 0.01
    assert counted("output_tokens", 1010, 1000).verdict is Verdict.PASS
    assert counted("output_tokens", 1011, 1000).verdict is Verdict.FAIL


def test_the_direction_of_the_gap_names_its_likely_cause() -> None:
    assert "other traffic" in text_of(counted("requests", 10, 12))
    assert "second replica" in text_of(counted("requests", 10, 8))
    assert "several tokens" in text_of(counted("output_tokens", 50, 100))
    assert "own tokenizer" in text_of(counted("input_tokens", 100, 50))


def test_one_side_alone_tells_nothing_and_nothing_served_is_no_crash() -> None:
    alone = counted("requests", 10, None, "the server's metrics have no counter")
    assert alone.verdict is Verdict.CANNOT_TELL
    assert "no counter" in alone.summary
    assert counted("requests", 0, 0).verdict is Verdict.PASS


def test_disturbed_measurements_are_counted_too() -> None:
    count = {"what": "requests", "client": 10, "server": 12}
    trial = make_trial(make_served(counts=[count]), validity=make_validity("invalid"))
    finding = through_engine(v008_counts_disagree.ID, make_evidence(trial))
    assert finding.verdict is Verdict.FAIL


# --- a shared beginning ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hit", "verdict"), [(0.4, Verdict.PASS), (0.2, Verdict.PASS), (0.19, Verdict.FAIL)]
)
def test_half_of_the_shared_beginning_comes_from_the_cache(hit: float, verdict: Verdict) -> None:
    assert PREFIX_HIT_MIN.value == 0.5
    finding = found(m013_prefix_unused, shared=0.4, prefix_hit_frac={"value": hit})
    assert finding.verdict is verdict
    assert f"{hit:.0%}".replace("%", " %") in text_of(finding)


def test_only_whole_blocks_can_be_shared() -> None:
    facts = {"kv_block_tokens": 256}
    short = found(m013_prefix_unused, shared=0.2, prefix_hit_frac={"value": 0.0}, facts=facts)
    assert_says_what_is_missing(short)


def test_a_cache_that_is_off_is_switched_on() -> None:
    off = found(m013_prefix_unused, shared=0.5, settings=EngineSettings(prefix_cache=False))
    assert off.verdict is Verdict.FAIL
    assert off.change is not None
    assert off.change.settings == {"prefix_cache": True}
    used = found(m013_prefix_unused, shared=0.5, prefix_hit_frac={"value": 0.1})
    assert used.change is not None
    assert used.change.settings == {}


def test_within_the_targets_a_beginning_may_be_computed_again() -> None:
    finding = found(
        m013_prefix_unused, LOOSE_TTFT, LOOSE_ITL, shared=0.5, prefix_hit_frac={"value": 0.0}
    )
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is None


def test_hits_that_are_not_counted_or_of_one_batch_tell_nothing() -> None:
    assert found(m013_prefix_unused, shared=0.5).verdict is Verdict.CANNOT_TELL
    batch = found(m013_prefix_unused, shared=0.5, prefix_hit_frac={"value": 0.1}, engine="sglang")
    assert batch.verdict is Verdict.CANNOT_TELL


# --- front end ---------------------------------------------------------------------------------


def watched(inside: float, *targets: SlaTarget, samples: int = 12, engine: str = "vllm") -> Finding:
    """Ten requests in flight all the time, `inside` of them in the engine."""
    requests = [make_request(0.0, ttft_s=1.0, gaps_s=[99.0]) for _ in range(10)]
    timeline = {
        "at_s": [1.0 + i for i in range(samples)],
        "running": [inside] * samples,
        "waiting": [0.0] * samples,
        "kv_frac": [None] * samples,
    }
    return found(
        s013_front_end_bound, *targets, requests=requests, timeline=timeline, engine=engine
    )


def test_requests_may_be_outside_of_the_engine_up_to_the_threshold() -> None:
    assert FRONT_END_MAX_SHARE.value == 0.3
    assert watched(10.0).verdict is Verdict.PASS
    assert watched(7.0).verdict is Verdict.PASS
    finding = watched(6.9)
    assert finding.verdict is Verdict.FAIL
    assert "--api-server-count" in text_of(finding)
    assert finding.evidence[0].n == 12


def test_too_few_samples_and_gauges_that_lag_tell_nothing() -> None:
    least = int(FRONT_END_MIN_SAMPLES.value)
    assert watched(2.0, samples=least).verdict is Verdict.FAIL
    assert watched(2.0, samples=least - 1).verdict is Verdict.CANNOT_TELL
    assert watched(2.0, engine="sglang").verdict is Verdict.CANNOT_TELL
    assert watched(10.0, engine="sglang").verdict is Verdict.PASS


def test_within_the_targets_the_front_end_is_wide_enough() -> None:
    loose = SlaTarget(metric="itl_s", statistic="p50", limit=1000)
    assert watched(2.0, loose).verdict is Verdict.INFORMATIVE


def test_samples_without_gauges_or_without_load_are_left_out() -> None:
    requests = [make_request(0.0, ttft_s=1.0, gaps_s=[9.0]) for _ in range(4)]
    timeline = {
        "at_s": [1.0, 2.0, 50.0],
        "running": [None, 4.0, 0.0],
        "waiting": [None, 0.0, 0.0],
        "kv_frac": [None] * 3,
    }
    finding = found(s013_front_end_bound, requests=requests, timeline=timeline)
    assert finding.verdict is Verdict.CANNOT_TELL
    assert finding.summary.startswith("1 samples")


# --- speculation -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accepted", "verdict"),
    [
        (0.29, Verdict.FAIL),
        (SPEC_ACCEPTANCE_MIN.value, Verdict.CANNOT_TELL),
        (0.59, Verdict.CANNOT_TELL),
        (SPEC_ACCEPTANCE_GOOD.value, Verdict.PASS),
        (1.0, Verdict.PASS),
    ],
)
def test_accepted_drafts_decide_about_speculation(accepted: float, verdict: Verdict) -> None:
    finding = found(s014_speculation_rejected, spec_accepted_frac={"value": accepted})
    assert finding.verdict is verdict
    assert "of the drafted tokens" in text_of(finding)
    assert (finding.change is not None) == (verdict is Verdict.FAIL)
