"""Other targets or another price, judged by what a study has already measured. Pure.

Nothing is run and nothing is stored: targets are only how evidence is read, so verdict and ranking
follow from the stored samples at once. What the evidence cannot answer stays not proven; a
verification that the study made counts for the metric that now decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from advisor.candidates import Candidate, candidates
from advisor.evidence import StudyEvidence
from advisor.rules import engine
from advisor.rules.rule import Finding
from advisor.targets import output_tok_s
from advisor.verdict import StudyVerdict, study_verdict
from gpuagent.wire import SlaTarget, StudySpec

MAX_USD_PER_HOUR = 100_000.0


class WhatIfQuery(BaseModel):
    """targets: null keeps the study's own. usd_per_hour: price of the whole machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    targets: Annotated[tuple[SlaTarget, ...], Field(max_length=12)] | None = None
    usd_per_hour: Annotated[float, Field(gt=0, le=MAX_USD_PER_HOUR)] | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A measured configuration in its new place.

    usd_per_million: USD per million output tokens at the throughput the trial measured, which is
    that of its own load and no capacity; None without a price or a throughput.
    """

    candidate: Candidate
    usd_per_million: float | None

    @property
    def distance_frac(self) -> float | None:
        """Of the worst target to its limit, as a share of it; None where nothing was measured."""
        found = self.candidate.worst_distance
        return found if abs(found) != float("inf") else None


@dataclass(frozen=True, slots=True)
class WhatIf:
    evidence: StudyEvidence
    findings: tuple[Finding, ...]
    verdict: StudyVerdict
    ranking: tuple[Ranked, ...]


def what_if(evidence: StudyEvidence, query: WhatIfQuery) -> WhatIf:
    """Verdict, findings and ranking under the query. Raises pydantic.ValidationError where two
    targets name the same statistic."""
    spec = evidence.spec
    if query.targets is not None:
        # Without a latency at a percentile there is nothing that a highest rate could keep.
        searched = spec.boundary and any(t.percentile is not None for t in query.targets)
        asked = {"targets": query.targets, "boundary": searched}
        spec = StudySpec.model_validate({**spec.model_dump(), **asked})
    changed = replace(evidence, spec=spec)
    findings = tuple(engine.evaluate(changed))
    return WhatIf(
        evidence=changed,
        findings=findings,
        verdict=study_verdict(changed, findings),
        ranking=tuple(
            Ranked(candidate, _usd_per_million(candidate, query.usd_per_hour))
            for candidate in ranked(candidates(changed))
        ),
    )


def ranked(found: Sequence[Candidate]) -> list[Candidate]:
    """Best first: those that may be recommended, by targets met, then missed, then distance.

    Differences within the noise keep the order of the trials, the current settings first.
    """
    return sorted(
        found,
        key=lambda c: (c.excluded is not None, -c.met, c.missed, round(c.worst_distance, 2)),
    )


def _usd_per_million(candidate: Candidate, usd_per_hour: float | None) -> float | None:
    rate = output_tok_s(candidate.trial)
    if usd_per_hour is None:
        return None
    return usd_per_hour / (rate * 3600) * 1e6 if rate else None
