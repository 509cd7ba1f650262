"""A study's report document from its rows, for pages and API alike."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.utils import timezone

from advisor.errors import InvalidInput
from advisor.i18n import ENGLISH, speaking
from advisor.reports import (
    EXPORTERS,
    MEDIA_TYPES,
    RECORDS,
    ReportContext,
    ReportDocument,
    report_document,
)
from advisor.studies.evidence import build_evidence
from advisor.studies.models import Study
from advisor.studies.selectors import StudyView, study_view


def study_report(
    study: Study, view: StudyView | None = None, *, shared: bool = False
) -> ReportDocument:
    """The report as of now; `view` spares a second reading where the caller has it.

    shared: for somebody without an account, so without the address of the dashboard.
    """
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
            url="" if shared else f"{settings.PUBLIC_URL}/studies/{study.pk}/",
        ),
    )


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A study's report in one format, as it goes over the wire."""

    content: bytes
    media_type: str
    filename: str


def rendered(document: ReportDocument, fmt: str, language: str = ENGLISH) -> bytes:
    """The document in a registered format. HTML, PDF and Markdown are read by people and follow
    `language`; what programs read is English. Names that users gave are never translated.
    """
    names = {document.name, document.context.organisation, document.spec.model.label}
    with speaking(language, names):
        return EXPORTERS[fmt].render(document)


def report_file(study: Study, fmt: str, language: str = ENGLISH) -> ReportFile:
    """Raises InvalidInput for an unknown format, `PdfUnavailable` where no PDF can be printed."""
    if fmt in RECORDS:
        records, evidence = RECORDS[fmt], build_evidence(study)
        content, filename = records.render(evidence), records.filename(evidence)
    elif fmt in EXPORTERS:
        exporter, document = EXPORTERS[fmt], study_report(study)
        content, filename = rendered(document, fmt, language), exporter.filename(document)
    else:
        text = f"Choose one of {', '.join(sorted(MEDIA_TYPES))}."
        raise InvalidInput(f"format: {text}", {"format": [text]})
    return ReportFile(content, MEDIA_TYPES[fmt], filename)
