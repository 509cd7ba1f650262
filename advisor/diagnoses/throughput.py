""" "Throughput did not improve": the current settings against a changed trial, outside in.

First whether the two can be compared at all, then what limits them from outside (the load, the
client), then whether the change did what it was meant to, then what limits the engine instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.diagnoses.walk import (
    Diagnosis,
    Question,
    Step,
    checklist_step,
    concluded,
    from_rule,
    seen_from,
)
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.knobs import change_text, knob_text
from advisor.measures import decode_ratio, dtype_of, interval_text, times
from advisor.rules.checks import (
    k003_step_recoverable,
    k010_launch_overhead,
    k011_host_synchronises,
    k012_step_border_idle,
    k015_communication_exposed,
    k016_tensor_cores_unused,
    m012_kv_cache_starved,
)
from advisor.rules.engine import without_host
from advisor.rules.rule import EvidenceItem, Rule
from advisor.targets import trial_metrics
from advisor.thresholds import DEMAND_MET, UNVERIFIED_NOISE
from advisor.verification import verification_of
from gpuagent.request_metrics import RequestMetrics, Throughput, throughput
from gpuagent.wire.trial import BaselineResult

COMPLAINT = "Throughput did not improve"
CHANGED = "A trial of the changed settings"
BATCH_KNOBS = frozenset({"max_running", "max_batched_tokens", "chunked_prefill"})
FORMAT_KNOBS = frozenset({"dtype", "kv_dtype"})


@dataclass(frozen=True, slots=True)
class Pair:
    """Before and after, with their requests; None where one side is missing."""

    before: TrialEvidence
    after: TrialEvidence
    requests_before: RequestMetrics
    requests_after: RequestMetrics

    @property
    def knobs(self) -> frozenset[str]:
        return frozenset(self.before.settings.differences(self.after.settings))

    @property
    def rates(self) -> tuple[Throughput, Throughput]:
        return throughput(self.requests_before), throughput(self.requests_after)


def throughput_walk(evidence: StudyEvidence, trial: int | None = None) -> Diagnosis:
    """trial: number of the changed trial; by default the fastest other baseline.

    Raises KeyError where the study has no such trial with other settings and its own requests.
    """
    evidence = without_host(evidence)
    pair = _pair(evidence, trial)
    if pair is None:
        missing = Step(
            id="compared",
            question="Are there two trials to compare?",
            verdict="cannot_tell",
            answer="The current settings and a change of them have not both been measured",
            run=CHANGED,
        )
        return concluded("throughput", COMPLAINT, [missing])
    change = _change(evidence, pair)
    compared = (pair.before.ordinal, pair.after.ordinal)
    if change is not None:
        return Diagnosis(
            id="throughput",
            complaint=COMPLAINT,
            outcome="no_complaint",
            conclusion=f"Throughput did improve: {change.answer}.",
            fix=None,
            compared=compared,
            steps=(change,),
        )
    after = seen_from(evidence, pair.after)
    steps = [
        _valid(pair),
        _demand(evidence, pair),
        _client(pair),
        _batch(pair),
        _host(evidence),
        _tensor_cores(evidence),
        _kv_limit(after),
        _communication(evidence),
        _format(pair),
        _noise(evidence, pair),
    ]
    return concluded("throughput", COMPLAINT, steps, compared=compared)


def _pair(evidence: StudyEvidence, asked: int | None) -> Pair | None:
    before = evidence.current
    if before is None or before.measured(BaselineResult) is None:
        if asked is not None:
            raise KeyError("the current settings have no measured trial yet")
        return None
    others = [
        t
        for t in evidence.trials
        if t.measured(BaselineResult) is not None and t.settings != before.settings
    ]
    if asked is not None:
        others = [t for t in others if t.ordinal == asked]
        if not others:
            raise KeyError(f"trial {asked} measured no other settings than the current ones")
    first = trial_metrics(before)
    found = [(t, metrics) for t in others if (metrics := trial_metrics(t)) is not None]
    if first is None or not found:
        return None
    after, requests = max(found, key=lambda row: throughput(row[1]).value_tok_s or 0.0)
    return Pair(before, after, first, requests)


def _change(evidence: StudyEvidence, pair: Pair) -> Step | None:
    """The step that ends the walk where the change did help; None where the complaint stands."""
    if not (pair.before.usable and pair.after.usable):
        return None
    outcome = verification_of(evidence, pair.after.settings)
    proven = outcome.comparisons.get("output_tok_s") if outcome is not None else None
    if proven is not None and proven.verdict == "better":
        change = units.percent(proven.ratio - 1)
        text = f"{change} in the interleaved A/B ({proven.n_b} runs each)"
        return Step(id="change", question="Did it improve?", verdict="pass", answer=text)
    if proven is not None:
        return None
    before, after = pair.rates
    if before.high is None or after.low is None or after.value_tok_s is None:
        return None
    if after.low <= before.high * (1 + UNVERIFIED_NOISE.value):
        return None
    item = _rates_item(pair)
    return Step(
        id="change",
        question="Did it improve?",
        verdict="pass",
        answer=f"{item.text}, measured once each",
        evidence=(item,),
    )


def _rates_item(pair: Pair) -> EvidenceItem:
    before, after = pair.rates
    ratio = (
        after.value_tok_s / before.value_tok_s if before.value_tok_s and after.value_tok_s else None
    )
    return EvidenceItem(
        text=f"{units.metric('output_tok_s', before.value_tok_s)} in trial {pair.before.ordinal}, "
        f"{units.metric('output_tok_s', after.value_tok_s)} in trial {pair.after.ordinal}",
        value=ratio,
        unit="×",
        n=pair.requests_after.succeeded,
        trial_id=pair.after.trial_id,
    )


# --- outside of the engine ---------------------------------------------------------------------


def _valid(pair: Pair) -> Step:
    question = Question("valid", "Are both measurements valid?")
    bad = [t for t in (pair.before, pair.after) if not t.usable]
    item = _rates_item(pair)
    if not bad:
        return question.passed(
            item.text,
            item,
        )
    reasons = "; ".join(
        f"trial {t.ordinal}: {', '.join(t.result.validity.reasons)}" for t in bad if t.result
    )
    return question.failed(
        reasons,
        item,
        cause=f"The measurement is invalid: {reasons}",
        fix="Remove what disturbed it and measure both again.",
    )


def _demand(evidence: StudyEvidence, pair: Pair) -> Step:
    """At a fixed rate no engine gives more tokens than are asked for."""
    question = Question("demand", "Does the load ask for more than it gets?")
    rate = evidence.spec.workload.request_rate_per_s
    result = pair.after.measured(BaselineResult)
    if rate is None or result is None or result.arrivals != "poisson":
        return question.passed(
            "The load has no rate: the next request follows when one has ended",
        )
    metrics = pair.requests_after
    asked = _asked_tok_s(result, metrics)
    got = pair.rates[1].value_tok_s
    if got is None or asked is None:
        return question.untold(
            "Too few requests for a throughput",
            run="The same trial with more requests",
        )
    share = got / asked
    item = EvidenceItem(
        text=f"Arrivals at {units.number(rate)}{units.NBSP}req/s asked for "
        f"{units.metric('output_tok_s', asked)}; {units.metric('output_tok_s', got)} were served",
        value=share,
        unit="share of what is asked",
        n=metrics.succeeded,
        trial_id=pair.after.trial_id,
    )
    fails = share >= DEMAND_MET.value
    return question.judged(
        item.text,
        item,
        fails=fails,
        cause="The load asks for no more: throughput equals the request rate",
        fix="Raise the rate, or look for the highest rate that keeps the targets; at this rate "
        "only latency can improve.",
    )


def _asked_tok_s(result: BaselineResult, metrics: RequestMetrics) -> float | None:
    """Tokens a second of the arrivals as drawn: a sample's own rate is not its mean."""
    sent = [request.intended_s for request in result.requests]
    if len(sent) < 2 or max(sent) <= min(sent) or metrics.succeeded == 0:
        return None
    rate = (len(sent) - 1) / (max(sent) - min(sent))
    return rate * float(metrics.output_tokens.mean())


def _client(pair: Pair) -> Step:
    both = (pair.before, pair.after)
    question = Question("client", "Does the client send in time?")
    arrivals = {r.arrivals for t in both if (r := t.measured(BaselineResult)) is not None}
    if arrivals == {"closed_loop"}:
        return question.passed(
            "Requests follow each other, so none was due at a time of its own",
        )
    return checklist_step(
        question,
        both,
        ["send_lag"],
        cause="The client is the limit: it sends later than it meant to",
        fix="Give the client more processor time or more processes, or move it off the device's "
        "host.",
        run="The same trial from another host",
    )


# --- the change itself -------------------------------------------------------------------------


def _batch(pair: Pair) -> Step:
    question = Question("batch", "Did the batch really grow?")
    if not pair.knobs & BATCH_KNOBS:
        return question.passed(
            f"The change is not about the batch: "
            f"{change_text(pair.before.settings, pair.after.settings)}",
        )
    servers = [
        r.server for t in (pair.before, pair.after) if (r := t.measured(BaselineResult)) is not None
    ]
    if len(servers) < 2 or servers[0] is None or servers[1] is None:
        if not pair.requests_after.overlapping:
            return question.failed(
                "Requests were sent one after the other, so the batch is 1 under any limit",
                _rates_item(pair),
                cause="The batch never grew: requests are sent one at a time",
                fix="Send requests at a rate or with several in flight.",
            )
        return question.untold(
            "The engine did not say how many requests ran at once",
            run="A serving engine with its counters",
        )
    before, after = servers[0].running_peak, servers[1].running_peak
    item = EvidenceItem(
        text=f"At most {before:,} requests ran at once before, {after:,} after",
        value=float(after),
        unit="requests",
        n=1,
        trial_id=pair.after.trial_id,
    )
    wanted = pair.after.settings.max_running
    was = pair.before.settings.max_running
    raised = "max_running" in pair.knobs and (wanted is None or was is None or wanted > was)
    fails = raised and after <= before
    return question.judged(
        item.text,
        item,
        fails=fails,
        cause=f"The batch never grew: {after:,} requests ran at once although the limit went from "
        f"{knob_text(was)} to {knob_text(wanted)}",
        fix="The limit is not what binds: send more at once, or make room in the KV cache.",
    )


def _format(pair: Pair) -> Step:
    question = Question("format", "Does the format have a fast kernel here?")
    if not pair.knobs & FORMAT_KNOBS:
        answer = "The change is not about a format"
        return question.passed(
            answer,
        )
    ratio = decode_ratio(pair.before, pair.after)
    if ratio is None:
        return question.untold(
            "Decode steps of the two formats were not both timed",
            run="A quantisation trial: formats of the weights side by side",
        )
    names = f"{dtype_of(pair.before)} to {dtype_of(pair.after)}"
    item = EvidenceItem(
        text=f"From {names} a decode step takes {times(ratio.value)} as long"
        f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}",
        value=ratio.value,
        low=ratio.low,
        high=ratio.high,
        unit="×",
        n=ratio.n,
        trial_id=pair.after.trial_id,
    )
    fails = ratio.above(UNVERIFIED_NOISE.value)
    return question.judged(
        item.text,
        item,
        fails=fails,
        cause=f"The format falls back to a slow kernel: {names} makes a step slower",
        fix="Keep the faster format, or take one with kernels for this device.",
    )


# --- what limits instead -----------------------------------------------------------------------


def _host(evidence: StudyEvidence) -> Step:
    """The first of three host-bound rules that fails; else the first one's answer."""
    question = Question(
        "host", "Did the bound move to the host (late launches, waiting, gaps between steps)?"
    )
    rules: tuple[Rule, ...] = (
        k010_launch_overhead.RULE,
        k011_host_synchronises.RULE,
        k012_step_border_idle.RULE,
    )
    if _on_cpu(evidence):
        # Without a device of its own a trace has no idle time; forms of the step are compared.
        rules = (k003_step_recoverable.RULE,)
    steps = [from_rule(question, rule, evidence) for rule in rules]
    return next((step for step in steps if step.verdict == "fail"), steps[0])


def _on_cpu(evidence: StudyEvidence) -> bool:
    return evidence.device is not None and evidence.device.kind == "cpu"


def _tensor_cores(evidence: StudyEvidence) -> Step:
    question = Question("tensor_cores", "Do matrix products use tensor cores?")
    if _on_cpu(evidence):
        answer = "A processor has no tensor cores"
        return question.passed(
            answer,
        )
    return from_rule(question, k016_tensor_cores_unused.RULE, evidence)


def _kv_limit(after: StudyEvidence) -> Step:
    """after: seen from the changed trial."""
    question = Question("kv_limit", "Is there room in the KV cache, or are requests thrown out?")
    if after.spec.engine == "transformers":
        answer = "The engine in process reserves no cache that could run full"
        return question.passed(
            answer,
        )
    return from_rule(question, m012_kv_cache_starved.RULE, after)


def _communication(evidence: StudyEvidence) -> Step:
    question = Question("communication", "Do devices wait for each other?")
    if evidence.device is not None and evidence.device.count == 1:
        return question.passed(
            "There is one device, so nothing is exchanged",
        )
    return from_rule(question, k015_communication_exposed.RULE, evidence)


def _noise(evidence: StudyEvidence, pair: Pair) -> Step:
    """Last: a difference that is there and too small to be seen."""
    question = Question("noise", "Is the difference larger than the noise?")
    outcome = verification_of(evidence, pair.after.settings)
    proven = outcome.comparisons.get("output_tok_s") if outcome is not None else None
    if proven is not None:
        item = EvidenceItem(
            text=f"Interleaved A/B: {units.percent(proven.ratio - 1)} "
            f"({units.percent(proven.low - 1)} to {units.percent(proven.high - 1)}), noise "
            f"{units.percent(proven.noise_frac)}, {proven.n_b} runs each",
            value=proven.ratio,
            low=proven.low,
            high=proven.high,
            unit="×",
            n=proven.n_b,
            trial_id=outcome.trial.trial_id if outcome is not None else None,
        )
        lost = proven.verdict == "worse"
        return question.failed(
            item.text,
            item,
            cause="The change is a loss, proven by A/B"
            if lost
            else f"There is no difference to see: {proven.reason}",
            fix="Take the change back." if lost else "More pairs show a smaller difference.",
        )
    before, after = pair.rates
    item = _rates_item(pair)
    if item.value is None:
        return question.untold(
            after.reason or before.reason or "Too few requests for a throughput",
            run="The same trials with more requests",
        )
    worse = after.high is not None and before.low is not None and after.high < before.low
    if not worse or item.value >= 1 - UNVERIFIED_NOISE.value:
        text = (
            f"{item.text}: 95{units.NBSP}% intervals overlap, or differ by less than the "
            f"{units.percent(UNVERIFIED_NOISE.value)} by which trials differ anyway"
        )
        return question.untold(
            text,
            item,
            run="An interleaved A/B of the two configurations",
        )
    return question.failed(
        item.text,
        item,
        cause=f"The change is a loss: {item.text}, measured once each",
        fix="Take the change back, or prove it by an interleaved A/B.",
    )
