"""What every export says of itself before anything else."""

from __future__ import annotations

from advisor.exports.document import ExportDocument
from advisor.knobs import ENGINE_NAMES, knob_name, knob_text


def header(document: ExportDocument) -> list[str]:
    """Lines for comments, the proof first. They hold names as they are: quote them."""
    evidence = document.evidence
    where = f" on {evidence.hardware}" if evidence.hardware else ""
    trial = f", trial {evidence.trial}" if evidence.trial is not None else ""
    return [
        evidence.sentence,
        f"{ENGINE_NAMES[document.engine]} {document.engine_version}, study {document.study.number}"
        f" “{document.study.name}”{trial}; measured with {evidence.measured_with}{where}.",
        *(
            f"Not carried over: {knob_name(left.knob)} {knob_text(left.value)}: {left.reason}."
            for left in document.not_carried_over
        ),
        *document.notes,
    ]
