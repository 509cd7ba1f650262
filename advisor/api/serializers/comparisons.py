"""A comparison of trials as the API shows it: the numbers of the Compare page."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from advisor.api.serializers.base import Answer
from advisor.api.serializers.studies import METRIC_UNITS
from advisor.comparison import Delta, DifferingLine, Method, Pair, TrialComparison, Verdict
from gpuagent.wire import EngineSettings

Scalar = str | int | float | bool | None


class ComparedTrial(Answer):
    """settings: of an interleaved A/B those of the candidate. engine "simulated": not measured."""

    id: UUID
    study_id: UUID
    study_number: int
    ordinal: int
    title: str
    engine: str
    experiment: str
    settings: EngineSettings


class Difference(Answer):
    """One setting or fact that differs; values in the order of the trials, null where absent."""

    name: str
    values: list[Scalar]


class DeltaAnswer(Answer):
    """Means in `unit`. change_frac: (after - before) / before with its 95 % interval.

    no_claim: the two may not be compared on this metric, `reason` says why. n_before, n_after: how
    many runs, blocks of requests or readings (`n_of`). noise_frac: what the interval had to leave.
    noise_floor_frac: what equal halves of the reference's own A/B runs differ by, at the 95th
    percentile; null without an A/B.
    """

    metric: str
    unit: str
    verdict: Verdict
    before: float | None
    after: float | None
    change_frac: float | None
    low_frac: float | None
    high_frac: float | None
    p_value: float | None
    noise_frac: float | None
    noise_floor_frac: float | None
    n_before: int
    n_after: int
    n_of: Literal["run", "block", "reading"]
    reason: str


class PairAnswer(Answer):
    """A trial against the first one. caveat: why nothing is claimed, else null."""

    before: UUID
    after: UUID
    method: Method
    how: str
    caveat: str | None
    evidence_trial: UUID | None
    deltas: list[DeltaAnswer]


class ComparisonAnswer(Answer):
    """Only what differs is listed; settings_alike and environment_alike count the rest."""

    trials: list[ComparedTrial]
    settings: list[Difference]
    settings_alike: int
    environment: list[Difference]
    environment_alike: int
    pairs: list[PairAnswer]


def comparison_answer(found: TrialComparison) -> ComparisonAnswer:
    return ComparisonAnswer(
        trials=[
            ComparedTrial(
                id=UUID(side.trial.trial_id),
                study_id=UUID(side.evidence.study_id),
                study_number=side.evidence.number,
                ordinal=side.trial.ordinal,
                title=side.trial.title,
                engine=side.trial.spec.engine,
                experiment=side.trial.spec.experiment,
                settings=side.settings,
            )
            for side in found.sides
        ],
        settings=_differences(found.settings),
        settings_alike=found.settings_alike,
        environment=_differences(found.environment),
        environment_alike=found.environment_alike,
        pairs=[_pair(pair) for pair in found.pairs],
    )


def _differences(lines: tuple[DifferingLine, ...]) -> list[Difference]:
    return [
        Difference.model_validate({"name": line.name, "values": list(line.values)})
        for line in lines
    ]


def _pair(pair: Pair) -> PairAnswer:
    return PairAnswer(
        before=UUID(pair.before.trial.trial_id),
        after=UUID(pair.after.trial.trial_id),
        method=pair.method,
        how=pair.how,
        caveat=pair.caveat or None,
        evidence_trial=UUID(pair.evidence_trial_id) if pair.evidence_trial_id else None,
        deltas=[_delta(delta) for delta in pair.deltas],
    )


def _delta(delta: Delta) -> DeltaAnswer:
    return DeltaAnswer(
        metric=delta.metric,
        unit=METRIC_UNITS[delta.metric],
        verdict=delta.verdict,
        before=delta.before,
        after=delta.after,
        change_frac=delta.change_frac,
        low_frac=delta.low_frac,
        high_frac=delta.high_frac,
        p_value=delta.p_value,
        noise_frac=delta.noise_frac,
        noise_floor_frac=delta.noise_floor_frac,
        n_before=delta.n[0],
        n_after=delta.n[1],
        n_of=delta.unit_of_n,
        reason=delta.reason,
    )
