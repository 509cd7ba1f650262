from __future__ import annotations

from typing import Any

import pytest

from gpuagent.experiments import baseline
from gpuagent.experiments.base import Facts
from gpuagent.telemetry.fake import H100, thermal_sequence
from gpuagent.validity import LIMITS, Observed, assess
from gpuagent.wire import EnvironmentSnapshot, HostInfo, HostSample
from gpuagent.wire.measure import RequestRecord, Validity
from gpuagent.wire.trial import BaselineResult
from tests.gpuagent.fakes import FakeClock, fake_context, tiny_spec

HOST = HostInfo(hostname="h", cpu="c", logical_cores=2, memory_bytes=2**34, os="Linux")
ENVIRONMENT = EnvironmentSnapshot(
    host=HOST, device="cpu", versions={"torch": "2.13.0", "transformers": "5.24.0", "agent": "1"}
)
QUIET = Observed(window_s=60, other_cpu_frac=0.01, steal_frac=0.0)


def request(at_s: float, *, ttft_s: float = 0.1, lag_s: float = 0.0, tokens: int = 5) -> Any:
    stamps = tuple(at_s + ttft_s + 0.01 * index for index in range(tokens))
    return RequestRecord(
        intended_s=at_s,
        sent_s=at_s + lag_s,
        token_s=stamps,
        input_tokens=10,
        output_tokens=tokens,
    )


def result_with(requests: list[RequestRecord], arrivals: str = "closed_loop") -> BaselineResult:
    good = baseline.run(fake_context(tiny_spec(), clock=FakeClock()))
    return good.model_copy(update={"requests": tuple(requests), "arrivals": arrivals})


def judge(
    requests: list[RequestRecord] | None = None,
    *,
    arrivals: str = "closed_loop",
    facts: Facts | None = None,
    observed: Observed = QUIET,
    environment: EnvironmentSnapshot = ENVIRONMENT,
) -> Validity:
    given = [request(float(index)) for index in range(40)] if requests is None else requests
    return assess(
        result_with(given, arrivals),
        facts=facts or Facts(repeat_ratios=[1.0, 1.01, 0.99, 1.0, 1.0], warmup_stable=True),
        observed=observed,
        environment=environment,
    )


def verdict_of(validity: Validity, check_id: str) -> str:
    return {check.id: check.verdict for check in validity.checks}[check_id]


def test_a_quiet_and_steady_run_is_valid() -> None:
    validity = judge()
    assert validity.verdict == "valid", validity.reasons


def test_every_limit_belongs_to_a_check_that_runs() -> None:
    gpu = Observed(
        60, 0.01, 0.0, samples=tuple(HostSample(at_s=1, gpus=(s,)) for s in thermal_sequence())
    )
    ids = {check.id for check in judge(arrivals="poisson", observed=gpu).checks}
    assert set(LIMITS) <= ids


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [([1.0, 1.0, 1.04], "valid"), ([1.0, 1.1, 0.9], "warn"), ([1.0, 1.6, 0.6], "invalid")],
)
def test_repeats_that_differ_warn_and_then_refuse(ratios: list[float], verdict: str) -> None:
    validity = judge(facts=Facts(repeat_ratios=ratios, warmup_stable=True))
    assert verdict_of(validity, "repeats_cov") == verdict


def test_a_first_token_before_its_send_is_invalid() -> None:
    broken = request(1.0).model_copy(update={"intended_s": 5.0, "sent_s": 5.0})
    assert verdict_of(judge([broken] * 40), "token_order") == "invalid"


def test_failed_requests_are_invalid_and_a_cut_run_only_warns() -> None:
    failed = [request(1.0).model_copy(update={"error": "gone"}), *[request(2.0)] * 39]
    assert verdict_of(judge(failed), "requests_completed") == "invalid"
    cut = judge(facts=Facts(planned_requests=60, repeat_ratios=[1, 1], warmup_stable=True))
    assert verdict_of(cut, "requests_completed") == "warn"


@pytest.mark.parametrize(("n", "verdict"), [(5, "invalid"), (10, "warn"), (20, "valid")])
def test_too_few_requests_say_so(n: int, verdict: str) -> None:
    validity = judge([request(float(index)) for index in range(n)])
    assert verdict_of(validity, "sample_count") == verdict


def test_a_client_that_sends_late_makes_an_open_loop_invalid() -> None:
    late = [request(float(index), lag_s=0.03) for index in range(40)]
    assert verdict_of(judge(late, arrivals="poisson"), "send_lag") == "invalid"
    on_time = [request(float(index), lag_s=0.0002) for index in range(40)]
    assert verdict_of(judge(on_time, arrivals="poisson"), "send_lag") == "valid"


def test_a_growing_queue_is_named() -> None:
    growing = [request(float(i), ttft_s=0.1 + 0.2 * i) for i in range(40)]
    assert verdict_of(judge(growing, arrivals="poisson"), "rate_sustained") == "warn"


def test_a_drifting_latency_is_named() -> None:
    slow = [
        request(float(i)).model_copy(
            update={"token_s": tuple(i + 0.1 + 0.02 * k for k in range(5))}
        )
        for i in range(20, 40)
    ]
    fast = [request(float(i)) for i in range(20)]
    assert verdict_of(judge(fast + slow), "steady_state") == "invalid"


@pytest.mark.parametrize(("frac", "verdict"), [(0.05, "valid"), (0.2, "warn"), (0.7, "invalid")])
def test_the_load_of_others_counts(frac: float, verdict: str) -> None:
    validity = judge(observed=Observed(60, frac, 0.0))
    assert verdict_of(validity, "other_cpu_load") == verdict


def test_steal_is_not_checked_where_it_is_not_reported() -> None:
    assert verdict_of(judge(observed=Observed(60, 0.0, None)), "cpu_steal") == "not_checked"
    assert verdict_of(judge(observed=Observed(60, 0.0, 0.2)), "cpu_steal") == "invalid"


def test_thermal_throttling_of_a_recorded_gpu_is_invalid() -> None:
    samples = tuple(HostSample(at_s=i, gpus=(s,)) for i, s in enumerate(thermal_sequence()))
    validity = judge(
        observed=Observed(7, 0.0, 0.0, samples=samples),
        environment=ENVIRONMENT.model_copy(update={"gpus": (H100,), "driver_version": "580"}),
    )
    assert verdict_of(validity, "gpu_throttled") == "invalid"
    assert "sw_thermal" in " ".join(validity.reasons)
    assert verdict_of(validity, "gpu_power_capped") == "warn"
    assert verdict_of(validity, "sm_clock_cov") == "warn"
    assert verdict_of(validity, "foreign_gpu_processes") == "valid"


@pytest.mark.parametrize(("foreign", "verdict"), [(2, "invalid"), (None, "not_checked")])
def test_foreign_processes_on_the_gpu(foreign: int | None, verdict: str) -> None:
    samples = tuple(
        HostSample(at_s=1, gpus=(s,)) for s in thermal_sequence(foreign_processes=foreign)
    )
    validity = judge(observed=Observed(7, 0.0, 0.0, samples=samples))
    assert verdict_of(validity, "foreign_gpu_processes") == verdict


def test_missing_provenance_and_notes_warn() -> None:
    bare = ENVIRONMENT.model_copy(update={"versions": {"agent": "1"}})
    facts = Facts(repeat_ratios=[1.0, 1.0], warmup_stable=False, notes=["a cell was left out"])
    validity = judge(facts=facts, environment=bare)
    assert verdict_of(validity, "provenance") == "warn"
    assert verdict_of(validity, "warmup") == "warn"
    assert "a cell was left out" in validity.reasons
