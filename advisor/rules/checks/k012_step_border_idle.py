"""The device is idle between steps while the scheduler or the data loader works."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "step-border-idle"

RULE = Rule(
    id=ID,
    code="k012",
    group="kernels",
    title="Steps follow each other without a gap",
    failing_title="Overlap the work between steps",
    why="Scheduling, sampling and streaming of one step can run while the next one computes.",
    how_measured="Idle time of the device at the borders of marked steps, as a share of the "
    "window.",
    threshold="Fails when the device is idle for more than 15 % and borders of steps explain 5 % "
    "of the window or more.",
    source=SOURCE,
    when_not="A load that leaves the engine without requests is idle by nature.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "step_border", "Steps follow each other without a gap"),
)
