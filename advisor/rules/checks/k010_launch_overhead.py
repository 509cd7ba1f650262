"""The device runs out of work because the host launches the next kernel too late."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "launch-overhead"

RULE = Rule(
    id=ID,
    code="k010",
    group="kernels",
    title="Kernels are launched in time",
    failing_title="Launch kernels in one go",
    why="Small kernels finish sooner than Python can launch the next ones. A faster GPU then "
    "changes nothing.",
    how_measured="Idle time of the device that ends with a late launch, as a share of the window.",
    threshold="Fails when the device is idle for more than 15 % and a quarter of that or more is "
    "a late launch.",
    source=SOURCE,
    when_not="Steps of ever new shapes cannot be captured; a larger batch hides part of it.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "launch_overhead", "Kernels are launched in time"),
)
