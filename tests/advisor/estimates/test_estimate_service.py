"""One estimate end to end: keys, honesty labels, monotone answers, speed."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.catalog import find_gpu
from advisor.estimates.features import Load, ServingPoint
from advisor.estimates.models import resolve_model, shape_key
from advisor.estimates.recalibrate import OwnMeasurement
from advisor.estimates.rows import RowError, read_parallelism
from advisor.estimates.service import ENGINES, EstimateRequest, estimate, estimate_at_rate
from advisor.shapes import ShapeError

KEYS = [
    "params_total",
    "params_active",
    "weight_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_token_growing",
    "state_bytes_per_seq",
    "attention",
    "fits",
    "kv_capacity_tokens",
    "max_concurrency",
    "ttft_s",
    "tpot_s",
    "throughput_tok_s",
    "usd_per_million_tokens",
    "basis",
    "in_domain",
    "notes",
]


def request(
    model: str = "Qwen/Qwen3-32B", gpu: str = "H100 SXM", **changes: Any
) -> EstimateRequest:
    base = EstimateRequest(
        resolve_model(model), find_gpu(gpu), tp=2, isl=1024, osl=512, concurrency=16
    )
    return replace(base, **changes)


def test_the_keys_are_the_promised_ones_in_order() -> None:
    result = estimate(request()).as_dict()
    assert list(result) == KEYS
    assert json.loads(json.dumps(result)) == result
    for name in ("ttft_s", "tpot_s", "throughput_tok_s", "usd_per_million_tokens"):
        interval = result[name]
        assert interval["low"] <= interval["value"] <= interval["high"]
        assert interval["low"] > 0


def test_a_measured_cell_is_calibrated_and_in_domain() -> None:
    result = estimate(request())
    assert (result.basis, result.in_domain, result.domain) == ("calibrated", True, "inside")


def test_token_counts_between_the_measured_ones_are_in_domain_and_said_so() -> None:
    result = estimate(request(isl=1500, osl=300))
    assert (result.in_domain, result.domain) == (True, "between")
    assert any("between measured token counts" in note for note in result.notes)


def test_lengths_far_outside_are_not_in_domain_and_have_a_wider_band() -> None:
    inside, outside = estimate(request()), estimate(request(isl=30_000, osl=9000))
    assert not outside.in_domain
    assert inside.ttft_s is not None
    assert outside.ttft_s is not None
    ratio = [r.ttft_s.high / r.ttft_s.low for r in (inside, outside) if r.ttft_s]
    assert ratio[1] > ratio[0]


@pytest.mark.parametrize(
    ("changes", "domain"),
    [
        ({"model": "microsoft/phi-4", "tp": 1}, "new_model"),
        ({"gpu": "A100", "tp": 2}, "new_hardware"),
    ],
)
def test_an_unmeasured_model_or_gpu_is_said_so(changes: dict[str, Any], domain: str) -> None:
    tp = changes.pop("tp")
    result = estimate(request(**changes, tp=tp))
    assert result.domain == domain
    assert not result.in_domain
    assert result.basis == "calibrated"
    assert any("no measurement" in note for note in result.notes)


def test_an_unmeasured_engine_and_a_cpu_fall_back_on_the_roofline() -> None:
    for changes in ({"engine": "transformers"}, {"gpu": "cpu", "tp": 1}):
        result = estimate(request(**changes))
        assert result.basis == "roofline"
        assert not result.in_domain
        assert result.tpot_s is not None
        step = result.roofline.decode(16, 1024 + 256)
        assert result.tpot_s.low >= step.bound_s


def test_what_does_not_fit_has_no_times_and_names_a_size_that_does() -> None:
    result = estimate(request("meta-llama/Llama-3.1-70B", tp=1))
    assert not result.fits
    assert result.ttft_s is None
    assert result.usd_per_million_tokens is None
    assert any("smallest tensor-parallel size" in note for note in result.notes)


def test_heads_that_do_not_divide_do_not_fit() -> None:
    result = estimate(request("Qwen/Qwen2.5-7B", tp=8))
    assert not result.fits
    assert any("sizes that work: 1, 2, 4" in note for note in result.notes)


def test_more_requests_in_flight_never_make_a_token_faster_by_much() -> None:
    times = [estimate(request(concurrency=c)).tpot_s for c in (4, 8, 16, 32, 64, 128, 256)]
    values = [t.value for t in times if t is not None]
    assert len(values) == 7
    assert all(b > 0.95 * a for a, b in itertools.pairwise(values))


def test_the_organisations_price_changes_the_cost_in_proportion() -> None:
    base = estimate(request(prices={"H100 SXM": 2.0})).usd_per_million_tokens
    double = estimate(request(prices={"H100 SXM": 4.0})).usd_per_million_tokens
    assert base is not None
    assert double is not None
    assert double.value == pytest.approx(2 * base.value)


def own_points(
    factor: float, *, gpu: str = "H100 SXM", engine: str = "vllm", model: str = "Qwen/Qwen3-32B"
) -> tuple[OwnMeasurement, ...]:
    """Own TPOT at four loads, `factor` times what is predicted."""
    found = []
    for concurrency in (8, 16, 32, 64):
        wanted = request(model, gpu, engine=engine, concurrency=concurrency)
        predicted = estimate(wanted)
        assert predicted.tpot_s is not None
        load = Load(wanted.isl, wanted.osl, concurrency)
        point = ServingPoint(predicted.roofline, engine, "", load, shape_key(predicted.shape))
        found.append(OwnMeasurement(point, None, factor * predicted.tpot_s.value))
    return tuple(found)


@pytest.mark.parametrize("changes", [{}, {"engine": "transformers"}])
def test_own_measurements_move_the_prediction_and_are_mentioned(changes: dict[str, Any]) -> None:
    plain = estimate(request(**changes))
    moved = estimate(request(**changes, own=own_points(1.5, **changes)))
    assert plain.tpot_s is not None
    assert moved.tpot_s is not None
    assert moved.tpot_s.value == pytest.approx(1.5 * plain.tpot_s.value, rel=0.06)
    if plain.basis == "roofline":
        assert moved.tpot_s.high / moved.tpot_s.low < plain.tpot_s.high / plain.tpot_s.low
    assert moved.ttft_s == plain.ttft_s
    assert moved.basis == "calibrated"
    assert any("4 own measurements of this model" in note for note in moved.notes)
    assert not any("roofline alone" in note for note in moved.notes)


def test_own_measurements_of_the_same_model_count_before_others() -> None:
    both = own_points(1.5) + own_points(3.0, model="Qwen/Qwen3-8B")
    moved, plain = estimate(request(own=both)), estimate(request())
    other = estimate(request(own=own_points(1.5, model="Qwen/Qwen3-8B")))
    assert plain.tpot_s is not None
    assert moved.tpot_s is not None
    assert other.tpot_s is not None
    assert moved.tpot_s.value == pytest.approx(1.5 * plain.tpot_s.value, rel=0.06)
    assert other.tpot_s.value > 1.3 * plain.tpot_s.value
    assert any("of other models" in note for note in other.notes)


def test_own_measurements_on_another_gpu_or_engine_change_nothing() -> None:
    elsewhere = own_points(2.0, gpu="H200 SXM") + own_points(2.0, engine="sglang")
    assert estimate(request(own=elsewhere)) == estimate(request())


def test_a_rate_above_capacity_has_no_answer_and_below_it_settles() -> None:
    assert estimate_at_rate(request(), 10_000) is None
    settled = estimate_at_rate(request(), 1.0)
    assert settled is not None
    result, concurrency = settled
    assert result.throughput_tok_s is not None
    assert result.throughput_tok_s.value / 512 >= 1.0
    assert 1 < concurrency < 64


def test_queueing_for_memory_is_said() -> None:
    result = estimate(request("Qwen/Qwen3-32B", tp=1, concurrency=200, isl=4000))
    assert result.fits
    assert any("requests fit in memory at once" in note for note in result.notes)


def test_formats_and_cache_types_follow_the_request() -> None:
    fp8 = estimate(request(quant="fp8", kv_dtype="fp8")).as_dict()
    bf16 = estimate(request()).as_dict()
    assert fp8["weight_bytes"] < 0.6 * bf16["weight_bytes"]
    assert 2 * fp8["kv_bytes_per_token"] == bf16["kv_bytes_per_token"]
    published = estimate(request("openai/gpt-oss-120b", dtype="bf16", tp=1)).as_dict()
    assert published["weight_bytes"] < 70e9
    unpacked = estimate(request("openai/gpt-oss-120b", quant="none", tp=1)).as_dict()
    assert unpacked["weight_bytes"] > 230e9


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tp": 0}, "tp"),
        ({"pp": -1}, "pp"),
        ({"pp": 65}, "pp"),
        ({"isl": 0}, "isl"),
        ({"osl": 10**9}, "osl"),
        ({"concurrency": 0}, "concurrency"),
        ({"context": -5}, "context"),
        ({"memory_fraction": 1.5}, "memory_fraction"),
        ({"engine": "mystery"}, "engine"),
        ({"kv_dtype": "fp3"}, "kv_dtype"),
        ({"dtype": "fp3"}, "dtype"),
        ({"quant": "magic"}, "quant"),
    ],
)
def test_bad_numbers_and_names_are_refused_with_the_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises((RowError, ShapeError)) as caught:
        estimate(request(**changes))
    assert caught.value.field == field


@settings(max_examples=60, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=st.sampled_from(["Qwen/Qwen3-0.6B", "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-20b"]),
    gpu=st.sampled_from(["H100 SXM", "L4", "B200", "MI300X", "cpu", "T4"]),
    engine=st.sampled_from(ENGINES),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    isl=st.integers(1, 1 << 24),
    osl=st.integers(1, 1 << 24),
    concurrency=st.integers(1, 1 << 20),
)
def test_every_answer_is_finite_and_ordered(
    model: str, gpu: str, engine: str, tp: int, isl: int, osl: int, concurrency: int
) -> None:
    result = estimate(
        EstimateRequest(
            resolve_model(model),
            find_gpu(gpu),
            engine=engine,
            tp=tp,
            isl=isl,
            osl=osl,
            concurrency=concurrency,
        )
    )
    for interval in (result.ttft_s, result.tpot_s, result.throughput_tok_s):
        if interval is not None:
            assert 0 < interval.low <= interval.value <= interval.high
            assert math.isfinite(interval.high)


@pytest.mark.parametrize(
    ("row", "gpus", "concurrency"),
    [
        ({"tp_size": "4", "batch_size": "8"}, 4, 8),
        ({"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8", "batch_size": "16"}, 8, 16),
        ({"tp_size": "64", "batch_size": "16"}, 8, 16),
        ({"tp_size": "8", "moe_tp_size": "1", "moe_ep_size": "8", "batch_size": "4"}, 8, 4),
        (
            {
                "tp_size": "1",
                "attention_dp_size": "64",
                "moe_tp_size": "8",
                "moe_ep_size": "8",
                "batch_size": "2",
            },
            8,
            128,
        ),
    ],
)
def test_published_parallel_columns_are_read_as_the_machine_they_mean(
    row: dict[str, str], gpus: int, concurrency: int
) -> None:
    plan = read_parallelism(row, gpus_per_node=8)
    assert (plan.gpus, plan.concurrency) == (gpus, concurrency)
