"""Attention runs as two products with a softmax between them."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "attention-unfused"

RULE = Rule(
    id=ID,
    code="k017",
    group="kernels",
    title="Attention runs as one kernel",
    failing_title="Fuse attention",
    why="Written out, the scores of all pairs travel through memory three times.",
    how_measured="Softmax kernels between two matrix products, as a share of GPU time.",
    threshold="Fails above 10 % of GPU time.",
    source=SOURCE,
    when_not="Models whose attention no fused kernel supports.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "unfused_attention", "Attention runs as one kernel"),
)
