"""At this prompt length attention is more arithmetic than all weights together."""

from __future__ import annotations

from advisor import units
from advisor.estimates.roofline import Placement, Roofline
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import device_spec, hurts, not_applicable, plain
from advisor.shapes import ModelShape
from advisor.thresholds import ATTENTION_MAX_SHARE

ID = "attention-dominates-prefill"


def check(evidence: StudyEvidence) -> list[Finding]:
    shape, spec = evidence.shape, device_spec(evidence)
    if shape is None or spec is None or not shape.attention_layers:
        missing = "A readable config of a model with attention, and a known device"
        return not_applicable(ID, "The arithmetic of prefill is not known", missing)
    tokens = evidence.spec.workload.input_tokens.mean
    attention, weights = prefill_flops(Roofline(shape, Placement(spec)), tokens)
    share = attention / (attention + weights)
    item = EvidenceItem(
        text=f"Prefill of {tokens:,} tokens: {attention:.3g} FLOP in attention, {weights:.3g} in "
        f"weights, so attention is {units.percent(share)} (causal half counted, exact)",
        value=share,
        unit="share",
    )
    if share <= ATTENTION_MAX_SHARE.value:
        title = f"Attention is {units.percent(share)} of the arithmetic of prefill"
        return plain(ID, Verdict.PASS, title, item)
    title = f"Attention is {units.percent(share)} of prefill at {tokens:,} tokens"
    if not hurts(evidence, "ttft_s", "e2e_s"):
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Shorten or share prompts: {title[:1].lower()}{title[1:]}",
            summary=f"{_crossing(shape, tokens, attention, weights)} Weights in fewer bits do not "
            "help this part.",
            evidence=(item,),
            change=Change(
                text="Reuse the cache of shared beginnings, cut the prompt, or choose a model "
                "with sliding-window or compressed attention."
            ),
            confidence="medium",
            confidence_reason="operations are exact; kernels reach different shares of the rate",
        )
    ]


def prefill_flops(roofline: Roofline, tokens: int) -> tuple[float, float]:
    """(attention, weights) in FLOP for one prompt; the head runs once."""
    attention = roofline.attention_flops(tokens, tokens / 2, decode=False)
    return attention, roofline.matmul_flops_per_token * tokens + roofline.head_flops


def _crossing(shape: ModelShape, tokens: int, attention: float, weights: float) -> str:
    """Where both are equal; only without windows does attention grow with the square."""
    if any(layer.window is not None for _, layer in shape.groups):
        return "Full layers grow with the square of the prompt."
    return f"Both are equal near {round(tokens * weights / attention, -2):,.0f} tokens."


RULE = Rule(
    id=ID,
    code="a004",
    group="attention",
    title="Weights, not attention, set the time of prefill",
    failing_title="Shorten or share prompts",
    why="The work on weights grows with the prompt, attention with its square. Beyond the point "
    "where they cross, everything that speeds up weights stops helping.",
    how_measured="Products of the config's layers: 2 × active weights per token, against 4 × heads "
    "× head size × tokens² / 2 per attention layer, windows respected.",
    threshold=f"Fails above {ATTENTION_MAX_SHARE.value:.0%} when a TTFT or end-to-end target is "
    "not met.",
    source=ATTENTION_MAX_SHARE.source,
    when_not="When most prompts share a beginning that a prefix cache already holds.",
    needs=("a readable config", "a known device"),
    knobs=(),
    check=check,
)
