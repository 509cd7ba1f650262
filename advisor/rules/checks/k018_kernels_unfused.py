"""Chains of small memory-bound kernels could be one kernel each."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "kernels-unfused"

RULE = Rule(
    id=ID,
    code="k018",
    group="kernels",
    title="Small kernels are fused",
    failing_title="Fuse small kernels",
    why="Each small kernel reads and writes the whole activation, and is launched on its own.",
    how_measured="Repeating runs of mergeable kernels; what their launches and re-read memory "
    "cost.",
    threshold="Fails when merging saves 2 % of the window in launches alone; or 4 % at best, where "
    "small kernels take 40 % of the time of a busy GPU, or those below 10 µs 20 % of it.",
    source=SOURCE,
    when_not="Compiling takes up to a minute at each start and again for new shapes.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "fusion", "Small kernels are fused"),
)
