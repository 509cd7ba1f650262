"""Hop 7 of a study: evidence -> rules -> findings, verdict, next trials, end.

Runs right after each accepted result, in the web process, so that a study needs no broker to
finish; the sweeper repeats what a crash interrupted (`Study.stale_since`). Two runs at once are
harmless: they write the same findings, and new trials collide on their ordinal.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from advisor.rules import engine
from advisor.rules.rule import Finding
from advisor.studies import dispatch, planner
from advisor.studies.evidence import build_evidence
from advisor.studies.listing import listing_of
from advisor.studies.models import FindingRow, Study
from advisor.studies.states import TERMINAL, StudyState
from advisor.studies.trials import trials_add
from advisor.verdict import StudyVerdict, study_verdict

log = logging.getLogger(__name__)


def study_advance_safely(study_id: object) -> None:
    """`study_advance`, with a failure logged; the study stays marked, so the sweeper repeats it."""
    try:
        study_advance(study_id)
    except IntegrityError:
        log.info("study %s was advanced by another process", study_id)
    except Exception:
        log.exception("advance of study %s failed; it will be repeated", study_id)


def study_advance(study_id: object) -> None:
    """Evaluate what is known, add the trials that it calls for, finish the study when none is."""
    study = Study.objects.select_related("agent", "org").get(pk=study_id)
    seen = study.stale_since
    if study.is_terminal:
        Study.objects.filter(pk=study.pk, stale_since=seen).update(stale_since=None)
        return
    states = list(study.trials.values_list("state", flat=True))
    busy = any(state not in TERMINAL for state in states)
    cancelled = study.cancel_requested_at is not None
    with transaction.atomic():
        if busy or (study.state == StudyState.WAITING and not cancelled):
            study_evaluate(study)
        elif cancelled:
            _finish(study, StudyState.CANCELLED)
        elif not _add_next_trials(study):
            _finish(study, StudyState.FINISHED)
        Study.objects.filter(pk=study.pk, stale_since=seen).update(stale_since=None)


def study_evaluate(study: Study) -> None:
    """Store findings and verdict of what is known now."""
    evidence = build_evidence(study)
    findings = engine.evaluate(evidence)
    _store(study, findings, study_verdict(evidence, findings), planner.phase_of(evidence))


def _add_next_trials(study: Study) -> bool:
    evidence = build_evidence(study)
    findings = engine.evaluate(evidence)
    planned = planner.next_trials(evidence, findings)
    if planned:
        dispatch.wake_after_commit(trials_add(study, planned))
        study_evaluate(study)
    return bool(planned)


def _finish(study: Study, state: StudyState) -> None:
    now = timezone.now()
    Study.objects.filter(pk=study.pk).update(state=state, finished_at=now)
    study.state, study.finished_at = state, now
    study_evaluate(study)


def _store(study: Study, findings: list[Finding], verdict: StudyVerdict, phase: str) -> None:
    FindingRow.objects.filter(study=study).delete()
    FindingRow.objects.bulk_create(
        [
            FindingRow(
                study=study,
                rank=rank,
                rule_id=finding.rule_id,
                verdict=finding.verdict,
                payload=finding.model_dump(mode="json"),
            )
            for rank, finding in enumerate(findings, start=1)
        ]
    )
    study.verdict_json = verdict_summary(verdict)
    Study.objects.filter(pk=study.pk).update(
        verdict_json=study.verdict_json,
        phase=phase,
        evaluated_at=timezone.now(),
        **listing_of(study),
    )


def verdict_summary(verdict: StudyVerdict) -> dict[str, object]:
    """What lists show of a verdict, without the trials it rests on."""
    return {
        "status": verdict.status,
        "sentence": verdict.sentence,
        "lede": verdict.lede,
        "best_trial": verdict.best.trial_id if verdict.best else None,
        "best_title": verdict.best.title if verdict.best else None,
        "verification": verdict.verification,
        "targets": [
            {
                **{k: v for k, v in asdict(status).items() if k != "target"},
                "metric": status.target.metric,
                "statistic": status.target.statistic,
                "limit": status.target.limit,
            }
            for status in verdict.targets
        ],
    }


def elapsed_s(study: Study, now: datetime | None = None) -> float:
    """Wall time since submission, until the end where there is one."""
    end = study.finished_at or now or timezone.now()
    return (end - study.created_at).total_seconds()
