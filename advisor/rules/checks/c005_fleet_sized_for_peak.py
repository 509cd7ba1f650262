"""A fleet that stands all day as the busiest hour needs it; replicas could follow the load."""

from __future__ import annotations

from advisor import units
from advisor.costs import gpu_price
from advisor.estimates.cost import DayPlan, day_plan
from advisor.evidence import StudyEvidence
from advisor.rules.checks._fleet import Served, served
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain
from advisor.thresholds import AUTOSCALE_MIN_SAVING, REPLICA_HEADROOM
from gpuagent.wire.settings import SERVERS

ID = "fleet-sized-for-peak"


def check(evidence: StudyEvidence) -> list[Finding]:
    day, found = evidence.spec.day_req_s, served(evidence)
    title = "Replicas through a day are not known"
    if evidence.spec.engine not in SERVERS:
        missing = "A study of a server, with the request rates of a day"
        return not_applicable(ID, title, missing)
    if day is None:
        missing = "The request rates of a day: give them with the study (day_req_s)"
        return not_applicable(ID, title, missing)
    if found is None or not found.capacity_req_s or found.boundary is None:
        missing = "The highest rate of the current settings: choose it when submitting the study"
        if found is not None and evidence.spec.boundary and found.no_rate:
            missing = f"A highest rate of the current settings: none was found ({found.no_rate})"
        return not_applicable(ID, title, missing)
    rates = [rate for rate in (found.boundary.low, found.boundary.high) if rate]
    capacity = EvidenceItem(
        text=f"One replica keeps the targets up to {units.number(found.capacity_req_s)}"
        f"{units.NBSP}req/s",
        value=found.capacity_req_s,
        low=min(rates, default=None),
        high=max(rates, default=None),
        unit="req/s",
        n=sum(point.requests for point in found.boundary.points) or None,
        trial_id=found.trial.trial_id,
        chart="highest-rate",
    )
    if found.start_s is None:
        title = "How soon a replica could follow is not known: its start was not measured"
        return plain(ID, Verdict.CANNOT_TELL, title, capacity, summary=found.start_reason or "")
    plan = _plan(day, found.capacity_req_s, found.start_s)
    start = EvidenceItem(
        text=f"A replica answers {units.seconds(found.start_s)} after its start (measured once)",
        value=found.start_s,
        unit="s",
        n=1,
        trial_id=found.trial.trial_id,
    )
    least = min(plan.counts)
    saving = _saving(plan)
    item = EvidenceItem(
        text=f"The day that was given, from {units.number(min(day))} to "
        f"{units.number(max(day))}{units.NBSP}req/s, needs {least} to {plan.peak} replicas with "
        f"{units.percent(REPLICA_HEADROOM.value)} of each left free: "
        f"{units.number(plan.fixed_hours)} replica hours a day at a fixed size, "
        f"{units.number(plan.followed_hours(ahead=plan.ahead))} where they follow"
        f"{_usd(evidence, plan)} (predicted)",
        value=saving,
        unit="share of the replica hours",
        n=len(day),
        trial_id=found.trial.trial_id,
        chart="day-load",
    )
    items = (capacity, start, item)
    if plan.peak == least:
        title = f"The day needs the same replicas at every hour: {plan.peak}"
        return plain(ID, Verdict.PASS, title, *items)
    if found.start_s >= plan.slice_s:
        title = "A replica starts more slowly than the load of this day changes"
        return plain(ID, Verdict.INFORMATIVE, title, *items)
    if saving <= AUTOSCALE_MIN_SAVING.value:
        title = f"Following the day would save {units.percent(max(0.0, saving))} at most"
        return plain(ID, Verdict.PASS, title, *items)
    return [_finding(plan, saving, found, day, items)]


def _finding(
    plan: DayPlan,
    saving: float,
    found: Served,
    day: tuple[float, ...],
    items: tuple[EvidenceItem, ...],
) -> Finding:
    boundary, least = found.boundary, min(plan.counts)
    ends = [
        _saving(_plan(day, rate, found.start_s or 0.0))
        for rate in ((boundary.low, boundary.high) if boundary is not None else ())
        if rate
    ]
    early = (
        f" Keep {plan.ahead} more than the load needs: at the steepest rise so many are called "
        "for before a start ends."
        if plan.ahead
        else " The steepest rise stays within what is left free until a start ends."
    )
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Let replicas follow the day: {units.percent(saving)} of the hours of {plan.peak} "
        "all day are not needed",
        summary="Paid for are the hours that a replica stands, the start included. Rates of other "
        "days are not part of this.",
        evidence=items,
        change=Change(
            text=f"Scale between {least} and {plan.peak} replicas on requests in flight, with a "
            f"target of {units.percent(1 - REPLICA_HEADROOM.value)} of the measured rate each."
            f"{early}"
        ),
        effect=Effect(
            metric="replica_hours",
            change_frac=-saving,
            low=-max([saving, *ends]),
            high=-min([saving, *ends]),
            basis="modelled",
            better=True,
        ),
        confidence="medium",
        confidence_reason="rate and start are measured, the day is the one that was given",
    )


def _plan(day: tuple[float, ...], capacity_req_s: float, start_s: float) -> DayPlan:
    return day_plan(
        day, capacity_req_s=capacity_req_s, headroom=REPLICA_HEADROOM.value, start_s=start_s
    )


def _saving(plan: DayPlan) -> float:
    """Share of the fixed fleet's hours, the replicas that must be there early paid all day."""
    return 1 - plan.followed_hours(ahead=plan.ahead) / plan.fixed_hours


def _usd(evidence: StudyEvidence, plan: DayPlan) -> str:
    """The same in money, where the price of the GPU is known."""
    price = gpu_price(evidence)
    if price is None:
        return ""
    hour = price.usd_per_gpu_hour * evidence.spec.current.gpus
    fixed, followed = (
        units.number(hours * hour)
        for hours in (plan.fixed_hours, plan.followed_hours(ahead=plan.ahead))
    )
    return f", {fixed} and {followed} USD a day ({price.basis})"


RULE = Rule(
    id=ID,
    code="c005",
    group="cost and energy",
    title="The fleet follows the day",
    failing_title="Let replicas follow the day",
    why="A fleet that is sized for the busiest hour is paid for at night, too. How closely it can "
    "follow is decided by the time that a replica needs to be ready.",
    how_measured="Replicas for each rate of the day by the highest rate that was measured to keep "
    "the targets; hours of the peak's replicas all day against hours that follow, with every start "
    "paid and those replicas kept that a rise calls for before a start ends.",
    threshold=f"Fails when following saves more than {AUTOSCALE_MIN_SAVING.value:.0%} of the "
    "replica hours; without a measured start it cannot tell, and with one longer than a slice of "
    "the day it only tells.",
    source=AUTOSCALE_MIN_SAVING.source,
    when_not="Where hours are reserved and paid anyway, or nobody else can use the GPUs at night.",
    needs=(
        "the request rates of a day",
        "the highest rate of the current settings",
        "the measured start of a server",
    ),
    knobs=(),
    check=check,
)
