"""Reads of studies and trials. Every function starts from the organisation."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import QuerySet

from advisor.accounts.models import Org
from advisor.errors import NotFound
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Finding
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Study, Trial
from advisor.verdict import StudyVerdict, study_verdict


@dataclass(frozen=True, slots=True)
class StudyView:
    """A study with everything that a page, the API or a report says about it."""

    study: Study
    evidence: StudyEvidence
    findings: tuple[Finding, ...]
    verdict: StudyVerdict


def studies_of(org: Org) -> QuerySet[Study]:
    """Newest first, with the agent."""
    return Study.objects.filter(org=org).select_related("agent", "org").order_by("-created_at")


def _uuid(value: object) -> uuid.UUID:
    try:
        return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
    except ValueError as error:
        raise NotFound("There is no such study or trial.") from error


def study_get(*, org: Org, study_id: object) -> Study:
    """Raises NotFound, also for another organisation's study."""
    study = studies_of(org).filter(pk=_uuid(study_id)).first()
    if study is None:
        raise NotFound("There is no such study.")
    return study


def trials_of(study: Study) -> QuerySet[Trial]:
    return study.trials.select_related("result", "agent").order_by("ordinal")


def trial_get(*, org: Org, trial_id: object) -> Trial:
    """Raises NotFound, also for another organisation's trial."""
    trial = (
        Trial.objects.filter(study__org=org, pk=_uuid(trial_id))
        .select_related("result", "agent", "study", "study__agent", "study__org")
        .first()
    )
    if trial is None:
        raise NotFound("There is no such trial.")
    return trial


def findings_of(study: Study) -> tuple[Finding, ...]:
    """As the last `advance` left them, the most useful first."""
    return tuple(Finding.model_validate(row.payload) for row in study.findings.all())


def study_view(study: Study) -> StudyView:
    """Findings as `advance` stored them; the verdict is recomputed from the same evidence."""
    evidence = build_evidence(study)
    findings = findings_of(study)
    return StudyView(study, evidence, findings, study_verdict(evidence, findings))
