"""What people who size and tune LLM inference were told wrongly, and what the rules say instead.

Each case names the public thread that it is from. Configs hold the keys that the case is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from advisor.evidence import StudyEvidence
from advisor.rules.engine import evaluate
from advisor.rules.rule import Verdict
from advisor.rules.support import predict
from gpuagent.wire import EngineSettings, LengthSpec
from gpuagent.wire.measure import Validity, ValidityCheck
from tests.builders import (
    make_baseline_result,
    make_cell,
    make_current,
    make_environment,
    make_evidence,
    make_loaded,
    make_request,
    make_requests,
    make_robustness,
    make_served,
    make_shape,
    make_study_spec,
    make_trial,
    make_variant,
    make_workload,
)
from tests.rule_checks import (
    DEEPSEEK_V3,
    GIB,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B_FP8,
    TIGHT_ITL,
    TIGHT_RATE,
    TIGHT_TTFT,
    on_gpu,
    text_of,
)

GPT_OSS_120B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
    "vocab_size": 201088,
    "tie_word_embeddings": False,
}
QWEN_7B: dict[str, Any] = {
    **LLAMA_8B,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}
COMMAND_R: dict[str, Any] = {
    **LLAMA_70B,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
}
PHI_4: dict[str, Any] = {
    **LLAMA_8B,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 10,
}
SCOUT: dict[str, Any] = {**LLAMA_8B, "max_position_embeddings": 10_485_760}


@dataclass(frozen=True, slots=True)
class Case:
    """What a person had (`given`), the rule that must speak, its verdict and words it must use."""

    name: str
    source: str
    given: Callable[[], StudyEvidence]
    rule_id: str
    verdict: Verdict
    says: tuple[str, ...]
    never: tuple[str, ...] = ()


def sized(config: dict[str, Any], *, tokens: int = 1000, **device: Any) -> StudyEvidence:
    """A model and a GPU, nothing measured."""
    spec = make_study_spec(
        current=EngineSettings(),
        workload=make_workload(input_tokens=LengthSpec(mean=tokens)),
    )
    return make_evidence(spec=spec, shape=make_shape(**config), **on_gpu(**device))


def served(
    *trials: Any, rate: float | None = None, targets: Any = (), **fields: Any
) -> StudyEvidence:
    workload = make_workload(request_rate_per_s=rate)
    return make_evidence(
        *trials, spec=make_study_spec(targets=targets, workload=workload), **fields
    )


def power_capped(target: Any) -> StudyEvidence:
    environment = make_environment("cuda:0")
    gpu = environment.gpus[0].model_copy(update={"power_limit_w": 330.0})
    line = ValidityCheck(
        id="gpu_power_capped",
        verdict="warn",
        message="The power limit held the GPU back in 60 % of the samples",
        value=0.6,
    )
    trial = make_trial(
        make_baseline_result(),
        environment=environment.model_copy(update={"gpus": (gpu,)}),
        validity=Validity(checks=(line,)),
    )
    return served(trial, targets=(target,), **on_gpu())


def warming_up() -> StudyEvidence:
    first = make_request(ttft_s=0.6, gaps_s=[0.12] * 15)
    later = (make_request(10.0 + i, ttft_s=0.15, gaps_s=[0.03] * 15) for i in range(20))
    return served(make_current(requests=(first, *later)))


def counting(what: str, client: int, server: int) -> StudyEvidence:
    count = {"what": what, "client": client, "server": server}
    return served(make_trial(make_served(counts=[count])))


def misused(**lines: Any) -> StudyEvidence:
    spec = make_study_spec(engine="vllm", current=EngineSettings())
    test = make_trial(make_robustness(seen={}, **lines), ordinal=2, role="diagnosis")
    return make_evidence(make_current(), test, spec=spec)


def answering_short() -> StudyEvidence:
    requests = make_requests(40, input_tokens=1024, output_tokens=92)
    workload = make_workload(
        input_tokens=LengthSpec(mean=1024), output_tokens=LengthSpec(mean=102), requests=40
    )
    trial = make_trial(make_baseline_result(requests=requests), workload=workload)
    return make_evidence(trial)


CASES = (
    Case(
        "grouped heads ignored, so that a model that fits was said not to",
        "jranaraki/vllm-fit issue 2",
        lambda: sized({**LLAMA_8B, "num_attention_heads": 64, "num_key_value_heads": 8}),
        "model-exceeds-memory",
        Verdict.PASS,
        ("fits",),
    ),
    Case(
        "an engine reserves the windows in full",
        "alvarobartt/hf-mem issue 60",
        lambda: sized(GPT_OSS_120B, tokens=60_000),
        "window-not-freed",
        Verdict.INFORMATIVE,
        ("72.0 KiB per token", "36.0 KiB"),  # 73,728 and 36,864 bytes
    ),
    Case(
        "4-bit weights counted as 16-bit ones",
        "AlexsJones/llmfit issue 1045",
        lambda: sized(
            {**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4}},
            memory_bytes=12 * GIB,
            name="NVIDIA L4",
        ),
        "model-exceeds-memory",
        Verdict.PASS,
        ("fits",),
    ),
    Case(
        "28 heads on 8 GPUs",
        "vLLM issue 11797",
        lambda: sized(QWEN_7B, count=8),
        "tensor-parallel-heads",
        Verdict.INFORMATIVE,
        ("size 1, 2 or 4", "sizes that work: 1, 2, 4, 28"),
    ),
    Case(
        "10 K/V heads on 8 GPUs",
        "vLLM issue 414 and the config of phi-4",
        lambda: sized(PHI_4, count=8),
        "tensor-parallel-heads",
        Verdict.INFORMATIVE,
        ("2, 5, 10",),
    ),
    Case(
        "a latent cache expected to shrink with more GPUs",
        "tenstorrent/tt-xla pull request 5849",
        lambda: sized(DEEPSEEK_V3, count=8, name="NVIDIA B200", memory_bytes=180 * GIB),
        "latent-cache-replicated",
        Verdict.INFORMATIVE,
        ("68.6 KiB on each of 8", "68.6 KiB on one", "attention data parallel"),
    ),
    Case(
        "experts of 768 columns in FP8 blocks over four GPUs",
        "vLLM issues 25292 and 17569, QwenLM/Qwen3 issue 1485",
        lambda: make_evidence(
            spec=make_study_spec(engine="vllm", current=EngineSettings(tensor_parallel=4)),
            shape=make_shape(**QWEN3_30B_FP8),
            **on_gpu(count=4),
        ),
        "expert-slices-misaligned",
        Verdict.FAIL,
        ("768 columns of an expert over 4 GPUs are 192 each", "--enable-expert-parallel", "1, 2."),
    ),
    Case(
        "28 heads on 8 GPUs, too large for one of them",
        "vLLM issue 11797",
        lambda: sized(QWEN_7B, count=8, name="NVIDIA L4", memory_bytes=12 * GIB),
        "model-needs-splitting",
        Verdict.FAIL,
        ("Split the model over 2 GPUs",),
        ("size 8",),
    ),
    Case(
        "a maximum length above the tokens that fit",
        "vLLM issue 2418",
        lambda: sized(SCOUT, tokens=900_000, name="NVIDIA L4", memory_bytes=24 * GIB),
        "context-exceeds-memory",
        Verdict.FAIL,
        ("Set the longest context to", "fewer bits", "more GPUs"),
    ),
    Case(
        "a server that does not start with a limit of ten million tokens",
        "vLLM issues 2418 and 10517",
        lambda: make_evidence(
            spec=make_study_spec(
                engine="vllm",
                current=EngineSettings(),
                workload=make_workload(input_tokens=LengthSpec(mean=3000)),
            ),
            shape=make_shape(**SCOUT),
            **on_gpu(),
        ),
        "context-beyond-need",
        Verdict.FAIL,
        ("Limit requests to 4,096 tokens", "an engine does not start"),
    ),
    Case(
        "a limit of ten million tokens that nobody asked for",
        "vLLM issue 10517",
        lambda: sized(SCOUT, tokens=3000),
        "context-exceeds-memory",
        Verdict.INFORMATIVE,
        ("4,096 tokens",),
    ),
    Case(
        "graphs and activations not in the budget",
        "vLLM issues 27951 and 17549",
        lambda: sized(LLAMA_8B),
        "model-exceeds-memory",
        Verdict.PASS,
        ("weights", "KV cache", "activation peak", "runtime overhead"),
    ),
    Case(
        "a cache for hundreds of times the concurrency that can arrive",
        "vllm-omni pull request 4279",
        lambda: served(make_current(), rate=1.0, **on_gpu()),
        "kv-cache-idle",
        Verdict.INFORMATIVE,
        ("The cache is idle", "smaller GPU"),
    ),
    Case(
        "a cache of 1.25 MiB per token that looks broken and is right",
        "discussion 6 of c4ai-command-r-v01-iMat.GGUF",
        lambda: sized(COMMAND_R),
        "kv-heads-ungrouped",
        Verdict.INFORMATIVE,
        ("1.25 MiB per token", "8.0 times", "It is right as it is"),
        ("not fit", "fault"),
    ),
    Case(
        "a cap of output tokens taken for a promise",
        "TensorRT-LLM pull request 17249",
        answering_short,
        "lengths-differ",
        Verdict.INFORMATIVE,
        ("92 tokens on average of 102", "9.8 % shorter"),
    ),
    Case(
        "warm-up inside the measured window",
        "vLLM pull request 26943",
        warming_up,
        "warm-up-in-window",
        Verdict.FAIL,
        ("Leave the first request out", "with it and 600 ms without"),
    ),
    Case(
        "a power cap that binds prefill",
        "flashinfer pull request 2899",
        lambda: power_capped(TIGHT_TTFT),
        "power-capped",
        Verdict.FAIL,
        ("Raise the power limit", "limit 330 W", "decode at small batches is bound by memory"),
    ),
    Case(
        "the same cap where only decode counts",
        "ashalliants/ninfer-3090 pull request 72",
        lambda: power_capped(TIGHT_ITL),
        "power-capped",
        Verdict.INFORMATIVE,
        ("keep the limit",),
        ("Raise the limit",),
    ),
    Case(
        "latency quoted for a rate above capacity",
        "ordinary queueing",
        lambda: served(make_current(), rate=4.0),
        "rate-above-capacity",
        Verdict.FAIL,
        ("Lower the rate below", "the queue grows as long as the load lasts"),
    ),
    Case(
        "attention forgotten at long context",
        "NVIDIA-NeMo/RL issue 1144",
        lambda: served(
            make_current(),
            targets=(TIGHT_TTFT,),
            shape=make_shape(**LLAMA_8B),
        ),
        "attention-dominates-prefill",
        Verdict.PASS,
        ("attention",),
    ),
    Case(
        "attention that outweighs the weights at 131,072 tokens",
        "NVIDIA-NeMo/RL issue 1144",
        lambda: sized(LLAMA_8B, tokens=131_072),
        "attention-dominates-prefill",
        Verdict.INFORMATIVE,
        ("Attention is 71 % of prefill",),
    ),
    Case(
        "one request at a time on a device that could share its steps",
        "the two figures of InferenceMAX: tokens per GPU beside tokens per user",
        lambda: served(
            make_current(cells=(make_cell(1), make_cell(16, decode_s=0.04))),
            targets=(TIGHT_RATE,),
        ),
        "batch-too-small",
        Verdict.FAIL,
        ("Serve requests together", "takes 1.3 times as long per token"),
    ),
    Case(
        "a narrow format on a processor that has no arithmetic for it",
        "own calibration of a processor with AVX-512",
        lambda: served(
            make_trial(
                make_baseline_result(loaded=make_loaded("float16")),
                settings=EngineSettings(dtype="float16"),
            ),
        ),
        "float16-on-cpu",
        Verdict.FAIL,
        ("Load the model in float32",),
    ),
    Case(
        "trials compared across an update of the engine",
        "reliability checklist: provenance of a number",
        lambda: served(
            make_current(),
            make_trial(
                make_baseline_result("float32"),
                ordinal=3,
                role="variant",
                settings=EngineSettings(dtype="float32"),
                environment=make_environment(versions={"torch": "2.14.0"}),
            ),
        ),
        "environment-differs",
        Verdict.FAIL,
        ("torch 2.13.0 and 2.14.0",),
    ),
    Case(
        "chunks counted as tokens",
        "vLLM pull request 50677",
        lambda: counting("output_tokens", 2_500, 10_000),
        "counts-disagree",
        Verdict.FAIL,
        ("counted 2,500 output tokens", "may carry several tokens"),
    ),
    Case(
        "text that is tokenized again and counts differently",
        "flexible-inference-bench pull request 66 and guidellm issue 37",
        lambda: counting("output_tokens", 251, 256),
        "counts-disagree",
        Verdict.FAIL,
        ("Take the server's usage as the count",),
    ),
    Case(
        "a health check that answers for an engine that does not",
        "vLLM issue 39863 and llama.cpp issue 13281",
        lambda: misused(still_serving={"verdict": "fail", "sentence": "completions hang"}),
        "health-check-lies",
        Verdict.FAIL,
        ("Probe the engine itself", "a completion of one token"),
    ),
    Case(
        "a faster format that answers worse",
        "reliability checklist: at least 99 % of the reference score",
        lambda: served(make_current(perplexity=18.0), make_variant("float16", perplexity=19.0)),
        "dtype-slower",
        Verdict.INFORMATIVE,
        ("not recommended", "perplexity"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_field_case_gets_the_right_advice(case: Case) -> None:
    findings = evaluate(case.given())
    found = [f for f in findings if f.rule_id == case.rule_id]
    assert [f.verdict for f in found] == [case.verdict], [f.title for f in found]
    text = text_of(found[0]).replace(" × ", " times ")
    for words in case.says:
        assert words in text, text
    for words in case.never:
        assert words not in text, text
    assert all(f.evidence and f.source for f in findings if f.verdict is Verdict.FAIL)


def test_the_advised_context_passes_our_own_fit() -> None:
    evidence = sized(SCOUT, tokens=900_000, name="NVIDIA L4", memory_bytes=24 * GIB)
    (finding,) = (f for f in evaluate(evidence) if f.rule_id == "context-exceeds-memory")
    assert finding.change is not None
    number = finding.change.text.split(" tokens")[0].rsplit(" ", 1)[1]
    plan = predict(evidence, context=int(number.replace(",", "")))
    assert plan is not None
    assert plan.fits


def test_an_fp8_cache_doubles_the_tokens_and_changes_nothing_else() -> None:
    # vLLM issue 25350: the advice on length ignored the format of the cache.
    evidence = sized(LLAMA_8B)
    plain, narrow = predict(evidence), predict(evidence, kv_dtype="fp8")
    assert plain is not None
    assert narrow is not None
    room = plain.memory.kv_capacity_tokens
    assert narrow.memory.kv_capacity_tokens == pytest.approx(2 * room, abs=32)
    assert narrow.memory.weights == plain.memory.weights
