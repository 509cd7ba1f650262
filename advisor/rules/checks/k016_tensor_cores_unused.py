"""Matrix products run without tensor cores."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "tensor-cores-unused"

RULE = Rule(
    id=ID,
    code="k016",
    group="kernels",
    title="Matrix products use tensor cores",
    failing_title="Use tensor cores",
    why="Tensor cores multiply at a multiple of the plain rate, but only in 16 bit or less, or in "
    "TF32.",
    how_measured="Kernel names that decide it, by their share of the time of matrix products.",
    threshold="Fails when more than 10 % of the decided matrix time runs without them and "
    "products matter (10 % of GPU time).",
    source=SOURCE,
    when_not="Decode at batch 1 is bound by reading weights: tensor cores do not show there.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "tensor_cores", "Matrix products use tensor cores"),
)
