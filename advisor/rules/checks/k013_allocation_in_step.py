"""Steps ask the driver for memory, or load code, while the device waits."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "allocation-in-step"

RULE = Rule(
    id=ID,
    code="k013",
    group="kernels",
    title="Steps allocate no device memory",
    failing_title="Stop allocating inside the step",
    why="Allocation by the driver stops the device. After warm-up every block should come from "
    "the cache.",
    how_measured="Idle time of the device during allocation and module loading, as a share of the "
    "window.",
    threshold="Fails from 2 % of the window on.",
    source=SOURCE,
    when_not="A recording that includes the start of the process shows this always.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "allocation", "Steps allocate no device memory"),
)
