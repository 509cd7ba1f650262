"""The report as JSON. `report_version` names the schema; keys are those of `ReportDocument`."""

from __future__ import annotations

from advisor.reports.document import ReportDocument


def to_json(document: ReportDocument) -> bytes:
    return document.model_dump_json(indent=2).encode()
