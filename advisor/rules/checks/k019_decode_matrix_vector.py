"""Matrix-vector products of single tokens take a large share of GPU time."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "decode-matrix-vector"

RULE = Rule(
    id=ID,
    code="k019",
    group="kernels",
    title="Decode is more than matrix-vector products",
    failing_title="Batch more, or make weights smaller",
    why="Each such product reads a whole weight matrix for one token. Nothing but fewer bytes or "
    "more tokens helps.",
    how_measured="Kernels of matrix-vector products, as a share of GPU time.",
    threshold="Fails above 20 % of GPU time.",
    source=SOURCE,
    when_not="A single user with a latency target has no second token to batch.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "matrix_vector", "Decode is more than matrix-vector products"),
)
