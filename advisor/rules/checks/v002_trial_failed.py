"""A trial ended without a result: the reason, what to do, and for memory how much was lacking."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import DTYPE_BYTES, resolved_dtype
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import largest_cache
from gpuagent.wire import FailureReason

ID = "trial-failed"
# Its failure ends the study's question; a variant that cannot run is an answer.
ESSENTIAL = ("current", "verification")


def check(evidence: StudyEvidence) -> list[Finding]:
    ended = [t for t in evidence.trials if t.state in ("succeeded", "failed", "quarantined")]
    if not ended:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="No trial has ended yet",
                missing="A finished trial",
            )
        ]
    broken = [t for t in ended if t.state != "succeeded"]
    if not broken:
        title = "Every trial that ended gave a result"
        item = EvidenceItem(text=f"{len(ended)} of {len(ended)} trials succeeded", n=len(ended))
        return [Finding(rule_id=ID, verdict=Verdict.PASS, title=title, evidence=(item,))]
    return [_finding(evidence, trial) for trial in broken]


def _finding(evidence: StudyEvidence, trial: TrialEvidence) -> Finding:
    name = f"trial {trial.ordinal} ({trial.title})"
    verdict = Verdict.FAIL if trial.role in ESSENTIAL else Verdict.INFORMATIVE
    failure = trial.failure
    if failure is None:
        return Finding(
            rule_id=ID,
            verdict=verdict,
            title=f"Check the agent: {name} was withdrawn after {trial.attempts} attempts",
            summary="Its agent was lost each time, so it is not sent out again.",
            evidence=(
                EvidenceItem(
                    text=f"{trial.attempts} attempts ended with the agent lost",
                    n=trial.attempts,
                    trial_id=trial.trial_id,
                ),
            ),
            change=Change(text="Read the host's kernel log for memory kills, then submit again."),
            confidence="medium",
        )
    items = [EvidenceItem(text=failure.message or failure.kind.text, trial_id=trial.trial_id)]
    settings: dict[str, str | int | float | bool | None] = {}
    text = failure.kind.fix
    if failure.reason is FailureReason.OUT_OF_MEMORY:
        items += _memory_items(evidence, trial)
        smaller = _smaller_dtype(evidence, trial)
        if smaller is not None:
            settings = {"dtype": smaller}
            text = f"{text} {smaller} halves the weights."
    return Finding(
        rule_id=ID,
        verdict=verdict,
        title=f"{failure.kind.text}: {name} failed",
        summary=f"{failure.kind.text}. Trying again "
        f"{'may help' if failure.kind.retryable else 'gives the same result'}.",
        evidence=tuple(items),
        change=Change(text=text, settings=settings),
        confidence="high",
        confidence_reason="reported by the engine itself",
    )


def _memory_items(evidence: StudyEvidence, trial: TrialEvidence) -> list[EvidenceItem]:
    """Weights and cache by the formula against what the device has; a lower bound of the need."""
    shape, device = evidence.shape, evidence.device
    if shape is None:
        return []
    dtype = resolved_dtype(trial.settings, shape)
    weights = shape.weight_bytes(dtype)
    tokens, batch = largest_cache(trial)
    cache = batch * shape.kv_bytes_for(tokens, DTYPE_BYTES[dtype])
    available = device.memory_bytes if device is not None else None
    has = f"; the device has {units.memory(available)}" if available is not None else ""
    return [
        EvidenceItem(
            text=f"Needs at least {units.memory(weights + cache)}: {units.memory(weights)} of "
            f"weights in {dtype} and {units.memory(cache)} of cache for {batch} × {tokens:,} "
            f"tokens{has} (predicted)",
            value=float(weights + cache),
            unit="B",
            trial_id=trial.trial_id,
        )
    ]


def _smaller_dtype(evidence: StudyEvidence, trial: TrialEvidence) -> str | None:
    loaded = resolved_dtype(trial.settings, evidence.shape)
    return "bfloat16" if loaded == "float32" else None


RULE = Rule(
    id=ID,
    code="v002",
    group="measurement",
    title="Every trial gives a result",
    failing_title="Make the trial run",
    why="A model that does not load or does not fit is an answer, too: it names the setting or the "
    "memory that stands in the way.",
    how_measured="The reason that the agent reports for a trial, from the engine's own error; "
    "memory need from the model's shape.",
    threshold="Fails when the current settings or a verification end without a result; a variant "
    "that cannot run is told.",
    source="failure table of the wire contract",
    when_not="A variant that fails needs no action when another one is recommended.",
    needs=("a finished trial",),
    knobs=("dtype",),
    check=check,
    sees_invalid=True,
)
