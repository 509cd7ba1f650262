"""Reports: a study as one plain document, and its exporters. Pure.

A new format is one file `as_<format>.py`, one line in EXPORTERS and one test file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from advisor.evidence import StudyEvidence
from advisor.reports.as_csv import to_csv
from advisor.reports.as_html import to_html
from advisor.reports.as_json import to_json
from advisor.reports.as_md import to_md
from advisor.reports.as_pdf import to_pdf
from advisor.reports.document import (
    REPORT_VERSION,
    ReportContext,
    ReportDocument,
    report_document,
)
from advisor.reports.request_records import requests_csv

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Exporter(Generic[Source]):
    """One format: how to render, and what the file is called and declared as."""

    label: str
    suffix: str
    media_type: str
    render: Callable[[Source], bytes]

    def filename(self, study: ReportDocument | StudyEvidence) -> str:
        """ASCII, without path separators or quotes: safe in a Content-Disposition header."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", study.name).strip("-").lower()[:60]
        return f"study-{study.number}{'-' + words if words else ''}.{self.suffix}"


EXPORTERS: dict[str, Exporter[ReportDocument]] = {
    "html": Exporter("HTML", "html", "text/html; charset=utf-8", to_html),
    "pdf": Exporter("PDF", "pdf", "application/pdf", to_pdf),
    "md": Exporter("Markdown", "md", "text/markdown; charset=utf-8", to_md),
    "json": Exporter("JSON", "json", "application/json", to_json),
    "csv": Exporter("CSV of trials", "csv", "text/csv; charset=utf-8", to_csv),
}

RECORDS: dict[str, Exporter[StudyEvidence]] = {
    "requests": Exporter(
        "CSV of requests", "requests.csv", "text/csv; charset=utf-8", requests_csv
    ),
}
"""Raw records, too many for the document: made from the evidence itself."""

MEDIA_TYPES = {name: exporter.media_type for name, exporter in (EXPORTERS | RECORDS).items()}
LABELS = {name: exporter.label for name, exporter in (EXPORTERS | RECORDS).items()}
"""Every format that a study can be had in."""

__all__ = [
    "EXPORTERS",
    "LABELS",
    "MEDIA_TYPES",
    "RECORDS",
    "REPORT_VERSION",
    "Exporter",
    "ReportContext",
    "ReportDocument",
    "report_document",
]
