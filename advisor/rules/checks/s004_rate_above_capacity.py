"""Requests arrive faster than one engine that serves them one at a time can answer."""

from __future__ import annotations

import math

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, not_applicable, plain, service_time
from advisor.thresholds import LOAD_NEAR_CAPACITY

ID = "rate-above-capacity"


def check(evidence: StudyEvidence) -> list[Finding]:
    workload = evidence.spec.workload
    rate = workload.request_rate_per_s
    found = current_baseline(evidence)
    service = service_time(*found, workload) if found is not None else None
    if rate is None or found is None or service is None:
        missing = "A request rate and a valid baseline"
        return not_applicable(ID, "The load has no rate to compare with", missing)
    load = rate * service.value_s
    low = rate * service.low_s if service.low_s is not None else None
    high = rate * service.high_s if service.high_s is not None else None
    capacity = 1 / service.value_s
    item = EvidenceItem(
        text=f"One request keeps the engine busy for {units.seconds(service.value_s)} "
        f"({service.basis}, n = {service.n}): {units.number(capacity)} requests per second at "
        f"most, {units.number(rate)} arrive, load {units.percent(load)}",
        value=load,
        low=low,
        high=high,
        unit="share of capacity",
        n=service.n,
        trial_id=found[0].trial_id,
    )
    near = LOAD_NEAR_CAPACITY.value
    if load < near:
        return plain(ID, Verdict.PASS, f"The rate uses {units.percent(load)} of capacity", item)
    if (low if low is not None else load) < 1:
        title = f"The rate uses {units.percent(load)} of capacity: queues are long there"
        verdict = Verdict.INFORMATIVE if (high or load) < 1 else Verdict.CANNOT_TELL
        return plain(ID, verdict, title, item)
    replicas = math.ceil(load / near)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Lower the rate below {units.number(capacity)} requests per second: "
            f"{units.number(rate)} arrive",
            summary="Above capacity the queue grows as long as the load lasts, so no latency of "
            "such a run is a property of the system.",
            evidence=(item,),
            change=Change(
                text=f"Send at most {units.number(capacity * near)} requests per second to a "
                f"replica: this rate needs {replicas} of them, or an engine that batches."
            ),
            confidence="high" if low is not None else "medium",
            confidence_reason=f"measured ({service.basis}); this engine serves one at a time",
        )
    ]


RULE = Rule(
    id=ID,
    code="s004",
    group="scheduling",
    title="The rate stays below capacity",
    failing_title="Lower the rate below capacity",
    why="With arrivals that do not wait for answers, a rate above capacity has no steady state: "
    "latency depends on how long one looks.",
    how_measured="Time that one request alone keeps the engine busy, times the rate.",
    threshold=f"Fails from 100 % of capacity on, interval included; told above "
    f"{LOAD_NEAR_CAPACITY.value:.0%}.",
    source=LOAD_NEAR_CAPACITY.source,
    when_not="Engines that share steps between requests: their capacity is larger.",
    needs=("a request rate", "a valid baseline"),
    knobs=(),
    check=check,
)
