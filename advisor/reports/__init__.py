"""Reports: a study as one plain document, and its exporters. Pure.

A new format is one file `as_<format>.py`, one line in EXPORTERS and one test file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from advisor.reports.as_html import to_html
from advisor.reports.as_json import to_json
from advisor.reports.document import (
    REPORT_VERSION,
    ReportContext,
    ReportDocument,
    report_document,
)


@dataclass(frozen=True, slots=True)
class Exporter:
    """One format: how to render, and what the file is called and declared as."""

    suffix: str
    media_type: str
    render: Callable[[ReportDocument], bytes]

    def filename(self, document: ReportDocument) -> str:
        """ASCII, without path separators or quotes: safe in a Content-Disposition header."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", document.name).strip("-").lower()[:60]
        return f"study-{document.number}{'-' + words if words else ''}.{self.suffix}"


EXPORTERS: dict[str, Exporter] = {
    "html": Exporter("html", "text/html; charset=utf-8", to_html),
    "json": Exporter("json", "application/json", to_json),
}

__all__ = [
    "EXPORTERS",
    "REPORT_VERSION",
    "Exporter",
    "ReportContext",
    "ReportDocument",
    "report_document",
]
