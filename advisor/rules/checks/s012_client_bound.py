"""Requests leave later than they were meant to: the client or its tokenizer is the limit."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import not_applicable, plain
from advisor.targets import trial_metrics
from gpuagent.wire.trial import BaselineResult

ID = "client-bound"
CHECK = "send_lag"


def check(evidence: StudyEvidence) -> list[Finding]:
    if evidence.spec.engine == "simulated":
        missing = "A server that really runs"
        return not_applicable(ID, "A simulated engine has no client", missing)
    trial = evidence.current
    result = trial.measured(BaselineResult) if trial is not None else None
    metrics = trial_metrics(trial) if trial is not None else None
    if trial is None or trial.result is None or result is None or metrics is None:
        return not_applicable(ID, "The client was not watched", "A baseline at a request rate")
    if result.arrivals != "poisson":
        missing = "A request rate: a request that follows another has no time of its own"
        return not_applicable(ID, "The client was not watched", missing)
    line = next((c for c in trial.result.validity.checks if c.id == CHECK), None)
    if line is None or line.verdict == "not_checked" or metrics.succeeded == 0:
        why = line.message if line is not None else "an older agent did not check it"
        return plain(
            ID, Verdict.CANNOT_TELL, "Whether the client kept up is not known", summary=why
        )
    waited = float(metrics.queue_s.mean()) / float(metrics.ttft_s.mean())
    item = EvidenceItem(
        text=f"{line.message}; on average {units.percent(waited)} of the time to first token "
        "passed in the client",
        value=line.value,
        unit="× the allowed lag",
        n=metrics.succeeded,
        trial_id=trial.trial_id,
    )
    if line.verdict == "valid":
        return plain(ID, Verdict.PASS, "Requests left when they were meant to", item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title="Give the client more room: requests leave late",
            summary="Latency counts from the intended send, so what the client adds looks like a "
            "slow server; no setting of the engine helps.",
            evidence=(item,),
            change=Change(
                text="Run the client on its own host or with more processes, send token ids "
                "instead of text where tokenizing is the cost, or lower the rate."
            ),
            confidence="high" if line.verdict == "invalid" else "medium",
            confidence_reason="sends are timed by the client itself",
        )
    ]


RULE = Rule(
    id=ID,
    code="s012",
    group="scheduling",
    title="The client sends in time",
    failing_title="Give the client more room",
    why="A load that leaves late is another load. Its waiting is counted as the server's, and a "
    "faster engine changes nothing.",
    how_measured="Sent minus intended at the 99th percentile, and the client's mean share of the "
    "time to first token.",
    threshold="Fails when the 99th percentile is above half of what is allowed (the larger of "
    "10 ms and 1 % of the median time to first token); above all of it the trial is invalid, too.",
    source="open-loop practice, wrk2 (gpuagent/validity/limits.py)",
    when_not="Where latency is of no interest and the rate was reached anyway.",
    needs=("a baseline at a request rate",),
    knobs=(),
    check=check,
    sees_invalid=True,
)
