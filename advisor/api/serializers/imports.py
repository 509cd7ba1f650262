"""Question and answer of the import endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from advisor.api.serializers.base import Answer
from advisor.api.serializers.studies import study_urls
from advisor.imports import ImportedMetric, ImportedStatus, ImportedTrial
from advisor.studies.importing import Kept
from gpuagent.wire.base import WireModel
from gpuagent.wire.measure import Quantity
from gpuagent.wire.sla import SlaTarget
from gpuagent.wire.workload import Preset


class ImportQuery(WireModel):
    """content: the file's text. targets: what every benchmark in it is judged by.

    keep: store each benchmark as a finished study, under `name`, with the scenario and the hardware
    that the file does not tell.
    """

    content: Annotated[str, Field(min_length=1)]
    targets: Annotated[tuple[SlaTarget, ...], Field(max_length=12)] = ()
    keep: bool = False
    name: Annotated[str, Field(max_length=100)] = ""
    preset: Preset = "api"
    hardware: Annotated[str, Field(max_length=100)] = ""


class ImportedTrialAnswer(Answer):
    """One benchmark. basis: the tool and its version. validity: never better than `warn`.

    single_requests: how many the file holds; without any, no target is proven.
    """

    basis: str
    validity: Literal["warn"]
    validity_reason: str
    label: str
    model: str | None
    loop: Literal["open", "closed", "unknown"]
    asked_rate_per_s: float | None
    concurrency: int | None
    requests: int
    failed: int
    single_requests: int
    duration_s: Quantity
    requests_per_s: Quantity
    output_tok_s: Quantity
    metrics: list[ImportedMetric]
    notes: list[str]
    targets: list[ImportedStatus]


class ImportedStudyAnswer(Answer):
    """One benchmark as a study. existed: it was kept before; its name is the one of then."""

    id: UUID
    number: int
    name: str
    dashboard: str
    existed: bool


class ImportAnswer(Answer):
    """The benchmarks of the file in its order, and the studies that they were kept as."""

    trials: list[ImportedTrialAnswer]
    studies: list[ImportedStudyAnswer]


def import_answer(
    judged: Sequence[tuple[ImportedTrial, tuple[ImportedStatus, ...]]],
    studies: Sequence[Kept] = (),
) -> ImportAnswer:
    return ImportAnswer(
        trials=[_trial(trial, statuses) for trial, statuses in judged],
        studies=[
            ImportedStudyAnswer(
                id=kept.study.pk,
                number=kept.study.number,
                name=kept.study.name,
                dashboard=study_urls(kept.study).dashboard,
                existed=kept.existed,
            )
            for kept in studies
        ],
    )


def _trial(trial: ImportedTrial, statuses: tuple[ImportedStatus, ...]) -> ImportedTrialAnswer:
    return ImportedTrialAnswer(
        basis=trial.basis,
        validity="warn",
        validity_reason="Not measured by an agent: whether the client was the bottleneck is not "
        "known",
        label=trial.label,
        model=trial.model,
        loop=trial.loop,
        asked_rate_per_s=trial.asked_rate_per_s,
        concurrency=trial.concurrency,
        requests=trial.requests,
        failed=trial.failed,
        single_requests=len(trial.records),
        duration_s=trial.duration_s,
        requests_per_s=trial.requests_per_s,
        output_tok_s=trial.output_tok_s,
        metrics=list(trial.metrics),
        notes=list(trial.notes),
        targets=list(statuses),
    )
