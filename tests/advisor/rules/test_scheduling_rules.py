"""Rules on scheduling: fails with evidence, passes, not applicable, at the threshold."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.evidence import TrialEvidence
from advisor.rules.checks import (
    s003_ttft_from_queueing,
    s004_rate_above_capacity,
    s005_batch_too_small,
    s006_batch_breaks_latency,
    s007_prefill_stalls_decode,
    s008_decode_stalls,
)
from advisor.rules.rule import Verdict
from gpuagent.wire import Quantity, Samples, SlaTarget
from gpuagent.wire.inside import BatchPoint, ChunkPoint
from gpuagent.wire.measure import RequestRecord
from tests.builders import (
    make_baseline_result,
    make_cell,
    make_current,
    make_request,
    make_requests,
    make_samples,
    make_trial,
    make_validity,
)
from tests.inside_builders import make_batching_result
from tests.rule_checks import (
    LOOSE_ITL,
    LOOSE_RATE,
    LOOSE_TTFT,
    TIGHT_ITL,
    TIGHT_RATE,
    TIGHT_TTFT,
    aiming_at,
    assert_says_what_is_missing,
    invalid,
    make_counters,
    one,
    text_of,
)


@pytest.mark.parametrize(
    "module",
    [
        s003_ttft_from_queueing,
        s004_rate_above_capacity,
        s005_batch_too_small,
        s006_batch_breaks_latency,
        s007_prefill_stalls_decode,
        s008_decode_stalls,
    ],
    ids=lambda module: module.ID,
)
def test_without_its_evidence_a_rule_says_what_is_missing(module: Any) -> None:
    fields = aiming_at(TIGHT_ITL, TIGHT_TTFT, request_rate_per_s=1.0)
    assert_says_what_is_missing(one(module, shape=None, device=None, **fields))
    assert_says_what_is_missing(one(module, invalid(), **fields))


# --- queue -------------------------------------------------------------------------------------


def at_rate(
    ttft_s: float, *, prefill_s: float = 0.1, cov: float = 0.0, n: int = 60
) -> TrialEvidence:
    """Open-loop requests far apart; a prompt of 64 tokens alone takes `prefill_s`."""
    requests = make_requests(n, ttft_s=ttft_s, itl_s=0.001, cov=cov, rate_per_s=0.5)
    return make_current(
        requests=requests, arrivals="poisson", cells=(make_cell(prefill_s=prefill_s),)
    )


@pytest.mark.parametrize(("ttft_s", "verdict"), [(0.19, Verdict.PASS), (0.21, Verdict.FAIL)])
def test_waiting_above_half_of_ttft_fails(ttft_s: float, verdict: Verdict) -> None:
    finding = one(s003_ttft_from_queueing, at_rate(ttft_s), **aiming_at(TIGHT_TTFT))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(1 - 0.1 / ttft_s, abs=0.01)
    if verdict is Verdict.FAIL:
        assert finding.effect is not None
        assert finding.effect.change_frac < -0.5
        assert finding.gain > 0


def test_waiting_that_is_not_proven_stays_open() -> None:
    finding = one(s003_ttft_from_queueing, at_rate(0.21, cov=0.4, n=12), **aiming_at(TIGHT_TTFT))
    assert finding.verdict is Verdict.CANNOT_TELL


def test_waiting_within_the_targets_is_only_told() -> None:
    finding = one(s003_ttft_from_queueing, at_rate(0.4), **aiming_at(LOOSE_TTFT))
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is None


def test_single_requests_never_wait_and_prefill_must_be_known() -> None:
    assert_says_what_is_missing(one(s003_ttft_from_queueing, make_current()))
    without = make_current(arrivals="poisson", cells=())
    assert_says_what_is_missing(one(s003_ttft_from_queueing, without))


# --- capacity ----------------------------------------------------------------------------------


def served(rate: float, *, cov: float = 0.0, n: int = 100) -> Any:
    """Requests of 1.05 s one after the other, `rate` of them per second."""
    requests = make_requests(n, ttft_s=0.15, itl_s=0.06, cov=cov)
    trial = make_current(requests=requests)
    return one(s004_rate_above_capacity, trial, **aiming_at(request_rate_per_s=rate))


@pytest.mark.parametrize(
    ("load", "verdict"),
    [
        (0.79, Verdict.PASS),
        (0.81, Verdict.INFORMATIVE),
        (0.99, Verdict.INFORMATIVE),
        (1.01, Verdict.FAIL),
    ],
)
def test_a_rate_above_capacity_has_no_steady_state(load: float, verdict: Verdict) -> None:
    finding = served(load / 1.05)
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(load)
    assert finding.confidence == ("high" if verdict is Verdict.FAIL else "medium")


def test_twice_the_capacity_needs_three_replicas() -> None:
    finding = served(2 / 1.05)
    assert finding.change is not None
    # ceil(2 / 0.8): each replica below four fifths of its capacity.
    assert "needs 3 of them" in text_of(finding)


def test_a_load_whose_interval_holds_capacity_stays_open() -> None:
    assert served(1 / 1.05, cov=0.4, n=6).verdict is Verdict.CANNOT_TELL


def test_open_arrivals_are_judged_by_the_grid() -> None:
    # 0.15 s of prefill and 15 steps of 0.06 s.
    trial = make_current(arrivals="poisson")
    finding = one(s004_rate_above_capacity, trial, **aiming_at(request_rate_per_s=1.0))
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence[0].value == pytest.approx(1.05, rel=0.02)
    assert "grid at batch 1" in text_of(finding)
    assert finding.confidence == "medium"
    server = make_current(arrivals="poisson", cells=(), server=make_counters())
    assert_says_what_is_missing(
        one(s004_rate_above_capacity, server, **aiming_at(request_rate_per_s=1.0))
    )
    assert_says_what_is_missing(one(s004_rate_above_capacity, make_current()))


# --- batch -------------------------------------------------------------------------------------


def batched(growth: float, *, cov: float = 0.0, batch: int = 4) -> TrialEvidence:
    """A step at `batch` takes `growth` times that at batch 1."""
    cells = (make_cell(1, cov=cov), make_cell(batch, decode_s=0.03 * growth, cov=cov, seed=3))
    return make_current(cells=cells)


@pytest.mark.parametrize(("growth", "verdict"), [(2.68, Verdict.PASS), (2.65, Verdict.FAIL)])
def test_half_as_many_tokens_again_are_worth_a_batch(growth: float, verdict: Verdict) -> None:
    # 4 / growth crosses 1.5 at 2.667.
    finding = one(s005_batch_too_small, batched(growth), **aiming_at(TIGHT_RATE))
    assert finding.verdict is verdict
    assert finding.evidence[0].value == pytest.approx(4 / growth)
    if verdict is Verdict.FAIL:
        assert finding.effect is not None
        assert finding.effect.change_frac == pytest.approx(4 / growth - 1)


def test_a_noisy_gain_stays_open() -> None:
    finding = one(s005_batch_too_small, batched(2.5, cov=0.5), **aiming_at(TIGHT_RATE))
    assert finding.verdict is Verdict.CANNOT_TELL


@pytest.mark.parametrize(
    ("targets", "preset", "verdict"),
    [
        ((), "chat", Verdict.INFORMATIVE),
        ((), "batch", Verdict.FAIL),
        ((LOOSE_RATE,), "batch", Verdict.INFORMATIVE),
        ((TIGHT_TTFT,), "chat", Verdict.INFORMATIVE),
    ],
)
def test_throughput_is_advised_to_those_who_want_it(
    targets: tuple[SlaTarget, ...], preset: str, verdict: Verdict
) -> None:
    finding = one(s005_batch_too_small, batched(1.2), **aiming_at(*targets, preset=preset))
    assert finding.verdict is verdict


def test_one_batch_size_shows_no_worth_of_batching() -> None:
    alone = make_current(cells=(make_cell(1),))
    assert_says_what_is_missing(one(s005_batch_too_small, alone))
    untimed = make_cell(4).model_copy(update={"decode_step_s": Samples(values=())})
    finding = one(s005_batch_too_small, make_current(cells=(make_cell(1), untimed)))
    assert finding.verdict is Verdict.CANNOT_TELL


# --- batch against latency ---------------------------------------------------------------------


def swept(*steps_s: float) -> TrialEvidence:
    points = tuple(
        BatchPoint(
            batch=2**index,
            prefill_s=make_samples(0.1, 5),
            decode_step_s=make_samples(step_s, 20, cov=0.0),
            peak_memory_bytes=Quantity(value=1e9),
        )
        for index, step_s in enumerate(steps_s)
    )
    return make_trial(make_batching_result(points=points), ordinal=2, role="diagnosis")


LIMIT_50_MS = SlaTarget(metric="itl_s", statistic="mean", limit=0.05)


@pytest.mark.parametrize(
    ("steps_s", "verdict", "words"),
    [
        ((0.03, 0.04, 0.0499), Verdict.PASS, "up to 4"),
        ((0.03, 0.04, 0.0501), Verdict.INFORMATIVE, "Batches above 2 break"),
        ((0.06, 0.07), Verdict.INFORMATIVE, "not even 1"),
        # Batch 2 breaks it: that batch 4 does not is no reason to allow 4.
        ((0.03, 0.06, 0.04), Verdict.INFORMATIVE, "Batches above 1 break"),
    ],
)
def test_the_largest_batch_within_the_gap_is_named(
    steps_s: tuple[float, ...], verdict: Verdict, words: str
) -> None:
    finding = one(
        s006_batch_breaks_latency, make_current(), swept(*steps_s), **aiming_at(LIMIT_50_MS)
    )
    assert finding.verdict is verdict
    assert words in finding.title
    assert len(finding.evidence) == len(steps_s)


def test_without_a_sweep_the_grid_is_read_and_without_a_target_nothing() -> None:
    current = make_current(cells=(make_cell(1), make_cell(4, decode_s=0.06)))
    finding = one(s006_batch_breaks_latency, current, **aiming_at(LIMIT_50_MS))
    assert "Batches above 1 break" in finding.title
    assert finding.change is not None
    assert_says_what_is_missing(one(s006_batch_breaks_latency, current, **aiming_at(TIGHT_TTFT)))
    single = make_current(cells=(make_cell(1),))
    assert_says_what_is_missing(one(s006_batch_breaks_latency, single, **aiming_at(LIMIT_50_MS)))


# --- prefill against decode --------------------------------------------------------------------


def chunked(**longest_s: float) -> TrialEvidence:
    """Prefill of 512 tokens in chunks: name of the size -> longest chunk."""
    points = tuple(
        ChunkPoint(
            chunk_tokens=int(name[1:]),
            seconds=make_samples(1.0 + 10 / int(name[1:]), 5, cov=0.0),
            longest_chunk_s=Quantity(value=seconds),
        )
        for name, seconds in longest_s.items()
    )
    return make_trial(make_batching_result(chunks=points), ordinal=2, role="diagnosis")


def stalls(trial: TrialEvidence, *, rate: float | None = 2.0, limit: float = 0.5) -> Any:
    target = SlaTarget(metric="itl_s", statistic="p95", limit=limit)
    fields = aiming_at(target, request_rate_per_s=rate)
    return one(s007_prefill_stalls_decode, make_current(), trial, **fields)


@pytest.mark.parametrize(("whole_s", "verdict"), [(0.5, Verdict.PASS), (0.501, Verdict.FAIL)])
def test_a_whole_prefill_may_take_as_long_as_a_gap(whole_s: float, verdict: Verdict) -> None:
    finding = stalls(chunked(t64=0.1, t256=0.3, t512=whole_s))
    assert finding.verdict is verdict
    assert [item.value for item in finding.evidence] == [0.1, 0.3, whole_s]
    if verdict is Verdict.FAIL:
        assert "chunks of 256 tokens" in text_of(finding)
        assert "changes by 1.9 %" in text_of(finding)


def test_where_no_chunk_is_short_enough_it_says_so() -> None:
    finding = stalls(chunked(t64=0.6, t512=1.0))
    assert finding.verdict is Verdict.FAIL
    assert "still too long" in text_of(finding)


def test_one_request_at_a_time_holds_nobody_up() -> None:
    finding = stalls(chunked(t64=0.1, t512=1.0), rate=None)
    assert finding.verdict is Verdict.INFORMATIVE
    assert finding.change is None


def test_a_prefill_that_was_never_timed_in_one_piece_stays_open() -> None:
    assert stalls(chunked(t64=0.6, t256=1.0)).verdict is Verdict.CANNOT_TELL
    assert_says_what_is_missing(stalls(chunked(t512=1.0)))
    disturbed = make_trial(
        make_batching_result(), ordinal=2, role="diagnosis", validity=make_validity("invalid")
    )
    assert_says_what_is_missing(stalls(disturbed))


# --- stalls ------------------------------------------------------------------------------------


def with_gaps(late_s: float, n: int = 100) -> tuple[RequestRecord, ...]:
    """n requests of five gaps; in each twentieth one gap is late: one gap in a hundred."""
    records = []
    for index in range(n):
        gaps = [0.03] * 5
        if index % 20 == 0:
            gaps[2] = late_s
        records.append(make_request(index * 10.0, gaps_s=gaps))
    return tuple(records)


def late(late_s: float, *targets: SlaTarget, n: int = 100, **result: Any) -> Any:
    # Two of 200 gaps: the p99 lies between them and the usual ones.
    trial = make_current(requests=with_gaps(late_s, n), **result)
    return one(s008_decode_stalls, trial, **aiming_at(*targets))


@pytest.mark.parametrize(("ratio", "verdict"), [(3.0, Verdict.PASS), (300.0, Verdict.FAIL)])
def test_a_tail_of_stalls_fails(ratio: float, verdict: Verdict) -> None:
    finding = late(0.03 * ratio, TIGHT_ITL)
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "pin threads" in text_of(finding)


def test_the_p99_may_be_three_times_the_median() -> None:
    for ratio, verdict in ((2.99, Verdict.PASS), (3.01, Verdict.FAIL)):
        requests = tuple(
            make_request(i * 10.0, gaps_s=[0.03] * 9 + [0.03 * ratio]) for i in range(50)
        )
        trial = make_current(requests=requests)
        finding = one(s008_decode_stalls, trial, **aiming_at(TIGHT_ITL))
        assert finding.verdict is verdict
        assert finding.evidence[0].value == pytest.approx(ratio)


def test_stalls_within_the_targets_are_only_told() -> None:
    assert late(9.0, LOOSE_ITL).verdict is Verdict.INFORMATIVE


def test_in_a_server_prompts_of_others_come_first() -> None:
    finding = late(9.0, TIGHT_ITL, server=make_counters(mixed_frac=0.35))
    assert "35 % of the steps" in text_of(finding)
    assert "max_batched_tokens" in text_of(finding)
    assert "pin threads" not in text_of(finding)


def test_two_hundred_gaps_are_the_least() -> None:
    assert_says_what_is_missing(late(9.0, TIGHT_ITL, n=39))
    assert late(9.0, TIGHT_ITL, n=40).verdict is not Verdict.NOT_APPLICABLE


def test_tokens_that_all_arrive_at_once_have_no_stalls() -> None:
    requests = tuple(make_request(i * 1.0, gaps_s=[0.0] * 5) for i in range(50))
    assert one(s008_decode_stalls, make_current(requests=requests)).verdict is Verdict.PASS


def test_the_queue_is_measured_by_requests_of_valid_trials() -> None:
    result = make_baseline_result(arrivals="poisson")
    trial = make_trial(result, validity=make_validity("invalid"))
    assert_says_what_is_missing(one(s003_ttft_from_queueing, trial))
