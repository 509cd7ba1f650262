"""Rows of the studies table, phases and the findings of a study page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from advisor import units
from advisor.pages.present.targets import Bullet, bullet, headroom_text
from advisor.reported import AS_SENT
from advisor.reports import words
from advisor.rules.rule import Effect, Finding, Verdict
from advisor.studies.models import Study
from advisor.studies.states import StudyState
from advisor.targets import TargetStatus, target_label
from gpuagent.wire import SlaTarget


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One line of the studies table."""

    study: Study
    kind: str
    word: str
    subtitle: str
    preset: str
    target: str
    more_targets: int
    best: str
    measured: str
    headroom: str
    bullet: Bullet | None
    agent: str
    since: datetime


def study_rows(studies: Iterable[Study]) -> list[StudyRow]:
    """In the order of the list. `studies` carry `total` and `done`."""
    return [_row(study) for study in studies]


def _row(study: Study) -> StudyRow:
    kind, word = study_status(study)
    spec = study.spec
    statuses = _statuses(study)
    tightest = _tightest(statuses)
    shown = tightest.target if tightest else (spec.targets[0] if spec.targets else None)
    rate = spec.workload.request_rate_per_s
    # How many requests a server has in flight stands in its trials, which lists do not read.
    alone = "1 stream" if spec.engine == "transformers" else "closed loop"
    alone = AS_SENT if spec.engine == "imported" else alone
    traffic = f"{units.number(rate)} req/s" if rate else alone
    return StudyRow(
        study=study,
        kind=kind,
        word=word,
        subtitle=f"{spec.workload.preset}, {traffic}, {spec.model.label}",
        preset=spec.workload.preset,
        target=target_label(shown).replace("≤ ", f"≤{units.NBSP}") if shown else units.DASH,
        more_targets=max(0, len(spec.targets) - 1),
        best=(study.verdict_json or {}).get("best_title") or units.DASH,
        measured=units.metric(shown.metric, tightest.value) if shown and tightest else units.DASH,
        headroom=headroom_text(tightest, short=True) if tightest else "",
        bullet=bullet(tightest) if tightest else None,
        agent=study.agent.slug if study.agent else units.DASH,
        since=study.created_at,
    )


def study_status(study: Study) -> words.Word:
    """Kind and word of a study; `total` and `done` count its trials where they are known."""
    if study.state == StudyState.CANCELLED:
        return "na", "Cancelled"
    if study.state == StudyState.WAITING:
        return "wait", "No agent: prediction only"
    if study.state == StudyState.FINISHED:
        status = (study.verdict_json or {}).get("status", "no_verdict")
        return ("bad", "No result") if status == "no_verdict" else words.VERDICTS[status]
    if study.cancel_requested_at is not None:
        return "run", "Cancelling"
    if study.agent is not None and not study.agent.is_reachable:
        return "warn", f"Waiting for {study.agent.slug}"
    total, done = getattr(study, "total", 0), getattr(study, "done", 0)
    if not total:
        return "run", "Running"
    return "run", f"Running, trial {min(done + 1, total)} of {total}"


def _statuses(study: Study) -> list[TargetStatus]:
    return [_status(entry) for entry in (study.verdict_json or {}).get("targets", ())]


def _status(entry: dict[str, Any]) -> TargetStatus:
    """A TargetStatus as `advance` stored it for lists; newer or older keys do no harm."""
    target = SlaTarget(metric=entry["metric"], statistic=entry["statistic"], limit=entry["limit"])
    known = set(TargetStatus.__dataclass_fields__) - {"target"}
    return TargetStatus(target=target, **{k: v for k, v in entry.items() if k in known})


def _tightest(statuses: list[TargetStatus]) -> TargetStatus | None:
    """The measured target with the least headroom."""
    measured = [s for s in statuses if s.headroom_frac is not None]
    return min(measured, key=lambda s: s.headroom_frac or 0.0, default=None)


# --- phases ------------------------------------------------------------------------------------

_PHASES = (
    ("understand", "Understand", "Shape, memory and plan"),
    ("baseline", "Baseline", "The settings in use today"),
    ("diagnose", "Diagnose", "What slows it down"),
    ("search", "Search", "Proposed changes, one by one"),
    ("verify", "Verify", "Interleaved A/B of the best"),
)


@dataclass(frozen=True, slots=True)
class PhaseStep:
    name: str
    what: str
    state: str
    """done, current or waiting."""


def phase_steps(phase: str) -> tuple[PhaseStep, ...]:
    """The five phases of a study with the current one marked; all done at `done`."""
    ids = [name for name, _, _ in _PHASES]
    now = ids.index(phase) if phase in ids else len(ids)
    return tuple(
        PhaseStep(word, what, "done" if n < now else "current" if n == now else "waiting")
        for n, (_, word, what) in enumerate(_PHASES)
    )


# --- findings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindingFold:
    """Findings of one verdict, folded under one line."""

    kind: str
    word: str
    hint: str
    findings: tuple[Finding, ...]
    open: bool


_FOLDS: tuple[tuple[tuple[Verdict, ...], str], ...] = (
    ((Verdict.FAIL, Verdict.ERROR), "in your current settings"),
    ((Verdict.CANNOT_TELL,), "measured, but it proves nothing either way"),
    ((Verdict.INFORMATIVE,), "worth knowing, nothing to change"),
    ((Verdict.PASS,), "nothing to do"),
    ((Verdict.NOT_APPLICABLE,), "with the reason"),
)


def top_findings(findings: Sequence[Finding], most: int = 3) -> tuple[Finding, ...]:
    """The first failing findings; they come ranked by the gain towards the targets."""
    return tuple(f for f in findings if f.verdict is Verdict.FAIL)[:most]


def finding_folds(findings: Sequence[Finding]) -> tuple[FindingFold, ...]:
    folds = []
    for verdicts, hint in _FOLDS:
        found = tuple(f for f in findings if f.verdict in verdicts)
        if found:
            kind, word = words.FINDINGS[verdicts[0]]
            folds.append(FindingFold(kind, word.lower(), hint, found, False))
    return tuple(folds)


def effect_text(effect: Effect | None) -> tuple[str, str]:
    """("−53 %", "ITL, measured, −55 to −51 %"); empty texts without an effect."""
    if effect is None:
        return "", ""
    sign = "+" if effect.change_frac > 0 else ""
    name = units.EFFECT_NAMES.get(effect.metric, effect.metric)
    note = f"{name}, {effect.basis}"
    if effect.low is not None and effect.high is not None:
        note += f", {units.percent(effect.low)} to {units.percent(effect.high)}"
    elif effect.basis == "measured":
        note += " once"
    return f"{sign}{units.percent(effect.change_frac)}", note
