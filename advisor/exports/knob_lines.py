"""The knob table of one study: each setting's flags, its value today and advised, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from advisor.evidence import StudyEvidence
from advisor.exports.knob_table import KNOBS, KnobRow
from advisor.knobs import knob_text
from advisor.rules.rule import Finding, Verdict
from advisor.verdict import StudyVerdict
from gpuagent.wire import EngineSettings

IN_PROCESS = ("dtype", "kv_cache", "attention", "threads")
"""What the engine in the agent's process can be told; everything else is a server's."""


class KnobLine(BaseModel):
    """One setting. vllm, sglang: flag, or the reason why there is none. code: for transformers.

    today, advised: in words; None where a study has no such setting. changed: they differ.
    tutorial: other names of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    knob: str
    name: str
    tutorial: tuple[str, ...]
    vllm: str
    sglang: str
    code: str
    today: str | None
    advised: str | None
    changed: bool
    reason: str


def knob_lines(
    evidence: StudyEvidence, verdict: StudyVerdict, findings: Sequence[Finding]
) -> tuple[KnobLine, ...]:
    """Every setting of the catalogue: changed ones first, then those that the study has.

    None for an imported result, whose settings are not known.
    """
    if evidence.spec.engine == "imported":
        return ()
    lines = [_line(row, evidence, verdict, findings) for row in KNOBS]
    return tuple(sorted(lines, key=lambda x: (not x.changed, x.today is None)))


def _line(
    row: KnobRow, evidence: StudyEvidence, verdict: StudyVerdict, findings: Sequence[Finding]
) -> KnobLine:
    knob, spec = row.knob, evidence.spec
    today = advised = None
    if knob in EngineSettings.model_fields:
        today = knob_text(getattr(spec.current, knob))
        advised = knob_text(getattr(verdict.recommended or spec.current, knob))
    elif knob == "kv_heads" and evidence.shape is not None:
        today = str(evidence.shape.kv_heads)
    return KnobLine(
        knob=knob,
        name=row.name,
        tutorial=row.tutorial,
        vllm=row.vllm.text,
        sglang=row.sglang.text,
        code=row.code,
        today=today,
        advised=advised,
        changed=knob in verdict.changes,
        reason=_reason(row, evidence, verdict, findings),
    )


def _reason(
    row: KnobRow, evidence: StudyEvidence, verdict: StudyVerdict, findings: Sequence[Finding]
) -> str:
    knob = row.knob
    if knob in verdict.changes:
        return _why_changed(knob, verdict, findings)
    if knob not in EngineSettings.model_fields:
        return row.note
    if evidence.spec.engine == "transformers" and knob not in IN_PROCESS:
        return "The engine in the agent's process has no such setting."
    mine = getattr(evidence.spec.current, knob)
    tried = {
        knob_text(value): trial.ordinal
        for trial in evidence.trials
        if trial.result is not None and (value := getattr(trial.settings, knob)) != mine
    }
    if not tried:
        return "Not tried."
    values = ", ".join(f"{value} in trial {ordinal}" for value, ordinal in tried.items())
    return f"Tried {values}; not advised."


def _why_changed(knob: str, verdict: StudyVerdict, findings: Sequence[Finding]) -> str:
    """The best ranked finding that sets it to what is advised, else why its trial was run."""
    wanted = verdict.changes[knob][1]
    for finding in findings:
        change = finding.change
        if finding.verdict is Verdict.FAIL and change and change.settings.get(knob) == wanted:
            return finding.title
    return verdict.best.reason if verdict.best is not None else ""
