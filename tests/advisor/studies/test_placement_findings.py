"""Studies on eight GPUs, through intake, rows and rules: what is found before and after a trial."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.accounts.models import GpuPrice, Org
from advisor.errors import InvalidInput
from advisor.fleet.models import Agent
from advisor.rules.rule import Finding, Verdict
from advisor.studies.advance import study_evaluate
from advisor.studies.exporting import study_export
from advisor.studies.models import Study
from advisor.studies.selectors import findings_of
from advisor.studies.services import study_create
from gpuagent.wire import EngineSettings, GpuInfo, InventoryModel, LengthSpec, LocalModel, SlaTarget
from tests.builders import make_study_spec, make_trial, make_workload
from tests.factories import create_agent, create_trial, make_hello
from tests.rule_checks import GIB, LLAMA_8B, QWEN3_30B_FP8, make_busy
from tests.served_builders import make_boundary

pytestmark = pytest.mark.django_db
LLAMA = {
    **LLAMA_8B,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}
RATE = SlaTarget(metric="output_tok_s", statistic="mean", limit=1e6)
DAY = (4.0, 20.0, 40.0, 20.0)


def eight_gpus(org: Org, name: str = "NVIDIA H100 80GB HBM3", memory_gib: int = 80) -> Agent:
    gpus = tuple(
        GpuInfo(index=i, uuid=f"GPU-{i}", name=name, memory_bytes=memory_gib * GIB)
        for i in range(8)
    )
    models = tuple(
        InventoryModel(name=each, config=config, weights="safetensors", weight_bytes=1)
        for each, config in (("dense", LLAMA), ("experts", QWEN3_30B_FP8))
    )
    hello = make_hello(engines=("transformers", "vllm"), models=models, gpus=gpus)
    return create_agent(org, hello=hello)


def start(org: Org, agent: Agent, model: str, **current: Any) -> Study:
    spec = make_study_spec(
        agent=agent.slug,
        engine="vllm",
        model=LocalModel(name=model),
        current=EngineSettings(**current),
        targets=(RATE,),
        day_req_s=DAY,
        workload=make_workload(
            input_tokens=LengthSpec(mean=1024), output_tokens=LengthSpec(mean=256)
        ),
    )
    return study_create(org=org, user=None, spec=spec, actor="test")


def found(study: Study) -> dict[str, Finding]:
    study_evaluate(study)
    return {finding.rule_id: finding for finding in findings_of(study)}


def measured(study: Study, in_flight: int) -> None:
    """The first trial ends with so many requests in flight and a highest rate of 5 req/s."""
    study.trials.all().delete()
    result = make_busy(in_flight).model_copy(update={"boundary": make_boundary(5.0)})
    create_trial(study, make_trial(result, settings=study.spec.current))


def test_experts_that_cannot_be_sliced_are_told_before_the_first_trial(org: Org) -> None:
    study = start(org, eight_gpus(org), "experts", tensor_parallel=8)
    first = found(study)["expert-slices-misaligned"]
    assert first.verdict is Verdict.FAIL
    assert first.change is not None
    assert first.change.settings == {"expert_parallel": True}
    assert "config" in first.evidence[0].text


def test_a_trial_under_load_brings_copies_the_day_and_spot_capacity(org: Org) -> None:
    GpuPrice.objects.create(org=org, gpu="H100 SXM", usd_per_gpu_hour=8.0)
    study = start(org, eight_gpus(org), "dense", tensor_parallel=8)
    before = found(study)
    for rule_id in ("split-beyond-need", "fleet-sized-for-peak", "spot-price-unused"):
        assert before[rule_id].verdict is Verdict.NOT_APPLICABLE
    measured(study, 64)
    after = found(study)
    copies = after["split-beyond-need"]
    assert copies.verdict is Verdict.FAIL
    assert copies.change is not None
    assert set(copies.change.settings) == {"tensor_parallel", "data_parallel"}
    day = after["fleet-sized-for-peak"]
    assert day.verdict is Verdict.FAIL
    assert "the organisation's own price" in day.evidence[-1].text
    assert after["spot-price-unused"].verdict is Verdict.FAIL


def test_an_idle_pipeline_is_found_and_its_degrees_are_exported(org: Org) -> None:
    study = start(org, eight_gpus(org), "dense", pipeline_parallel=2)
    measured(study, 1)
    finding = found(study)["pipeline-starved"]
    assert finding.verdict is Verdict.FAIL
    assert finding.change is not None
    assert finding.change.settings == {"tensor_parallel": 2, "pipeline_parallel": 1}
    command = study_export(study, "vllm").content.decode()
    assert "--pipeline-parallel-size 2" in command
    manifest = study_export(study, "kubernetes", engine="sglang").content.decode()
    assert "--pp-size" in manifest
    assert "nvidia.com/gpu: 2" in manifest


def test_more_gpus_than_the_agent_has_are_refused_by_field(org: Org) -> None:
    with pytest.raises(InvalidInput) as refused:
        start(org, eight_gpus(org), "dense", tensor_parallel=4, data_parallel=4)
    assert refused.value.fields == {
        "current.tensor_parallel": [
            "These degrees take 16 GPUs, and the agent has 8. Lower one of them."
        ]
    }
