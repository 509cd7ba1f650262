"""The report as PDF: the HTML report, printed by a headless Chromium on the server."""

from __future__ import annotations

from advisor.reports.as_html import to_html
from advisor.reports.browser import print_pdf
from advisor.reports.document import ReportDocument


def to_pdf(document: ReportDocument) -> bytes:
    """Raises `browser.PdfUnavailable` where no browser is installed or it does not print."""
    return print_pdf(to_html(document))
