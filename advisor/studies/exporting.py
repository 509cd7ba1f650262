"""A configuration of a study as a file to serve it with, for pages and API alike."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.errors import Conflict, InvalidInput
from advisor.exports import EXPORTS, ExportError, export_document
from advisor.studies.models import Study
from advisor.studies.numbers import trial_number
from advisor.studies.selectors import study_view


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One export, as it goes over the wire."""

    content: bytes
    media_type: str
    filename: str


def study_export(
    study: Study,
    fmt: str,
    *,
    engine: str | None = None,
    engine_version: str | None = None,
    trial: str | None = None,
) -> ExportFile:
    """Raises InvalidInput that names the field, Conflict where nothing was measured yet.

    engine: which one a container or JSON is for; a command is for the engine that names it.
    """
    export = EXPORTS.get(fmt)
    if export is None:
        raise _invalid("format", f"Choose one of {', '.join(EXPORTS)}.")
    if engine is not None and export.engine not in (None, engine):
        raise _invalid("engine", f"The format {fmt} is a command of {export.engine}: leave it out.")
    view = study_view(study)
    try:
        document = export_document(
            view.evidence,
            view.verdict,
            engine=export.engine or engine,
            engine_version=engine_version,
            trial=trial_number(trial),
        )
    except ExportError as error:
        if error.absent:
            raise Conflict(str(error), {error.field: [str(error)]}) from None
        raise _invalid(error.field, str(error)) from None
    return ExportFile(export.render(document), export.media_type, export.filename(document))


def _invalid(field: str, text: str) -> InvalidInput:
    return InvalidInput(f"{field}: {text}", {field: [text]})
