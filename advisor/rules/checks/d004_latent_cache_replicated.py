"""A model with one latent cache keeps all of it on every GPU of a tensor-parallel group."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import mean_tokens, not_applicable, plain, predict

ID = "latent-cache-replicated"


def check(evidence: StudyEvidence) -> list[Finding]:
    device, shape = evidence.device, evidence.shape
    if device is None or device.kind != "gpu" or device.count < 2 or shape is None:
        missing = "A host with two GPUs or more and a readable config"
        return not_applicable(ID, "There are no GPUs to split a cache over", missing)
    if not shape.is_mla:
        return plain(ID, Verdict.PASS, f"The cache splits by heads ({shape.attention})")
    tokens, count = mean_tokens(evidence.spec.workload), device.count
    one = predict(evidence, context=tokens)
    split = predict(evidence, context=tokens, tp=count)
    shared = predict(evidence, context=tokens, tp=count, attention_dp=True)
    if one is None or split is None or shared is None:
        missing = "A GPU of the catalogue"
        return not_applicable(ID, "The cache of this GPU cannot be predicted", missing)
    item = EvidenceItem(
        text=f"A token takes {units.memory(split.memory.kv_needed_per_token)} on each of {count} "
        f"GPUs, and {units.memory(one.memory.kv_needed_per_token)} on one (exact)",
        value=split.memory.kv_needed_per_token,
        unit="B/token",
    )
    room = EvidenceItem(
        text=f"{count} GPUs hold {split.memory.kv_capacity_tokens:,} tokens with tensor parallel "
        f"attention and {shared.memory.kv_capacity_tokens:,} with attention data parallelism "
        "(predicted)",
        value=shared.memory.kv_capacity_tokens,
        unit="tokens",
    )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title="Tensor parallelism does not shrink this model's cache",
            evidence=(item, room),
            change=Change(
                text="Run attention data parallel and the experts or MLP tensor or expert "
                "parallel, when many sequences are to run at once."
            ),
            confidence="medium",
            confidence_reason="bytes are exact, the room predicted",
        )
    ]


RULE = Rule(
    id=ID,
    code="d004",
    group="parallelism",
    title="GPUs of a group share the cache",
    failing_title="Run attention data parallel",
    why="Latent attention caches one vector per token for all heads. There is nothing to divide by "
    "heads, so every GPU of the group holds the same copy.",
    how_measured="Bytes of the cache per token and GPU at one GPU and at all of them, and the "
    "tokens that fit both ways.",
    threshold="Told for every model with latent attention on several GPUs; never a failure.",
    source="tenstorrent/tt-xla pull request 5849; SGLang's attention data parallelism",
    when_not="Few long sequences: then latency, not room, is the limit.",
    needs=("a host with two GPUs or more", "a readable config"),
    knobs=(),
    check=check,
)
