"""Cells of the target strip: value, interval, bullet, limit, headroom, current value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor import units
from advisor.reports import words
from advisor.targets import TargetStatus, limit_text, target_name

# The larger of value and limit stands at this share of the bullet, so that both ends have room.
_FULL = 89.29


@dataclass(frozen=True, slots=True)
class Bullet:
    """Geometry of `components/bullet.html` on a scale of 0 to 100; None: nothing to draw."""

    kind: str
    fill: float
    limit: float
    ci_x: float | None
    ci_width: float | None


@dataclass(frozen=True, slots=True)
class TargetCell:
    name: str
    definition: str
    kind: str
    word: str
    value: str
    unit: str
    range_text: str
    bullet: Bullet | None
    limit: str
    headroom: str
    reason: str
    n_text: str
    current: str | None
    current_kind: str
    current_word: str


def target_cells(
    best: Sequence[TargetStatus], current: Sequence[TargetStatus]
) -> tuple[TargetCell, ...]:
    """One cell per target; `current` may be empty or the same as `best`."""
    by_key = {status.target.key: status for status in current}
    return tuple(_cell(status, by_key.get(status.target.key)) for status in best)


def _cell(status: TargetStatus, current: TargetStatus | None) -> TargetCell:
    target = status.target
    kind, word = words.TARGETS[status.verdict]
    value, _, unit = units.metric(target.metric, status.value).partition(units.NBSP)
    apart = current is not None and current.trial_id != status.trial_id
    current_kind, current_word = words.TARGETS[current.verdict if current else "not_measured"]
    sign = "≥" if target.higher_is_better else "≤"
    return TargetCell(
        name=target_name(target),
        definition=units.METRIC_DEFINITIONS[target.metric],
        kind=kind,
        word=word,
        value=value,
        unit=unit,
        range_text=_range(status),
        bullet=bullet(status),
        limit=f"{sign} {limit_text(target)}",
        headroom=headroom_text(status),
        reason=status.reason,
        n_text=f"n = {status.n:,}"
        if status.n and status.basis in ("measured", "simulated", "imported")
        else "",
        current=units.metric(target.metric, current.value) if apart and current else None,
        current_kind=current_kind,
        current_word=current_word,
    )


def _range(status: TargetStatus) -> str:
    if status.value is None:
        return ""
    if status.basis == "exact":
        return "exact"
    if status.low is None or status.high is None:
        imported = status.basis == "imported"
        return "no interval: reported by the tool" if imported else "no interval: measured once"
    low, _, low_unit = units.metric(status.target.metric, status.low).partition(units.NBSP)
    high, _, high_unit = units.metric(status.target.metric, status.high).partition(units.NBSP)
    if low_unit == high_unit:
        return f"{low}–{high}"
    return f"{low}{units.NBSP}{low_unit} to {high}{units.NBSP}{high_unit}"


def headroom_text(status: TargetStatus, *, short: bool = False) -> str:
    """ "18 % headroom", "29 % over", "2.1 × the limit"; empty where nothing was measured."""
    share = status.headroom_frac
    if share is None:
        return ""
    if share >= 0:
        return units.percent(share) if short else f"{units.percent(share)} headroom"
    if status.target.higher_is_better:
        return f"{units.percent(-share)} short"
    if share > -1:
        return f"{units.percent(-share)} over"
    times = f"{units.number(1 - share, 2)}{units.NBSP}×"
    return f"{times} limit" if short else f"{times} the limit"


def bullet(status: TargetStatus) -> Bullet | None:
    """Measured against limit: the tick is the limit, the dark part the interval."""
    value, limit = status.value, status.target.limit
    if value is None or value <= 0:
        return None
    kind = {"met": "good", "missed": "bad", "not_proven": "warn"}.get(status.verdict, "na")
    scale = _FULL / max(value, limit)
    ci_x = ci_width = None
    if status.low is not None and status.high is not None and status.high > status.low:
        ci_x = status.low * scale
        ci_width = max(min(status.high * scale, 100.0) - ci_x, 0.8)
    return Bullet(
        kind=kind,
        fill=round(value * scale, 2),
        limit=round(min(limit * scale, 99.0), 2),
        ci_x=round(ci_x, 2) if ci_x is not None else None,
        ci_width=round(ci_width, 2) if ci_width is not None else None,
    )
