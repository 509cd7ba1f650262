"""The gate of a study, from rows: looks the baseline up in the same organisation."""

from __future__ import annotations

from uuid import UUID

from advisor.errors import InvalidInput, NotFound
from advisor.gate import GateReport, gate
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Study
from advisor.studies.selectors import study_get


def study_gate(*, study: Study, baseline_id: UUID | None) -> GateReport:
    """Raises Conflict for an unfinished study, InvalidInput for a baseline that is none."""
    baseline = None
    if baseline_id is not None:
        try:
            baseline = build_evidence(study_get(org=study.org, study_id=baseline_id))
        except NotFound as error:
            raise InvalidInput(
                "baseline: There is no such study.", {"baseline": ["There is no such study."]}
            ) from error
    return gate(build_evidence(study), baseline)
