"""What a decode step could save: other forms of it, and products far below their ceiling."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import interval_text, sample_ratio, times
from advisor.recoverable import FORMS, best_form, largest_losses, step_form
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial, ratio_item
from advisor.thresholds import UNVERIFIED_NOISE
from gpuagent.wire.inside import KernelsResult

ID = "step-recoverable"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = [t for t in evidence.succeeded(KernelsResult) if t.usable]
    result = trials[-1].measured(KernelsResult) if trials else None
    if result is None:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="The kernels of a step are not measured",
                missing=missing_trial(evidence, "kernels"),
            )
        ]
    return [_forms(trials[-1], result), *_losses(trials[-1], result)]


def _forms(trial: TrialEvidence, result: KernelsResult) -> Finding:
    eager, best = step_form(result, "eager"), best_form(result)
    ratio = sample_ratio(eager.seconds, best.seconds) if eager and best else None
    if eager is None or best is None or ratio is None:
        reasons = "; ".join(f"{FORMS[s.form]}: {s.reason}" for s in result.steps if s.reason)
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title="A compiled step is not available here",
            summary=reasons,
            missing="A C++ compiler (g++), or a CUDA device",
        )
    item = ratio_item(
        f"A decode step {FORMS[best.form]} takes {times(ratio.value)} the eager one's time"
        f"{interval_text(ratio.low, ratio.high)}, n = {ratio.n}",
        ratio,
        trial,
        chart="recoverable",
    )
    if not ratio.below(UNVERIFIED_NOISE.value):
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title="Compiling a decode step saves nothing that is proven",
            evidence=(item,),
        )
    how = "Compile the decode step" if best.form == "compiled" else "Capture the decode step"
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"{how}: the eager one takes {times(1 / ratio.value)} as long",
        summary="Eager steps launch every operator from Python, allocate every intermediate and "
        "write it to memory. Both forms ran with a static cache.",
        evidence=(item,),
        change=Change(
            text="Use a static cache with torch.compile on the forward pass (mode "
            "reduce-overhead on GPUs), or an engine that does this itself."
        ),
        effect=Effect(
            metric="itl_s",
            change_frac=ratio.value - 1,
            low=ratio.low - 1 if ratio.low is not None else None,
            high=ratio.high - 1 if ratio.high is not None else None,
            basis="measured",
            better=True,
            from_trial=trial.trial_id,
        ),
        confidence="medium",
        confidence_reason="measured in turn in one process; compiling takes up to a minute at "
        "every start",
    )


def _losses(trial: TrialEvidence, result: KernelsResult) -> list[Finding]:
    losses = largest_losses(result)
    if not losses:
        return []
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.INFORMATIVE,
            title=f"Most time is lost in {losses[0].name}: "
            f"{units.seconds(losses[0].recoverable_s)} of a {losses[0].step}",
            summary="A ceiling is the larger of computing and reading at the measured rates of "
            "this device; a kernel may come near it and not pass it.",
            evidence=tuple(
                EvidenceItem(
                    text=f"{loss.text}; {units.seconds(loss.recoverable_s)} "
                    + ("to the ceiling" if loss.basis == "ceiling" else "saved when run"),
                    value=loss.recoverable_s,
                    unit="s",
                    n=loss.n,
                    trial_id=trial.trial_id,
                    chart="recoverable",
                )
                for loss in losses
            ),
        )
    ]


RULE = Rule(
    id=ID,
    code="k003",
    group="kernels",
    title="A decode step leaves nothing on the table",
    failing_title="Compile or capture the decode step",
    why="A step of a small model is hundreds of short operators. What lies between them, and what "
    "each loses against its ceiling, is time that no larger device gives back.",
    how_measured="The model's own matrix products layer after layer, operator chains eager and "
    "under torch.compile, and whole decode steps eager, compiled and as a CUDA graph.",
    threshold=f"Fails when another form of the step is faster by more than "
    f"{UNVERIFIED_NOISE.value:.0%}, interval included.",
    source=UNVERIFIED_NOISE.source,
    when_not="Where shapes change at every call: each new shape compiles again.",
    needs=("a kernels trial",),
    knobs=(),
    check=check,
)
