"""JSON Schema of the JSON report, as it is published in docs/report.schema.json."""

from __future__ import annotations

from typing import Any

from advisor.reports.document import REPORT_VERSION, ReportDocument


def report_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of what `as_json` writes."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ReportDocument.model_json_schema(mode="serialization"),
        "title": f"LLM Tuning Advisor report, version {REPORT_VERSION}",
    }
