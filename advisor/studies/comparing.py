"""Which trials a person or a script asks to compare, with the evidence around them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

from advisor.accounts.models import Org
from advisor.comparison import LEAST, MOST, Side, TrialComparison, compare_trials
from advisor.errors import InvalidInput, NotFound
from advisor.evidence import StudyEvidence
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Trial
from advisor.studies.selectors import findings_of, study_get
from advisor.verdict import study_verdict


def trial_ids(values: Sequence[str], field: str = "trials") -> tuple[UUID, ...]:
    """Ids from an address, repeated or joined by commas, each once. Raises InvalidInput."""
    parts = [part.strip() for value in values for part in value.split(",") if part.strip()]
    try:
        ids = tuple(dict.fromkeys(UUID(part) for part in parts))
    except ValueError as error:
        text = "Give ids, separated by commas, as they stand in the address of a page."
        raise InvalidInput(f"{field}: {text}", {field: [text]}) from error
    if len(ids) > MOST:
        text = f"At most {MOST} can be compared; {len(ids)} were given."
        raise InvalidInput(f"{field}: {text}", {field: [text]})
    return ids


def sides_of(*, org: Org, ids: Sequence[UUID]) -> tuple[Side, ...]:
    """The trials in this order. Raises NotFound, also for another organisation's trial."""
    found = {
        trial.pk: trial
        for trial in Trial.objects.filter(study__org=org, pk__in=ids)
        .select_related("study", "study__agent")
        .defer("log_tail")
    }
    if len(found) < len(ids):
        raise NotFound("There is no such trial.")
    studies: dict[object, StudyEvidence] = {}
    sides = []
    for pk in ids:
        study = found[pk].study
        if study.pk not in studies:
            studies[study.pk] = build_evidence(study)
        evidence = studies[study.pk]
        trial = next(t for t in evidence.trials if t.trial_id == str(pk))
        sides.append(Side(evidence, trial))
    return tuple(sides)


def trials_marker(*, org: Org, ids: Sequence[UUID]) -> str:
    """Changes with the states of these trials and with every evaluation of their studies."""
    rows = Trial.objects.filter(study__org=org, pk__in=ids).order_by("pk")
    seen = rows.values_list("state", "study__state", "study__evaluated_at", "study__stale_since")
    return sha256(repr(list(seen)).encode()).hexdigest()


def best_trials(*, org: Org, study_ids: Sequence[UUID]) -> tuple[UUID, ...]:
    """The trial that each study's verdict rests on, else that of its current settings."""
    ids = []
    for study_id in study_ids:
        study = study_get(org=org, study_id=study_id)
        evidence = build_evidence(study)
        verdict = study_verdict(evidence, findings_of(study))
        trial = verdict.best or evidence.current
        if trial is None:
            text = f"Study {study.number} has no trial that can be compared."
            raise InvalidInput(f"studies: {text}", {"studies": [text]})
        ids.append(UUID(trial.trial_id))
    return tuple(dict.fromkeys(ids))


def comparison_of(*, org: Org, ids: Sequence[UUID], field: str = "trials") -> TrialComparison:
    """Raises InvalidInput for fewer than two ids, NotFound for an unknown one."""
    if len(ids) < LEAST:
        text = f"Give {LEAST} to {MOST} different ones."
        raise InvalidInput(f"{field}: {text}", {field: [text]})
    return compare_trials(sides_of(org=org, ids=ids))
