"""An imported trial as what a study is made of: spec, source and result. Pure.

What the file does not tell stays untold: None with a reason, a length of kind `unknown`, a host
that is None. Single requests are taken over as they are and never made up from sums.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from advisor.comparable import UNKNOWN_HARDWARE
from advisor.imports.errors import ImportRefused
from advisor.imports.judge import hidden_tokens
from advisor.imports.model import ImportedTrial
from advisor.reported import NOT_IN_FILE
from gpuagent.request_metrics import request_metrics, throughput
from gpuagent.wire import (
    EnvironmentSnapshot,
    ImportedModel,
    LengthSpec,
    Quantity,
    SlaTarget,
    StudySpec,
    TrialResult,
    Workload,
)
from gpuagent.wire.imported import ImportedConfig
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.measure import Validity, ValidityCheck
from gpuagent.wire.trial import ImportedResult
from gpuagent.wire.units import TypedName
from gpuagent.wire.workload import Preset

MOST_REQUESTS = 100_000
_LONGEST_TOKENS = 10_000_000
_TYPED: TypeAdapter[str] = TypeAdapter(TypedName)
_NO_MODEL = "model not in the file"


@dataclass(frozen=True, slots=True)
class ImportedStudy:
    """One benchmark of a file, ready to be stored."""

    spec: StudySpec
    title: str
    config: ImportedConfig
    result: TrialResult


def convert(
    trial: ImportedTrial,
    *,
    sha256: str,
    benchmark: int,
    targets: Sequence[SlaTarget] = (),
    name: str = "",
    preset: Preset = "api",
    hardware: str = "",
    imported_at_s: float,
) -> ImportedStudy:
    """The study of one benchmark. sha256: of the file. name, hardware: as whoever keeps it calls
    them. Raises ImportRefused where it holds more requests than a trial may, or what a study may
    not; its field is of the file, or `name`, `hardware`, `targets`."""
    if len(trial.records) > MOST_REQUESTS:
        raise ImportRefused("file", f"holds more than {MOST_REQUESTS:,} requests: split it")
    config = ImportedConfig(
        tool=trial.tool,
        tool_version=trial.tool_version,
        sha256=sha256,
        benchmark=benchmark,
    )
    keys = [target.key for target in targets]
    if len(set(keys)) < len(keys):
        raise ImportRefused("targets", "name one metric and percentile twice: keep one of them")
    name, hardware = _typed("name", name), _typed("hardware", hardware)
    try:
        return _study(trial, config, targets, name, preset, hardware, imported_at_s)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise ImportRefused(where, str(first["msg"])[:300]) from None


def _typed(field: str, text: str) -> str:
    """What a person typed, or "". Raises ImportRefused for markup and control characters."""
    try:
        return _TYPED.validate_python(text) if text.strip() else ""
    except ValidationError:
        raise ImportRefused(field, "must hold no markup and no control characters") from None


def _study(
    trial: ImportedTrial,
    config: ImportedConfig,
    targets: Sequence[SlaTarget],
    name: str,
    preset: Preset,
    hardware: str,
    imported_at_s: float,
) -> ImportedStudy:
    from_file = re.sub("[<>]", "", f"{trial.tool}: {trial.label}")
    spec = StudySpec(
        name=(name or from_file)[:120],
        model=ImportedModel(name=trial.model or _NO_MODEL),
        engine="imported",
        workload=_workload(trial, preset),
        targets=tuple(targets),
    )
    result = TrialResult(
        measurements=_result(trial),
        environment=EnvironmentSnapshot(
            host=None,
            device=hardware or UNKNOWN_HARDWARE,
            versions={trial.tool: trial.tool_version} if trial.tool_version else {},
        ),
        validity=_validity(trial),
        started_at_s=imported_at_s,
        duration_s=trial.duration_s.value or 0.0,
    )
    return ImportedStudy(spec=spec, title=trial.label, config=config, result=result)


def _workload(trial: ImportedTrial, preset: Preset) -> Workload:
    good = [record for record in trial.records if record.error is None]
    inputs, outputs = trial.mean_input_tokens, trial.mean_output_tokens
    if good and inputs is None:
        inputs = sum(record.input_tokens for record in good) / len(good)
    if good and outputs is None:
        outputs = sum(record.output_tokens for record in good) / len(good)
    return Workload(
        preset=preset,
        input_tokens=_length(inputs),
        output_tokens=_length(outputs),
        request_rate_per_s=trial.asked_rate_per_s if _at_rate(trial) else None,
        requests=max(1, min(trial.requests, MOST_REQUESTS)),
    )


def _length(mean: float | None) -> LengthSpec:
    if mean is None or not 0 < mean <= _LONGEST_TOKENS:
        return LengthSpec(kind="unknown", mean=1)
    return LengthSpec(kind="measured", mean=max(1, round(mean)))


def _at_rate(trial: ImportedTrial) -> bool:
    """Whether requests left at times of their own, with nothing that held them back."""
    rate = trial.asked_rate_per_s
    return trial.loop == "open" and rate is not None and 0 < rate <= 100_000


def _result(trial: ImportedTrial) -> ImportedResult:
    absent = Quantity(reason="load tools do not measure it")
    counted = throughput(request_metrics(trial.records)).value_tok_s if trial.records else None
    return ImportedResult(
        model=LoadedModel(
            architecture=NOT_IN_FILE,
            dtype=NOT_IN_FILE,
            attention=NOT_IN_FILE,
            device=NOT_IN_FILE,
            params=None,
            stored_weight_bytes=None,
            random_weights=False,
        ),
        cells=(),
        requests=trial.records,
        arrivals="poisson" if _at_rate(trial) else "closed_loop",
        window_s=_window_s(trial),
        peak_memory_bytes=absent,
        memory_kind="unknown",
        joules_per_token=absent,
        idle_power_w=absent,
        net_joules_per_token=absent,
        read_bandwidth_bytes_s=absent,
        perplexity_reason="load tools do not measure it",
        loop=trial.loop,
        concurrency=trial.concurrency,
        asked_rate_per_s=trial.asked_rate_per_s,
        sent=trial.requests,
        failed=trial.failed,
        requests_per_s=trial.requests_per_s,
        output_tok_s=trial.output_tok_s,
        metrics=trial.metrics,
        hidden_tokens=bool(trial.records) and hidden_tokens(trial, counted),
        notes=trial.notes,
    )


def _window_s(trial: ImportedTrial) -> float:
    """Of the file, else of its requests or of their rate; 0 where none of them tells."""
    if trial.duration_s.value is not None:
        return trial.duration_s.value
    ends = [record.token_s[-1] for record in trial.records if record.token_s]
    rate = trial.requests_per_s.value
    return max(ends, default=trial.requests / rate if rate else 0.0)


def _validity(trial: ImportedTrial) -> Validity:
    """Never better than a warning: nobody watched the tool's client."""
    checks = [
        ValidityCheck(
            id="imported",
            verdict="warn",
            message="Not measured by an agent: whether the client of "
            f"{trial.tool} was the bottleneck is not known",
        ),
        ValidityCheck(
            id="send_lag",
            verdict="not_checked",
            message="the tool does not tell when it meant to send",
        ),
    ]
    if trial.failed:
        checks.append(
            ValidityCheck(
                id="requests_completed",
                verdict="warn",
                message=f"{trial.failed:,} of {trial.requests:,} requests failed",
                value=trial.failed / max(1, trial.requests),
                limit=0,
            )
        )
    return Validity(checks=tuple(checks))
