"""Answers to "what if": the verdict and the ranking under other targets or another price."""

from __future__ import annotations

from advisor.api.serializers.base import Answer
from advisor.api.serializers.studies import (
    TargetAnswer,
    VerdictAnswer,
    target_answer,
    verdict_answer,
)
from advisor.rules.rule import Finding
from advisor.what_if import Ranked, WhatIf
from gpuagent.wire import EngineSettings


class RankedAnswer(Answer):
    """A measured configuration.

    worst_distance_frac: of the worst target to its limit, negative inside the limits.
    excluded: why it may not be recommended. usd_per_million_output_tokens: at the throughput the
    trial measured, which is no capacity.
    """

    trial_id: str
    ordinal: int
    title: str
    settings: EngineSettings
    met: int
    missed: int
    worst_distance_frac: float | None
    excluded: str | None
    usd_per_million_output_tokens: float | None
    targets: list[TargetAnswer]


class WhatIfAnswer(Answer):
    """ranking: best first. Nothing of it is stored."""

    verdict: VerdictAnswer
    ranking: list[RankedAnswer]
    findings: list[Finding]


def what_if_answer(found: WhatIf) -> WhatIfAnswer:
    return WhatIfAnswer(
        verdict=verdict_answer(found.verdict),
        ranking=[_ranked(entry) for entry in found.ranking],
        findings=list(found.findings),
    )


def _ranked(entry: Ranked) -> RankedAnswer:
    trial = entry.candidate.trial
    return RankedAnswer(
        trial_id=trial.trial_id,
        ordinal=trial.ordinal,
        title=trial.title,
        settings=trial.settings,
        met=entry.candidate.met,
        missed=entry.candidate.missed,
        worst_distance_frac=entry.distance_frac,
        excluded=entry.candidate.excluded,
        usd_per_million_output_tokens=entry.usd_per_million,
        targets=[target_answer(status) for status in entry.candidate.statuses],
    )
