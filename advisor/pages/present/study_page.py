"""Everything a study's page shows that follows from its evidence; cached between two `advance`s.

Intervals and charts cost up to a second over all trials, and nothing of it changes until the next
trial ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.core.cache import cache

from advisor.charts import Chart, ChartInput, study_charts
from advisor.exports.knob_lines import KnobLine, knob_lines
from advisor.exports.launch import LaunchLine, launch_lines
from advisor.knobs import knob_name, knob_text
from advisor.pages.present.studies import FindingFold, finding_folds, top_findings
from advisor.pages.present.targets import TargetCell, target_cells
from advisor.pages.present.trials import TrialsTable, trials_table
from advisor.reported import how_to_prove
from advisor.reports import words
from advisor.reports.document import study_facts
from advisor.reports.method import cancelled_note
from advisor.reports.robustness import RobustnessPart, study_robustness
from advisor.rules.rule import Finding
from advisor.scenarios import SCENARIOS
from advisor.studies.models import Study
from advisor.studies.selectors import StudyView, study_view
from gpuagent.wire import EngineSettings

CACHE_S = 3600


@dataclass(frozen=True, slots=True)
class StudyPage:
    """What `pages/study.html` prints."""

    sentence: str
    lede: str
    verification: words.Word | None
    verification_sentence: str
    facts: tuple[tuple[str, str], ...]
    shape: str
    targets: tuple[TargetCell, ...]
    best: str
    top: tuple[Finding, ...]
    folds: tuple[FindingFold, ...]
    failing: int
    charts: tuple[tuple[Chart, ...], ...]
    launch: tuple[LaunchLine, ...]
    changes: tuple[tuple[str, str, str], ...]
    """(knob, current, recommended)"""
    knobs: tuple[KnobLine, ...]
    scope: str
    """Settings that its scenario turns first, in words."""
    table: TrialsTable
    robustness: RobustnessPart | None
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    ordinals: dict[str, int]
    """Trial id -> its number, for links."""
    cancelled: str
    """Which trials were taken out of it."""
    failure: str
    """What stopped the study where no trial succeeded."""
    only_sums: str
    """What to run where an imported file has only percentiles, else ""."""


def study_page(study: Study) -> StudyPage:
    """From the cache where the study was not evaluated since, built otherwise."""
    if study.evaluated_at is None or study.stale_since is not None:
        return build(study_view(study))
    key = f"study-page:{study.pk}:{study.evaluated_at.isoformat()}:{study.state}"
    page = cache.get(key)
    if page is None:
        page = build(study_view(study))
        cache.set(key, page, CACHE_S)
    return page


def build(view: StudyView) -> StudyPage:
    evidence, verdict = view.evidence, view.verdict
    wanted = verdict.recommended or (evidence.spec.current if verdict.status == "met" else None)
    shows_verification = verdict.verification not in ("none", "measured_once")
    return StudyPage(
        sentence=verdict.sentence,
        lede=_without(verdict.lede, verdict.verification_sentence if shows_verification else ""),
        verification=words.VERIFICATIONS[verdict.verification] if shows_verification else None,
        verification_sentence=verdict.verification_sentence,
        facts=tuple(study_facts(evidence)),
        shape=evidence.shape.summary() if evidence.shape else "",
        targets=target_cells(verdict.targets, verdict.current_targets),
        best=_best(view),
        top=top_findings(view.findings),
        folds=finding_folds(view.findings),
        failing=sum(f.verdict == "fail" for f in view.findings),
        charts=_charts(view),
        launch=_launch(view, wanted),
        changes=tuple(
            (knob_name(knob), knob_text(old), knob_text(new))
            for knob, (old, new) in verdict.changes.items()
        ),
        scope=", ".join(knob_name(knob) for knob in SCENARIOS[evidence.spec.workload.preset].knobs),
        knobs=knob_lines(evidence, verdict, view.findings),
        table=trials_table(evidence, verdict.best),
        robustness=study_robustness(evidence),
        known=verdict.known,
        unknown=verdict.unknown,
        ordinals={t.trial_id: t.ordinal for t in evidence.trials},
        cancelled=cancelled_note(evidence),
        failure=_failure(view),
        only_sums=how_to_prove(evidence),
    )


def _launch(view: StudyView, wanted: EngineSettings | None) -> tuple[LaunchLine, ...]:
    spec = view.evidence.spec
    return launch_lines(spec.model, wanted, spec.current, spec.engine) if wanted else ()


def _charts(view: StudyView) -> tuple[tuple[Chart, ...], ...]:
    """None at all where nothing was measured and nothing will be."""
    groups = study_charts(ChartInput.of_study(view.evidence, view.verdict))
    drawn = any(not chart.is_empty for group in groups for chart in group)
    return groups if drawn or not view.study.is_terminal else ()


def _without(lede: str, sentence: str) -> str:
    """The lede without what the notice below it says, nor the name of the trial that it is of."""
    if not sentence:
        return lede
    return re.sub(rf"(?:Trial \d+: )?{re.escape(sentence)}\.?", "", lede).strip()


def _best(view: StudyView) -> str:
    best = view.verdict.best
    if best is None:
        return ""
    if view.evidence.spec.engine == "imported":
        return "imported result"
    if view.verdict.current is not None and best.trial_id == view.verdict.current.trial_id:
        return "current settings"
    return f"trial {best.ordinal}"


def _failure(view: StudyView) -> str:
    trials = view.evidence.trials
    failed = [t.failure for t in trials if t.failure is not None]
    if not failed or any(t.result is not None for t in trials):
        return ""
    return f"{failed[0].kind.text}: {failed[0].message}."
