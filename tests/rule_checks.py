"""What the tests of the rules share: run one rule on evidence, read what it says."""

from __future__ import annotations

from functools import cache
from typing import Any

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.engine import evaluate
from advisor.rules.rule import Finding, Verdict
from gpuagent.wire import SlaTarget
from gpuagent.wire.trial import ServerCounters, ServeResult
from tests.builders import (
    make_baseline_result,
    make_device,
    make_evidence,
    make_request,
    make_served,
    make_study_spec,
    make_trial,
    make_validity,
    make_workload,
)

GIB = 1024**3
# Limits on either side of what `make_current` measures: TTFT 0.15 s, gap 0.06 s, 15 tokens/s.
TIGHT_TTFT = SlaTarget(metric="ttft_s", statistic="p50", limit=0.01)
LOOSE_TTFT = SlaTarget(metric="ttft_s", statistic="p50", limit=60)
TIGHT_ITL = SlaTarget(metric="itl_s", statistic="p50", limit=0.001)
LOOSE_ITL = SlaTarget(metric="itl_s", statistic="p50", limit=60)
TIGHT_RATE = SlaTarget(metric="output_tok_s", statistic="mean", limit=1000)
LOOSE_RATE = SlaTarget(metric="output_tok_s", statistic="mean", limit=1)

LLAMA_70B: dict[str, Any] = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
LLAMA_8B: dict[str, Any] = {
    **LLAMA_70B,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
QWEN3_30B_FP8 = {**QWEN3_30B, "quantization_config": FP8_BLOCKS}


def one(module: Any, *trials: TrialEvidence, **fields: Any) -> Finding:
    """The single finding of the rule in `module` on evidence of `trials` and `fields`."""
    (finding,) = module.check(make_evidence(*trials, **fields))
    assert isinstance(finding, Finding)
    return finding


def text_of(finding: Finding) -> str:
    """Everything that a finding says, with plain spaces."""
    words = [finding.title, finding.summary, *(item.text for item in finding.evidence)]
    if finding.change is not None:
        words.append(finding.change.text)
    return " ".join(words).replace("\u00a0", " ")


def through_engine(rule_id: str, evidence: StudyEvidence) -> Finding:
    """The single finding of one rule, as a study shows it."""
    (finding,) = (f for f in evaluate(evidence) if f.rule_id == rule_id)
    return finding


def on_gpu(**device: Any) -> dict[str, Any]:
    return {"device": make_device("gpu", **device)}


def aiming_at(*targets: SlaTarget, **workload: Any) -> dict[str, Any]:
    """A study with these targets, and with other lengths or a rate where given."""
    return {"spec": make_study_spec(targets=targets, workload=make_workload(**workload))}


def invalid(**result: Any) -> TrialEvidence:
    """`make_current`, disturbed so much that nothing may rest on it."""
    return make_trial(make_baseline_result(**result), validity=make_validity("invalid"))


def assert_says_what_is_missing(finding: Finding) -> None:
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert finding.missing
    assert finding.change is None


def make_counters(**overrides: Any) -> ServerCounters:
    """A server under a moderate load."""
    fields: dict[str, Any] = {
        "steps": 1000,
        "preemptions": 0,
        "running_peak": 8,
        "kv_peak_frac": 0.4,
        "full_frac": 0.0,
        "starved_frac": 0.0,
        "eager_frac": 0.0,
        "mixed_frac": 0.2,
    }
    return ServerCounters(**{**fields, **overrides})


@cache
def make_busy(in_flight: int, **served: Any) -> ServeResult:
    """A server with so many requests in flight on average: TTFT 200 ms, gaps of 20 ms."""
    lasts_s = 0.2 + 0.02 * 15
    requests = [
        make_request(i * lasts_s / in_flight, ttft_s=0.2, gaps_s=[0.02] * 15)
        for i in range(in_flight * 20)
    ]
    return make_served(
        make_baseline_result(requests=requests, arrivals="poisson", cells=()), **served
    )
