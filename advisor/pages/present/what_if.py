"""What the what-if page prints: target cells and the ranking as a table."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.pages.present.targets import TargetCell, target_cells
from advisor.pages.present.trials import TrialsTable, trials_table
from advisor.reports import words
from advisor.what_if import Ranked, WhatIf


@dataclass(frozen=True, slots=True)
class RankLine:
    """place: 1 for the best. distance: of the worst target to its limit."""

    place: int
    trial_id: str
    title: str
    outcome: str
    distance: str
    price: str
    is_best: bool


@dataclass(frozen=True, slots=True)
class WhatIfPage:
    sentence: str
    lede: str
    status: tuple[str, str]
    targets: tuple[TargetCell, ...]
    ranking: tuple[RankLine, ...]
    priced: bool
    table: TrialsTable
    before: str
    """The study's own sentence, to compare with."""


def what_if_page(found: WhatIf, before: str) -> WhatIfPage:
    verdict = found.verdict
    best = verdict.best.trial_id if verdict.best is not None else None
    return WhatIfPage(
        sentence=verdict.sentence,
        lede=verdict.lede,
        status=words.VERDICTS[verdict.status],
        targets=target_cells(verdict.targets, verdict.current_targets),
        ranking=tuple(
            _line(place, entry, best) for place, entry in enumerate(found.ranking, start=1)
        ),
        priced=any(entry.usd_per_million is not None for entry in found.ranking),
        table=trials_table(found.evidence, verdict.best),
        before=before,
    )


def _line(place: int, entry: Ranked, best: str | None) -> RankLine:
    candidate = entry.candidate
    total = len(candidate.statuses)
    outcome = f"{candidate.met} of {total} met, {candidate.missed} missed" if total else ""
    if candidate.excluded is not None:
        outcome = candidate.excluded
    price = entry.usd_per_million
    return RankLine(
        place=place,
        trial_id=candidate.trial.trial_id,
        title=f"{candidate.trial.ordinal} · {candidate.trial.title}",
        outcome=outcome,
        distance=_distance(entry.distance_frac),
        price=units.number(price, 3) if price is not None else units.DASH,
        is_best=candidate.trial.trial_id == best,
    )


def _distance(share: float | None) -> str:
    if share is None:
        return units.DASH
    return f"{units.percent(abs(share))} {'over' if share > 0 else 'headroom'}"
