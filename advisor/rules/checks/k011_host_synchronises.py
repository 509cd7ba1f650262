"""The host waits for the device inside a step and launches late afterwards."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "host-synchronises"

RULE = Rule(
    id=ID,
    code="k011",
    group="kernels",
    title="The host does not wait for the device inside a step",
    failing_title="Remove synchronising calls",
    why="One .item() in a step empties the queue of launches, and it has to fill again.",
    how_measured="Idle time of the device after a synchronising call of the host, as a share of "
    "the window.",
    threshold="Fails when the device is idle for more than 15 % and waits of the host explain 2 % "
    "of the window or more.",
    source=SOURCE,
    when_not="The one wait per step that hands the token to the client is needed.",
    needs=NEEDS,
    knobs=(),
    check=partial(
        check_code, ID, "synchronisation", "The host does not wait for the device inside a step"
    ),
)
