"""Spot capacity would be cheaper, even with a spare replica and every start after a loss paid."""

from __future__ import annotations

from advisor import units
from advisor.catalog import PriceBasis, price_basis
from advisor.costs import gpu_price
from advisor.estimates.cost import replicas_for_rate
from advisor.evidence import StudyEvidence
from advisor.rules.checks._fleet import Served, served
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import device_spec, not_applicable, plain
from advisor.thresholds import REPLICA_HEADROOM, SPOT_BREAK_EVEN_MIN, SPOT_MIN_SAVING

ID = "spot-price-unused"


def check(evidence: StudyEvidence) -> list[Finding]:
    if evidence.spec.engine == "openai":
        missing = "A server that the agent starts: the GPU of an endpoint is not known"
        return not_applicable(ID, "Prices are not compared", missing)
    spec, now = device_spec(evidence), gpu_price(evidence)
    spot = price_basis(spec, market="spot") if spec is not None and now is not None else None
    if now is None or spot is None:
        missing = "A GPU whose price is known, on demand or your own, and as spot capacity"
        return not_applicable(ID, "Prices are not compared", missing)
    prices = EvidenceItem(
        text=f"An hour of the GPU costs {now.usd_per_gpu_hour:.2f} USD ({now.basis}), as spot "
        f"capacity {spot.usd_per_gpu_hour:.2f} USD, seen from {spot.low_usd:.2f} to "
        f"{spot.high_usd:.2f} ({spot.basis})",
        value=spot.usd_per_gpu_hour,
        low=spot.low_usd,
        high=spot.high_usd,
        unit="USD/h",
        n=spot.n,
    )
    found = served(evidence)
    if found is None:
        missing = "A valid trial on a server, whose start is what an interruption costs"
        return not_applicable(ID, "The cost of an interruption is not known", missing)
    if found.start_s is None:
        title = "What an interruption costs is not known: the start was not measured"
        return plain(ID, Verdict.CANNOT_TELL, title, prices, summary=found.start_reason or "")
    return _decided(evidence, found, found.start_s, (now, spot, prices))


def _decided(
    evidence: StudyEvidence,
    found: Served,
    start_s: float,
    known: tuple[PriceBasis, PriceBasis, EvidenceItem],
) -> list[Finding]:
    now, spot, prices = known
    copies, spare = _copies(evidence, found)
    more = (copies + spare) / copies
    saving = 1 - more * spot.usd_per_gpu_hour / now.usd_per_gpu_hour
    worst = 1 - more * spot.high_usd / now.usd_per_gpu_hour
    best = 1 - more * spot.low_usd / now.usd_per_gpu_hour
    lost_s = start_s + found.request_s
    # As much capacity is bought on top as is lost: cost grows by 1 / (1 - lost share of the time).
    even = max(0.0, saving) * 3600.0 / lost_s if lost_s > 0 else 0.0
    start = EvidenceItem(
        text=f"An interruption costs a start of {units.seconds(start_s)} (measured once) and "
        f"requests of {units.seconds(found.request_s)} in flight: the saving is gone at "
        f"{units.number(even)} interruptions of a replica per hour (computed)",
        value=even,
        unit="interruptions per hour",
        n=1,
        trial_id=found.trial.trial_id,
    )
    item = EvidenceItem(
        text=f"Replicas on demand: {copies}, on spot capacity: {copies + spare}"
        f"{', one of them spare' if spare else ''}; {units.percent(max(0.0, saving))} less before "
        "interruptions (predicted)",
        value=saving,
        low=worst,
        high=best,
        unit="share of the cost",
    )
    items = (prices, start, item)
    if saving <= SPOT_MIN_SAVING.value:
        title = "Spot capacity with its spare replica saves too little"
        return plain(ID, Verdict.PASS, title, *items)
    if even < SPOT_BREAK_EVEN_MIN.value:
        title = f"A start of {units.seconds(start_s)} is too long for spot capacity"
        return plain(ID, Verdict.PASS, title, *items)
    if spare and copies == 1:
        title = f"Two replicas on spot capacity cost {units.percent(saving)} less than one"
        return plain(
            ID,
            Verdict.INFORMATIVE,
            title,
            *items,
            summary="Both may be lost at once, and then nothing answers until a start ends.",
        )
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Try spot capacity: {units.percent(saving)} less before interruptions",
            summary="An interruption ends the requests in flight and takes the replica away until "
            "another has loaded the weights. Providers publish no rate of interruptions per hour: "
            "count them for a week.",
            evidence=items,
            change=Change(
                text=(
                    f"Run {copies + spare} replicas on spot capacity, one more than the load "
                    "needs, in more than one zone, and fall back to on-demand ones."
                    if spare
                    else "Run the batch on spot capacity and repeat the requests that an "
                    "interruption ends."
                )
                + " Keep the weights on a disk that outlives the machine."
            ),
            effect=Effect(
                metric="usd_per_hour",
                change_frac=-saving,
                low=-best,
                high=-max(0.0, worst),
                basis="modelled",
                better=True,
            ),
            confidence="medium" if worst > SPOT_MIN_SAVING.value else "low",
            confidence_reason="the saving holds at the highest spot price that was seen"
            if worst > SPOT_MIN_SAVING.value
            else "at the highest spot price that was seen too little of it is left",
        )
    ]


def _copies(evidence: StudyEvidence, found: Served) -> tuple[int, int]:
    """(replicas for the busiest rate that is known, spare ones): a batch can wait and needs none.

    Where no highest rate was measured, one replica is what the study is about.
    """
    workload = evidence.spec.workload
    spare = 0 if workload.preset == "batch" and workload.request_rate_per_s is None else 1
    rate = max(evidence.spec.day_req_s or (workload.request_rate_per_s or 0.0,))
    if not rate or not found.capacity_req_s:
        return 1, spare
    plan = replicas_for_rate(
        rate_req_s=rate, capacity_req_s=found.capacity_req_s, headroom=REPLICA_HEADROOM.value
    )
    return plan.replicas, spare


RULE = Rule(
    id=ID,
    code="c006",
    group="cost and energy",
    title="Spot capacity saves too little",
    failing_title="Try spot capacity",
    why="A serving replica holds nothing that cannot be loaded again, so an interruption costs a "
    "start and the requests in flight. Where the start is short, the lower price outweighs it.",
    how_measured="Price on demand, or your own, against spot prices seen on a date, with one spare "
    "replica; the measured start and the mean request give the interruptions per hour that eat the "
    "saving.",
    threshold=f"Fails when the spot fleet saves more than {SPOT_MIN_SAVING.value:.0%} and "
    f"{SPOT_BREAK_EVEN_MIN.value:g} interruption of a replica per hour would not eat it; told for "
    "a single replica that must answer; cannot tell without a measured start.",
    source=f"{SPOT_MIN_SAVING.source}. {SPOT_BREAK_EVEN_MIN.source}",
    when_not="Where a lost answer cannot be repeated, or one zone alone has the GPU.",
    needs=(
        "a GPU with an on-demand or own price and a spot price",
        "the measured start of a server",
    ),
    knobs=(),
    check=check,
)
