"""A study's report document from its rows, for pages and API alike."""

from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from advisor.reports import ReportContext, ReportDocument, report_document
from advisor.studies.models import Study
from advisor.studies.selectors import StudyView, study_view


def study_report(study: Study, view: StudyView | None = None) -> ReportDocument:
    """The report as of now; `view` spares a second reading where the caller has it."""
    seen = view or study_view(study)
    return report_document(
        seen.evidence,
        seen.findings,
        seen.verdict,
        ReportContext(
            organisation=study.org.name,
            created_at=study.created_at,
            finished_at=study.finished_at,
            generated_at=timezone.now(),
            advisor_version=settings.VERSION,
            url=f"{settings.PUBLIC_URL}/studies/{study.pk}/",
        ),
    )
