"""The experiments on a real CUDA device. Skipped with the reason where there is none.

Runs without Django and without the root conftest:
python -m pytest -c /dev/null --noconftest tests/gpu
Results go to $OUT as JSON, one file for each experiment. No time is asserted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from gpuagent.runner import run_trial  # noqa: E402
from gpuagent.telemetry.energy import open_meter  # noqa: E402
from gpuagent.telemetry.nvml import open_reader  # noqa: E402
from gpuagent.wire import (  # noqa: E402
    ConfigModel,
    EngineSettings,
    LengthSpec,
    TrialResult,
    TrialSpec,
    Workload,
)
from gpuagent.wire.inside import (  # noqa: E402
    AttentionConfig,
    BatchingConfig,
    CalibrateConfig,
    KernelsConfig,
    QuantisationConfig,
)
from gpuagent.wire.trial import BaselineConfig, KvCacheConfig  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

# A decoder of 1.2 B parameters, random weights: speed and memory are those of a real one.
ONE_B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}


def measured(config: Any, **settings: Any) -> Any:
    """The measurements of one trial of the 1.2 B model; the whole result is written to $OUT."""
    spec = TrialSpec(
        trial_id="00000000-0000-4000-8000-000000000001",
        model=ConfigModel(name="llama-1b", config=ONE_B),
        settings=EngineSettings(**{"dtype": "bfloat16", **settings}),
        workload=Workload(
            preset="chat",
            input_tokens=LengthSpec(mean=256),
            output_tokens=LengthSpec(mean=32),
            requests=10,
        ),
        config=config,
        timeout_s=240,
    )
    result: TrialResult = run_trial(
        spec, emit=lambda *a, **k: None, should_cancel=lambda: False, model_roots=[]
    )
    if folder := os.environ.get("OUT"):
        path = Path(folder) / f"{config.experiment}.json"
        path.write_text(result.model_dump_json(indent=1))
    return result.measurements


def test_every_ceiling_that_the_device_has_is_measured() -> None:
    found = measured(CalibrateConfig()).ceilings
    capability = torch.cuda.get_device_capability(0)
    expected = ["float32", "bfloat16", "float16"]
    expected += ["tf32"] if capability >= (8, 0) else []
    expected += ["float8"] if capability >= (8, 9) else []
    for variant in expected:
        assert found.rate("gemm", variant), (variant, found.entries)
    for kind in ("host_to_device", "device_to_host"):
        assert found.rate(kind, "pageable")
        assert found.rate(kind, "pinned")
    assert found.rate("read")
    assert found.rate("copy")
    assert found.rate("launch")
    if torch.cuda.device_count() < 2:
        assert found.rate("all_reduce") is None


def test_steps_run_eager_compiled_and_as_a_cuda_graph() -> None:
    result = measured(KernelsConfig(batch_sizes=(1, 16), dtypes=("bfloat16",)))
    by_form = {step.form: step for step in result.steps}
    assert by_form["eager"].seconds.n
    assert by_form["cuda_graph"].seconds.n, by_form["cuda_graph"].reason
    compiled = by_form["compiled"]
    assert compiled.seconds.n or compiled.reason
    assert {gemm.rows for gemm in result.gemms} == {1, 16, 128}


def test_attention_backends_are_exact_or_say_why_they_did_not_run() -> None:
    result = measured(AttentionConfig(context_tokens=(1024, 8192, 32_768), perplexity_tokens=0))
    ran = {v.name: v for v in result.variants if v.reason is None}
    assert {"sdpa", "sdpa math", "sdpa flash", "sdpa memory-efficient"} <= set(ran)
    for variant in ran.values():
        assert variant.error.value is not None
        assert variant.error.value <= 2 * variant.plain_error.value, variant.name
    for variant in result.variants:
        assert variant.points or variant.reason


def test_formats_run_or_say_why_not() -> None:
    result = measured(
        QuantisationConfig(
            methods=("bfloat16", "float16", "int8_weight_only", "int4_weight_only", "float8"),
            prompts=25,
            answer_tokens=4,
        )
    )
    assert result.variants[0].decode_step_s.n
    assert all(v.reason or v.decode_step_s.n for v in result.variants)


def test_batches_and_chunks_run() -> None:
    result = measured(BatchingConfig(batch_sizes=(1, 8, 64)))
    assert [p.batch for p in result.points] == [1, 8, 64]
    assert result.points[0].peak_memory_bytes.value
    assert all(chunk.seconds.n for chunk in result.chunks)


def test_the_cache_pays_and_is_released() -> None:
    result = measured(KvCacheConfig(context_tokens=(512, 2048)))
    assert result.points[1].cache_bytes > result.points[0].cache_bytes
    assert result.bytes_after_release.value is not None


def test_the_baseline_has_memory_and_energy_or_a_reason() -> None:
    result = measured(BaselineConfig(batch_sizes=(1, 8), input_tokens=(64, 256)))
    assert result.memory_kind == "cuda_reserved"
    assert result.read_bandwidth_bytes_s.value
    assert result.joules_per_token.value or result.joules_per_token.reason


def test_nvml_names_the_device_and_counts_its_energy() -> None:
    reader = open_reader()
    try:
        if not reader.gpus():
            pytest.skip("NVML does not answer on this machine")
        samples = reader.sample(frozenset({os.getpid()}))
        assert samples[0].memory_used_bytes
        meter = open_meter(reader)
        assert meter.read_j() is not None or meter.reason
    finally:
        reader.close()
