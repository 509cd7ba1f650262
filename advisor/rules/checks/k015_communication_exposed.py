"""Collectives between devices run while no kernel computes."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "communication-exposed"

RULE = Rule(
    id=ID,
    code="k015",
    group="kernels",
    title="Communication hides behind compute",
    failing_title="Overlap or shrink communication",
    why="What devices spend talking is what splitting the model costs.",
    how_measured="Time of collectives with no compute running, as a share of the window; waiting "
    "for slow ranks is part of it.",
    threshold="Fails above 5 % of the window.",
    source=SOURCE,
    when_not="One slow rank: look for it first, it is not the link.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "communication", "Communication hides behind compute"),
)
