"""Keeps the results of another load tool as finished studies, one for each benchmark of the file.

Nothing of it was measured by an agent, and everything that shows it says so. The id of a study
follows from organisation, file, targets, scenario and hardware, so keeping a file twice with the
same ones gives the same studies.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from advisor.accounts.models import Org, User
from advisor.accounts.services import audit
from advisor.imports import ImportedTrial, ImportRefused
from advisor.imports.convert import ImportedStudy, convert
from advisor.studies import advance
from advisor.studies.models import Attempt, Result, Study, Trial
from advisor.studies.services import study_number_take
from advisor.studies.states import AttemptEnd, StudyState, TrialState
from gpuagent.wire import SlaTarget, TrialSpec
from gpuagent.wire.workload import Preset

MOST_STUDIES = 20


@dataclass(frozen=True, slots=True)
class Labels:
    """What the file does not tell and whoever keeps it may say."""

    name: str = ""
    preset: Preset = "api"
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """existed: the study was there already, under the name that it got then."""

    study: Study
    existed: bool


def import_keep(
    *,
    org: Org,
    user: User,
    actor: str,
    content: bytes,
    trials: Sequence[ImportedTrial],
    targets: Sequence[SlaTarget],
    labels: Labels,
) -> list[Kept]:
    """The studies of `trials`, which are those of `content`; made where they do not exist yet.

    Raises ImportRefused for a file with too many benchmarks or requests.
    """
    if len(trials) > MOST_STUDIES:
        told = f"holds {len(trials)} benchmarks; at most {MOST_STUDIES} are kept at once: split it"
        raise ImportRefused("file", told)
    sha256, now = hashlib.sha256(content).hexdigest(), timezone.now()
    several = len(trials) > 1
    ready = [
        convert(
            trial,
            sha256=sha256,
            benchmark=at,
            targets=targets,
            name=f"{labels.name}: {trial.label}" if labels.name and several else labels.name,
            preset=labels.preset,
            hardware=labels.hardware,
            imported_at_s=now.timestamp(),
        )
        for at, trial in enumerate(trials)
    ]
    try:
        with transaction.atomic():
            return [_kept(org, user, actor, one, now) for one in ready]
    except IntegrityError:
        # Two at once: the first one made them.
        ids = [_study_id(org, one) for one in ready]
        found = list(Study.objects.filter(org=org, pk__in=ids).order_by("number"))
        if len(found) < len(ids):
            raise
        return [Kept(study, existed=True) for study in found]


def _study_id(org: Org, one: ImportedStudy) -> uuid.UUID:
    targets = sorted(target.model_dump_json() for target in one.spec.targets)
    labels = (one.spec.workload.preset, one.result.environment.device)
    key = ("import", one.config.sha256, str(one.config.benchmark), *labels, *targets)
    return uuid.uuid5(org.pk, "\n".join(key))


def _kept(org: Org, user: User, actor: str, one: ImportedStudy, now: datetime) -> Kept:
    study_id = _study_id(org, one)
    found = Study.objects.filter(org=org, pk=study_id).first()
    if found is not None:
        return Kept(found, existed=True)
    number = study_number_take(org)
    study = Study.objects.create(
        id=study_id,
        org=org,
        number=number,
        name=one.spec.name,
        spec_json=one.spec.model_dump(mode="json"),
        created_by=user,
        state=StudyState.FINISHED,
        finished_at=now,
        notices=[
            f"Source: {one.config.source}. Nothing here was measured by an agent, and nothing is "
            "verified."
        ],
    )
    _trial(study, one, now)
    detail = {"sha256": one.config.sha256, "tool": one.config.tool}
    target = f"study {number} {one.spec.name}"
    audit(org=org, actor=actor, action="import.keep", target=target, detail=detail)
    advance.study_evaluate(study)
    study.refresh_from_db()
    return Kept(study, existed=False)


def _trial(study: Study, one: ImportedStudy, now: datetime) -> None:
    trial_id = uuid.uuid4()
    spec = TrialSpec(
        trial_id=str(trial_id),
        model=one.spec.model,
        engine="imported",
        workload=one.spec.workload,
        config=one.config,
    )
    trial = Trial.objects.create(
        id=trial_id,
        study=study,
        ordinal=1,
        role="current",
        title=one.title,
        reason=f"Read from a file of {one.config.tool}.",
        spec_json=spec.model_dump(mode="json"),
        state=TrialState.SUCCEEDED,
        epoch=1,
        attempts_used=1,
        finished_at=now,
    )
    attempt = Attempt.objects.create(
        trial=trial, number=1, end=AttemptEnd.SUCCEEDED, claimed_at=now, ended_at=now
    )
    payload = one.result.model_dump(mode="json")
    Result.objects.create(trial=trial, attempt=attempt, payload=payload)
