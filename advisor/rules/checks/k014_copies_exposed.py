"""Copies between host and device run while no kernel does."""

from __future__ import annotations

from functools import partial

from advisor.rules.checks._traces import NEEDS, SOURCE, check_code
from advisor.rules.rule import Rule

ID = "copies-exposed"

RULE = Rule(
    id=ID,
    code="k014",
    group="kernels",
    title="Copies hide behind compute",
    failing_title="Hide or avoid copies",
    why="A copy that overlaps with compute is free; one that does not is lost time, twice so from "
    "pageable memory.",
    how_measured="Copy time over the host link with no kernel running, and staging, as a share of "
    "the window.",
    threshold="Fails above 5 % of the window.",
    source=SOURCE,
    when_not="Loading of weights before the first step.",
    needs=NEEDS,
    knobs=(),
    check=partial(check_code, ID, "transfer", "Copies hide behind compute"),
)
