"""The configuration as JSON. `export_version` names the schema: keys are `ExportDocument`'s."""

from __future__ import annotations

from advisor.exports.document import ExportDocument


def to_json(document: ExportDocument) -> bytes:
    return document.model_dump_json(indent=2).encode()
