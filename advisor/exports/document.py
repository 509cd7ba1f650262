"""`ExportDocument`: one configuration of a study, ready to be served. Every format renders this.

Pure. What it says about itself is part of it: whether an A/B proved the gain, on what it was
measured, and which settings the serving engine has no flag for. Names come from users and agents
and are data: quoting is each format's own business, and nothing is formatted here.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from advisor import flags
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.exports.arguments import (
    SERVING_ENGINES,
    ServedModel,
    ServingEngine,
    arguments,
    image,
    parallel_degrees,
    start_words,
)
from advisor.exports.launch import SIMULATED, code_lines
from advisor.knobs import ENGINE_NAMES
from advisor.targets import trial_metrics
from advisor.verdict import StudyVerdict
from gpuagent.wire import EngineSettings, SimulatedModel
from gpuagent.wire.trial import BaselineResult

EXPORT_VERSION: Final = 1
"""Raised with every change that a reader of the JSON export would misread."""

Scalar = str | int | float | bool | None


class ExportError(ValueError):
    """What cannot be exported. field: of the request; absent: there is nothing to export yet."""

    def __init__(self, field: str, message: str, *, absent: bool = False) -> None:
        super().__init__(message)
        self.field = field
        self.absent = absent


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ExportStudy(_Value):
    id: str
    number: int
    name: str


class ExportFlag(_Value):
    """One knob as this engine's words; none where the engine's default does it."""

    knob: str
    value: Scalar
    words: tuple[str, ...]
    changed: bool


class ExportLeft(_Value):
    """A knob that was set and that this engine has no flag for."""

    knob: str
    value: Scalar
    reason: str


class ExportEvidence(_Value):
    """verified: an interleaved A/B proved the gain, in this engine. sentence: the same in words.

    trial: the number of the trial that measured the settings, None where none did.
    """

    verified: bool
    sentence: str
    measured_with: str
    hardware: str | None
    trial: int | None


class ExportSizing(_Value):
    """What a deployment needs beside the flags. start_s: measured start without download.

    longest_answer_s: of the measured requests, in this engine. weight_bytes: of the model.
    """

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    start_s: float | None
    longest_answer_s: float | None
    weight_bytes: int | None

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


class ExportDocument(_Value):
    """The whole export; `argv` is what a container runs, models in /models."""

    export_version: Literal[1] = EXPORT_VERSION
    study: ExportStudy
    model: ServedModel
    engine: ServingEngine
    engine_version: str
    image: str
    settings: dict[str, Scalar]
    flags: tuple[ExportFlag, ...]
    not_carried_over: tuple[ExportLeft, ...]
    argv: tuple[str, ...]
    code: tuple[str, ...]
    notes: tuple[str, ...]
    sizing: ExportSizing
    evidence: ExportEvidence


MODELS_FOLDER: Final = "/models"


def export_document(
    evidence: StudyEvidence,
    verdict: StudyVerdict,
    *,
    engine: str | None = None,
    engine_version: str | None = None,
    trial: int | None = None,
) -> ExportDocument:
    """The recommended settings, those of trial number `trial`, or today's where nothing is better.

    engine: of `SERVING_ENGINES`; by default the study's own, vLLM where it serves nothing.
    engine_version: of the flag catalogue; by default the measured one, else the newest.
    Raises ExportError.
    """
    settings, source = _settings(evidence, verdict, trial)
    if evidence.spec.engine == "imported":
        raise ExportError("study", "An imported result tells no settings to serve.", absent=True)
    target = _engine(evidence, engine)
    version = _version(target, engine_version, source)
    spec = evidence.spec
    model = ServedModel.of(spec.model)
    carried, left = arguments(target, settings)
    changed = spec.current.differences(settings)
    words = [word for argument in carried for word in argument.words]
    measured = source if source is not None and str(spec.engine) == target else None
    tensor, pipeline, data = parallel_degrees(settings)
    in_process = spec.engine == "transformers"
    return ExportDocument(
        study=ExportStudy(id=evidence.study_id, number=evidence.number, name=evidence.name),
        model=model,
        engine=target,
        engine_version=version,
        image=image(target, version),
        settings=settings.model_dump(mode="json"),
        flags=tuple(
            ExportFlag(knob=a.knob, value=a.value, words=a.words, changed=a.knob in changed)
            for a in carried
        ),
        not_carried_over=tuple(
            ExportLeft(knob=n.knob, value=n.value, reason=n.reason) for n in left
        ),
        argv=(
            *start_words(target),
            *model.words(target, folder=MODELS_FOLDER),
            *words,
        ),
        code=tuple(x.text for x in code_lines(spec.model, settings, spec.current))
        if in_process
        else (),
        notes=tuple(n for n in (model.note, _hardware_note(evidence)) if n),
        sizing=ExportSizing(
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            data_parallel=data,
            start_s=_start_s(measured),
            longest_answer_s=_longest_answer_s(measured),
            weight_bytes=_weight_bytes(source) if spec.engine != "simulated" else None,
        ),
        evidence=_evidence(evidence, verdict, settings, source, target),
    )


# --- what is exported --------------------------------------------------------------------------


def _settings(
    evidence: StudyEvidence, verdict: StudyVerdict, trial: int | None
) -> tuple[EngineSettings, TrialEvidence | None]:
    """The settings and the trial that measured them."""
    if trial is not None:
        found = next((t for t in evidence.trials if t.ordinal == trial), None)
        if found is None:
            last = max((t.ordinal for t in evidence.trials), default=0)
            fix = f"Give a number from 1 to {last}." if last else "The study has no trials yet."
            raise ExportError("trial", f"There is no trial {trial} in this study. {fix}")
        return found.settings, found if found.result is not None else None
    if verdict.recommended is not None:
        return verdict.recommended, verdict.best
    current = evidence.current
    if current is None or not current.usable:
        raise ExportError(
            "trial",
            "No configuration of this study has a valid measurement. Wait for its first trial, or "
            "name a trial whose settings you want.",
            absent=True,
        )
    return current.settings, current


def _engine(evidence: StudyEvidence, asked: str | None) -> ServingEngine:
    own = str(evidence.spec.engine)
    wanted = asked or (own if own in SERVING_ENGINES else "vllm")
    for engine in SERVING_ENGINES:
        if wanted == engine:
            return engine
    raise ExportError("engine", f"Choose one of {', '.join(SERVING_ENGINES)}.")


def _version(engine: ServingEngine, asked: str | None, source: TrialEvidence | None) -> str:
    known = flags.versions()[engine]
    if asked is not None and asked not in known:
        raise ExportError("engine_version", f"Choose one of {', '.join(known)}.")
    measured = None
    if source is not None and source.result is not None:
        measured = source.result.environment.versions.get(engine)
    return asked or (measured if measured in known else known[0])


# --- what it says about itself -----------------------------------------------------------------


def _evidence(
    evidence: StudyEvidence,
    verdict: StudyVerdict,
    settings: EngineSettings,
    source: TrialEvidence | None,
    engine: ServingEngine,
) -> ExportEvidence:
    own = str(evidence.spec.engine)
    proven = verdict.verification == "verified" and settings == verdict.recommended
    device = evidence.device
    simulated = isinstance(evidence.spec.model, SimulatedModel)
    return ExportEvidence(
        verified=proven and own == engine,
        sentence=_sentence(evidence, verdict, settings, source, engine, proven=proven),
        measured_with=own,
        hardware=f"{device.count} × {device.name}" if device and not simulated else None,
        trial=source.ordinal if source is not None else None,
    )


def _sentence(
    evidence: StudyEvidence,
    verdict: StudyVerdict,
    settings: EngineSettings,
    source: TrialEvidence | None,
    engine: ServingEngine,
    *,
    proven: bool,
) -> str:
    own = str(evidence.spec.engine)
    if own == "simulated":
        return f"Not verified. {SIMULATED}"
    if source is None:
        return "Not verified: these settings have no measurement."
    if not source.usable:
        return f"Not verified: the measurement of trial {source.ordinal} is invalid."
    if own != engine:
        name = ENGINE_NAMES.get(own, own)
        return f"Not verified in {ENGINE_NAMES[engine]}: the settings were measured in {name}."
    if proven:
        return f"{verdict.verification_sentence.rstrip('.')}."
    if settings == evidence.spec.current:
        return "Not verified: these are the current settings, measured once."
    if settings == verdict.recommended and verdict.verification_sentence:
        return f"Not verified. {verdict.verification_sentence.rstrip('.')}."
    return f"Not verified: measured once, in trial {source.ordinal}."


def _hardware_note(evidence: StudyEvidence) -> str | None:
    device = evidence.device
    if device is None or device.kind != "cpu" or evidence.spec.engine == "simulated":
        return None
    return "The study was measured on a CPU; the images here need a GPU."


# --- sizes -------------------------------------------------------------------------------------


def _start_s(trial: TrialEvidence | None) -> float | None:
    """From the process's start to its first answer."""
    result = trial.measured(BaselineResult) if trial is not None else None
    if result is None or result.cold is None:
        return None
    cold = result.cold
    return cold.import_s + cold.load_s + cold.warmup_s + cold.first_request_ttft_s


def _longest_answer_s(trial: TrialEvidence | None) -> float | None:
    metrics = trial_metrics(trial) if trial is not None else None
    if metrics is None or metrics.succeeded == 0:
        return None
    longest = float(metrics.e2e_s.max())
    return longest if math.isfinite(longest) else None


def _weight_bytes(trial: TrialEvidence | None) -> int | None:
    result = trial.measured(BaselineResult) if trial is not None else None
    return result.model.stored_weight_bytes if result is not None else None
