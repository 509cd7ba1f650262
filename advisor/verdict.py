"""The verdict of a study: one sentence with the number that decides, and what to set.

Pure: evidence and findings in, words and settings out. The voice is that of the whole product:
verdict first, the number with its unit, what is not known said as such. A cancelled study has no
verdict, never a missed target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from advisor import units
from advisor.candidates import Candidate, best_of, candidates, recommended_settings
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.knobs import knob_inside
from advisor.measures import answer_ratio, decode_ratio, times
from advisor.rules.rule import Finding, Verdict
from advisor.targets import (
    TargetStatus,
    in_flight,
    limit_text,
    measured_at_rate,
    target_label,
    target_name,
    target_statuses,
    trial_metrics,
)
from advisor.thresholds import UNVERIFIED_NOISE
from advisor.verification import VerificationOutcome, verification_of
from gpuagent.wire import ConfigModel, EngineSettings, HubModel, StudySpec
from gpuagent.wire.trial import VerifyConfig

VerdictStatus = Literal["met", "missed", "not_proven", "no_verdict", "no_targets"]
Verification = Literal["verified", "not_proven", "contradicted", "measured_once", "none"]

ENDED = ("succeeded", "failed", "cancelled", "quarantined")
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class StudyVerdict:
    """What a study says, at any moment of its life.

    sentence: the headline. lede: one or two sentences below it.
    best: the trial that the verdict rests on; it may be `current` itself.
    targets: status of every target for `best`, current_targets for `current`, in the spec's order.
    recommended: settings to use instead of the current ones; None where nothing better was found.
    changes: knob -> (current value, recommended value), empty without a recommendation.
    verification: verified = an interleaved A/B proved the gain; not_proven = it ran and proved
    neither; contradicted = it proved a loss; measured_once = not run (yet); none = nothing to do.
    noise_frac: relative difference below which two trials count as equal; None without trials.
    known, unknown: for a running study, what is settled and what is not, one sentence each.
    """

    status: VerdictStatus
    sentence: str
    lede: str
    current: TrialEvidence | None
    best: TrialEvidence | None
    targets: tuple[TargetStatus, ...]
    current_targets: tuple[TargetStatus, ...]
    recommended: EngineSettings | None
    changes: dict[str, tuple[object, object]]
    verification: Verification
    verification_sentence: str
    noise_frac: float | None
    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _View:
    """Everything the sentences are made from, computed once."""

    evidence: StudyEvidence
    findings: Sequence[Finding]
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    current_targets: tuple[TargetStatus, ...]

    @property
    def targets(self) -> tuple[TargetStatus, ...]:
        return self.best.statuses if self.best is not None else self.current_targets

    @property
    def recommended(self) -> EngineSettings | None:
        return recommended_settings(self.evidence, self.best)


def study_verdict(evidence: StudyEvidence, findings: Sequence[Finding]) -> StudyVerdict:
    """Verdict of `evidence`; `findings` are those that the rules made of it."""
    found = candidates(evidence)
    view = _View(
        evidence=evidence,
        findings=findings,
        candidates=found,
        best=best_of(found),
        current_targets=target_statuses(evidence.current, evidence.spec),
    )
    status = _status(view)
    verification, verification_sentence, outcome = _verification(view)
    recommended = view.recommended
    current = evidence.spec.current
    return StudyVerdict(
        status=status,
        sentence=f"{_label(evidence)}{_headline(view, status)}",
        lede=_lede(view, status, verification_sentence),
        current=evidence.current,
        best=view.best.trial if view.best is not None else None,
        targets=view.targets,
        current_targets=view.current_targets,
        recommended=recommended,
        changes=current.differences(recommended) if recommended is not None else {},
        verification=verification,
        verification_sentence=verification_sentence,
        noise_frac=_noise(view, outcome),
        known=_known(view) if status == "no_verdict" else (),
        unknown=_unknown(view) if not (evidence.finished or evidence.cancelled) else (),
    )


def _label(evidence: StudyEvidence) -> str:
    """Goes before the sentence wherever it is shown, so that nobody takes it for a measurement."""
    return "Simulated: " if evidence.spec.engine == "simulated" else ""


def _status(view: _View) -> VerdictStatus:
    if view.evidence.cancelled or not view.evidence.finished or view.best is None:
        return "no_verdict"
    if not view.evidence.spec.targets:
        return "no_targets"
    verdicts = {status.verdict for status in view.targets}
    if "missed" in verdicts:
        return "missed"
    return "met" if verdicts == {"met"} else "not_proven"


# --- headline ----------------------------------------------------------------------------------


def _headline(view: _View, status: VerdictStatus) -> str:
    if status == "no_verdict":
        return _no_verdict(view)
    if status == "no_targets":
        return _without_targets(view)
    if status == "met":
        return _met(view)
    return _missed(view) if status == "missed" else _not_proven(view)


def _met(view: _View) -> str:
    tightest = _tightest(view.targets)
    text = f"{_meets(view)} {_how_many(len(view.targets))}{_load(view)}"
    if tightest is None or tightest.value is None:
        return text
    now = view.current_targets[view.targets.index(tightest)]
    value = units.metric(tightest.target.metric, tightest.value)
    text += f": {target_name(tightest.target)} {value}"
    if view.recommended is not None and now.value is not None and now.verdict != "met":
        return f"{text} instead of {units.metric(now.target.metric, now.value)}"
    return f"{text} of {limit_text(tightest.target)}"


def _meets(view: _View) -> str:
    if view.best is None or view.best.trial.role == "current":
        imported = view.evidence.spec.engine == "imported"
        return "The imported result meets" if imported else "The current settings meet"
    return f"Trial {view.best.trial.ordinal} meets"


def _how_many(count: int) -> str:
    if count == 1:
        return "the target"
    word = WORDS[count] if count < len(WORDS) else str(count)
    return "both targets" if count == 2 else f"all {word} targets"


def _load(view: _View) -> str:
    """ " at 12 req/s", or what stood in for a rate."""
    if view.best is None or not any(s.target.metric != "memory_bytes" for s in view.targets):
        return ""
    rate = view.evidence.spec.workload.request_rate_per_s
    if rate is not None and measured_at_rate(view.best.trial):
        return f" at {rate:g}{units.NBSP}req/s"
    if view.evidence.spec.engine == "imported":
        return ""
    streams = in_flight(view.best.trial)
    return f" with {streams} requests in flight" if streams > 1 else " one request at a time"


def _missed(view: _View) -> str:
    missed = [status for status in view.targets if status.verdict == "missed"]
    worst = min(missed, key=lambda s: s.headroom_frac if s.headroom_frac is not None else 0.0)
    number = _deciding_number(worst)
    more = f", and {len(missed) - 1} more" if len(missed) > 1 else ""
    if view.recommended is None and any(candidate.excluded for candidate in view.candidates):
        return (
            f"No confirmed configuration meets {target_label(worst.target)}{more}: the current "
            f"settings {number}"
        )
    if len(view.candidates) > 1:
        return f"No configuration meets {target_label(worst.target)}{more}: the best {number}"
    if view.evidence.spec.engine == "imported":
        return f"The imported result misses {target_label(worst.target)}{more}: {number}"
    return f"The current settings miss {target_label(worst.target)}{more}: {number}"


def _deciding_number(status: TargetStatus) -> str:
    if status.value is not None:
        if status.basis in ("simulated", "imported"):
            return f"came to {units.metric(status.target.metric, status.value)}"
        return f"measured {units.metric(status.target.metric, status.value)}"
    return f"had {status.over or 0:,} of {status.n:,} over the limit"


def _not_proven(view: _View) -> str:
    open_ones = [status for status in view.targets if status.verdict != "met"]
    # A number of requests that would decide is the most useful thing to say.
    first = max(open_ones, key=lambda s: (s.needed_n is not None, s.verdict == "not_proven"))
    more = f" (and {len(open_ones) - 1} more)" if len(open_ones) > 1 else ""
    label = f"{target_label(first.target)}{more}"
    if first.needed_n is not None:
        seen = _requests_seen(view)
        so_far = f" ({seen:,} so far)" if seen else ""
        return f"Not proven: {label} needs {first.needed_n:,} requests{so_far}"
    if first.verdict == "not_measured":
        return f"Not proven: {label} is not measured, because {_inner(first.reason)}"
    return f"Not proven: {label}: {_inner(first.reason)}"


def _requests_seen(view: _View) -> int:
    metrics = trial_metrics(view.best.trial) if view.best is not None else None
    return metrics.sent if metrics is not None else 0


def _without_targets(view: _View) -> str:
    best, current = view.best, view.evidence.current
    if best is None:
        return "No verdict: nothing was measured"
    if view.evidence.spec.engine == "imported":
        return "Imported without a target: nothing to judge it by"
    if view.recommended is not None and current is not None:
        speed_up = _speed_up(current, best.trial)
        if speed_up is not None:
            return (
                f"Trial {best.trial.ordinal} answers {times(speed_up)} faster than the current "
                "settings"
            )
    if view.recommended is not None:
        return f"Trial {best.trial.ordinal} gives answers; the current settings gave none"
    tried = len(view.candidates) - 1
    what = f"None of {tried} other configurations beats" if tried > 1 else "No change beats"
    return (
        f"{what} the current settings beyond the noise of {units.percent(UNVERIFIED_NOISE.value)}"
    )


def _speed_up(current: TrialEvidence, best: TrialEvidence) -> float | None:
    ratio = answer_ratio(current, best) or decode_ratio(current, best)
    return 1 / ratio.value if ratio is not None else None


def _no_verdict(view: _View) -> str:
    evidence = view.evidence
    done, total = _done(evidence)
    if evidence.cancelled:
        return f"No verdict: the study was cancelled after {done} of {total} trials"
    if evidence.finished:
        return f"No verdict: {_why_nothing(view)}"
    if evidence.device is None:
        return "No verdict yet: no agent measures this study, so it has predictions alone"
    if done == 0 and total:
        # Lists show the sentence of the last evaluation, so it must stay true when a trial starts.
        return f"No verdict yet: {done} of {total} trials have ended"
    best = view.best
    if best is None:
        return f"No verdict yet: {_first_step(evidence)}"
    if not evidence.spec.targets:
        return f"No verdict yet: {done} of {total} trials are done"
    if best.met == len(best.statuses):
        who = _meets(view)
        text = f"{who[:1].lower()}{who[1:]} {_how_many(best.met)}{_load(view)}, measured once"
        return f"No verdict yet: {text}"
    missed = [status for status in best.statuses if status.verdict == "missed"]
    if missed:
        worst = min(missed, key=lambda s: s.headroom_frac if s.headroom_frac is not None else 0.0)
        so_far = "the best so far" if view.recommended is not None else "the current settings"
        return (
            f"No verdict yet: {so_far} {_deciding_number(worst)} for {target_label(worst.target)}"
        )
    return f"No verdict yet: {best.met} of {len(best.statuses)} targets are proven so far"


def _first_step(evidence: StudyEvidence) -> str:
    current = evidence.current
    if current is not None and current.state in ENDED:
        return "the current settings gave no valid result"
    return "the current settings are not measured yet"


def _why_nothing(view: _View) -> str:
    """Why a finished study has no usable baseline."""
    evidence = view.evidence
    current = evidence.current
    if current is not None and current.state == "cancelled":
        return f"the trial of the current settings (trial {current.ordinal}) was cancelled"
    if current is not None and current.failure is not None:
        return f"{_inner(current.failure.kind.text)} (trial {current.ordinal})"
    if current is not None and current.result is not None and not current.usable:
        reasons = current.result.validity.reasons
        return f"the measurement of trial {current.ordinal} is invalid: {_inner(reasons[0])}"
    if current is not None and current.state == "quarantined":
        return f"trial {current.ordinal} was withdrawn after {current.attempts} attempts"
    return "no trial gave a valid result" if evidence.trials else "no trial was run"


# --- below the headline ------------------------------------------------------------------------


def _lede(view: _View, status: VerdictStatus, verification_sentence: str) -> str:
    evidence = view.evidence
    if status == "no_verdict":
        return _lede_without_verdict(view)
    if view.recommended is not None:
        return f"{_change_words(view)}. {verification_sentence}."
    if evidence.spec.engine == "imported":
        return "Read from the file of another tool: not measured by an agent, and not verified."
    failing = [f for f in view.findings if f.verdict is Verdict.FAIL and f.change is not None]
    tried = len(view.candidates) - 1
    others = (
        f"{WORDS[tried].capitalize() if tried < len(WORDS) else tried} other "
        f"{'configuration was' if tried == 1 else 'configurations were'} measured"
        if tried > 0
        else "No other configuration was measured"
    )
    text = f"{others}; no change of settings is recommended."
    rejected = next((c for c in view.candidates if c.excluded), None)
    if rejected is not None:
        text += f" Trial {rejected.trial.ordinal}: {rejected.excluded}."
    elif failing and status != "met":
        text += f" {failing[0].title}."
    if evidence.current is None or not evidence.current.usable:
        text += " The current settings have no valid measurement to compare with."
    return text


def _lede_without_verdict(view: _View) -> str:
    evidence = view.evidence
    done, total = _done(evidence)
    if evidence.cancelled:
        return "What was measured until then is kept. Nothing is said about the targets."
    if evidence.finished:
        failing = next((f for f in view.findings if f.verdict is Verdict.FAIL and f.change), None)
        return failing.change.text if failing is not None and failing.change is not None else ""
    if not evidence.trials:
        return "Choose an agent to measure, or read the prediction."
    running = next((t for t in evidence.trials if t.state in ("leased", "running")), None)
    text = f"{done} of {total} trials are done."
    return f"{text} Now: {running.title}." if running is not None else text


def _change_words(view: _View) -> str:
    recommended = view.recommended
    if recommended is None:
        return "No change of settings is recommended"
    changes = view.evidence.spec.current.differences(recommended)
    parts = [
        f"{knob_inside(knob)} from {_knob_text(old)} to {_knob_text(new)}"
        for knob, (old, new) in changes.items()
    ]
    return f"Change {', '.join(parts)}"


def _knob_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "the engine's choice" if value in (None, "auto") else str(value)


def _verification(view: _View) -> tuple[Verification, str, VerificationOutcome | None]:
    evidence = view.evidence
    recommended = view.recommended
    if recommended is None:
        for candidate in view.candidates:
            outcome = (
                verification_of(evidence, candidate.trial.settings)
                if candidate.trial.role != "current"
                else None
            )
            if outcome is not None and outcome.status != "verified":
                return outcome.status, outcome.sentence, outcome
        return "none", "No change is recommended, so there is nothing to verify", None
    outcome = verification_of(evidence, recommended)
    if outcome is not None:
        return outcome.status, outcome.sentence, outcome
    return "measured_once", _unverified(evidence, recommended), None


def _unverified(evidence: StudyEvidence, recommended: EngineSettings) -> str:
    """Why there is no A/B of the recommendation (yet)."""
    for trial in reversed(evidence.trials):
        config = trial.spec.config
        if not isinstance(config, VerifyConfig) or config.candidate != recommended:
            continue
        if trial.failure is not None:
            return f"Measured once; the A/B trial failed: {_inner(trial.failure.kind.text)}"
        if trial.state not in ENDED:
            return "Measured once; the A/B against the current settings is under way"
        if trial.result is not None and not trial.usable:
            return "Measured once; the A/B trial's measurement is invalid"
    return "Measured once, not verified by an A/B against the current settings"


def _noise(view: _View, outcome: VerificationOutcome | None) -> float | None:
    if outcome is not None:
        return outcome.comparisons[outcome.decisive].noise_frac
    return UNVERIFIED_NOISE.value if view.candidates else None


# --- running -----------------------------------------------------------------------------------


def _known(view: _View) -> tuple[str, ...]:
    """What the finished trials settled."""
    found = []
    for candidate in view.candidates:
        who = (
            "The current settings"
            if candidate.trial.role == "current"
            else (f"Trial {candidate.trial.ordinal} ({candidate.trial.title})")
        )
        for status in candidate.statuses:
            if status.verdict in ("met", "missed"):
                number = f", {_deciding_number(status)}"
                verb = _verb(status.verdict, candidate.trial.role)
                found.append(f"{who} {verb} {target_label(status.target)}{number}")
    return tuple(found)


def _verb(verdict: str, role: str) -> str:
    base = "meet" if verdict == "met" else "miss"
    return base if role == "current" else {"meet": "meets", "miss": "misses"}[base]


def _unknown(view: _View) -> tuple[str, ...]:
    """What is open, with the reason or the trial that will answer it."""
    found = [
        f"{target_label(status.target)}: {status.reason}"
        for status in view.targets
        if status.verdict in ("not_proven", "not_measured")
    ]
    found += [
        f"{trial.title}: {trial.reason}"
        for trial in view.evidence.trials
        if trial.state not in ENDED
    ]
    return tuple(found)


def _done(evidence: StudyEvidence) -> tuple[int, int]:
    ended = sum(t.state in ("succeeded", "failed", "quarantined") for t in evidence.trials)
    return ended, len(evidence.trials)


def _tightest(statuses: Sequence[TargetStatus]) -> TargetStatus | None:
    valued = [s for s in statuses if s.headroom_frac is not None]
    return min(valued, key=lambda s: s.headroom_frac or 0.0, default=None)


def _inner(text: str) -> str:
    """A sentence as the inside of another one; abbreviations keep their capitals."""
    head = text.split(" ", 1)[0]
    return text if head[1:2].isupper() else text[:1].lower() + text[1:]


# --- code --------------------------------------------------------------------------------------


def settings_snippet(recommended: EngineSettings, spec: StudySpec) -> str:
    """Python for the in-process transformers engine that loads the model with `recommended`."""
    lines = ["import torch", _imports(spec), ""]
    if recommended.threads is not None:
        lines.append(f"torch.set_num_threads({recommended.threads})")
    if isinstance(spec.model, ConfigModel):
        lines.append('config = AutoConfig.from_pretrained("config.json")')
        method, arguments = "from_config", ["config"]
    else:
        # A name is data: quoted as JSON, it cannot end the string.
        method, arguments = "from_pretrained", [json.dumps(spec.model.label, ensure_ascii=False)]
        if isinstance(spec.model, HubModel) and spec.model.revision is not None:
            arguments.append(f'revision="{spec.model.revision}"')
    dtype = '"auto"' if recommended.dtype == "auto" else f"torch.{recommended.dtype}"
    arguments.append(f"dtype={dtype}")
    if recommended.attention != "auto":
        arguments.append(f'attn_implementation="{recommended.attention}"')
    lines.append(f"model = AutoModelForCausalLM.{method}(")
    lines += [f"    {argument}," for argument in arguments]
    lines += [")", f"output = model.generate(**inputs, use_cache={recommended.kv_cache})"]
    return "\n".join(lines) + "\n"


def _imports(spec: StudySpec) -> str:
    names = ["AutoModelForCausalLM"]
    if isinstance(spec.model, ConfigModel):
        names.insert(0, "AutoConfig")
    return f"from transformers import {', '.join(names)}"
