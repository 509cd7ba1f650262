"""The guided diagnoses of a study from its rows, for pages and API alike."""

from __future__ import annotations

from advisor.diagnoses import DIAGNOSES, Diagnosis, throughput_walk
from advisor.errors import InvalidInput, NotFound
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Study
from advisor.studies.numbers import trial_number


def study_diagnoses(study: Study, *, trial: str | None = None) -> tuple[Diagnosis, ...]:
    """All of them. trial: number of the changed trial; raises InvalidInput that names the field."""
    return tuple(study_diagnosis(study, name, trial=trial) for name in DIAGNOSES)


def study_diagnosis(study: Study, name: str, *, trial: str | None = None) -> Diagnosis:
    """Raises NotFound for another name, InvalidInput for a trial that cannot be compared."""
    if name not in DIAGNOSES:
        raise NotFound("There is no such diagnosis.")
    evidence = build_evidence(study)
    if name != "throughput":
        return DIAGNOSES[name](evidence)
    try:
        return throughput_walk(evidence, trial_number(trial))
    except KeyError as error:
        text = f"{str(error.args[0])[:1].upper()}{str(error.args[0])[1:]}."
        raise InvalidInput(f"trial: {text}", {"trial": [text]}) from None
