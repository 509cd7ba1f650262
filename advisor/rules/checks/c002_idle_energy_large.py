"""Most of the energy keeps the device on instead of computing tokens."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, hurts, not_applicable, plain
from advisor.thresholds import IDLE_ENERGY_MAX

ID = "idle-energy-large"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    total = found[1].joules_per_token if found is not None else None
    net = found[1].net_joules_per_token if found is not None else None
    if found is None or total is None or net is None or not total.value or net.value is None:
        reason = net.reason if net is not None and net.value is None else None
        missing = "A valid baseline on a device with an energy counter, and its idle power"
        return not_applicable(
            ID, "Energy is not split", f"{missing} ({reason})" if reason else missing
        )
    trial, result = found
    share = max(0.0, 1 - net.value / total.value)
    idle_w = result.idle_power_w.value
    item = EvidenceItem(
        text=f"{units.energy(total.value)} in all, {units.energy(net.value)} above idle power"
        + (f" ({units.number(idle_w)}{units.NBSP}W)" if idle_w is not None else "")
        + f": {units.percent(share)} keeps the device on (measured once)",
        value=share,
        unit="share",
        n=1,
        trial_id=trial.trial_id,
    )
    if share <= IDLE_ENERGY_MAX.value:
        title = f"Idle power is {units.percent(share)} of the energy"
        return plain(ID, Verdict.PASS, title, item)
    title = f"Idle power is {units.percent(share)} of the energy per token"
    targets = {target.metric for target in evidence.spec.targets}
    if "joules_per_token" not in targets or not hurts(evidence, "joules_per_token"):
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Fill the device: {title[:1].lower()}{title[1:]}",
            summary="Faster kernels cannot save what is drawn while nothing runs.",
            evidence=(item,),
            change=Change(
                text="Serve more requests at once, put several models on the device, or use a "
                "smaller one."
            ),
            confidence="medium",
            confidence_reason="counter and idle power were each read once",
        )
    ]


RULE = Rule(
    id=ID,
    code="c002",
    group="cost and energy",
    title="Energy goes into tokens",
    failing_title="Fill the device",
    why="A GPU draws a good part of its power doing nothing. Few tokens per second share that part "
    "among few.",
    how_measured="Energy counter over the measured window per token, with and without the power "
    "drawn before the window.",
    threshold=f"Fails above {IDLE_ENERGY_MAX.value:.0%} when an energy target is not met; told "
    "else.",
    source=IDLE_ENERGY_MAX.source,
    when_not="Devices that sleep between requests: the counter then shows the truth anyway.",
    needs=("a valid baseline with an energy counter",),
    knobs=(),
    check=check,
)
