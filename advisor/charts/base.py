"""What a chart is: a takeaway, a figure and the same numbers as a table. Plain values.

Colours in a figure are token names ("token:series-1", "token:series-1/0.16"); `charts.js` and
`svg.py` resolve them, so one figure serves light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from advisor.charts.figure import Figure
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.verdict import StudyVerdict
from gpuagent.wire import SlaTarget


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the data table; numeric ones are aligned to the right."""

    name: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. Either a figure with its table, or `empty_reason` with the next step.

    title: the takeaway, a sentence with its number. note: what is drawn, n, what the band is.
    label: what a screen reader says for the picture. short: word for a switch between charts.
    tall: its stacked panels need more height.
    """

    id: str
    short: str
    title: str
    note: str
    label: str
    figure: Figure | None
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty_reason: str | None = None
    tall: bool = False

    @property
    def is_empty(self) -> bool:
        return self.figure is None


@dataclass(frozen=True, slots=True)
class ChartInput:
    """What charts are drawn from: a study, with the two trials that are compared.

    best: the trial in focus; on a trial's own page that trial. It may be `current` itself.
    """

    evidence: StudyEvidence
    current: TrialEvidence | None
    best: TrialEvidence | None

    @classmethod
    def of_study(cls, evidence: StudyEvidence, verdict: StudyVerdict) -> Self:
        return cls(evidence, verdict.current or evidence.current, verdict.best)

    @classmethod
    def of_trial(cls, evidence: StudyEvidence, trial_id: str) -> Self:
        trial = next((t for t in evidence.trials if t.trial_id == trial_id), None)
        return cls(evidence, evidence.current, trial)

    @property
    def pair(self) -> tuple[TrialEvidence, ...]:
        """Current and best, once each, in this order."""
        found = [t for t in (self.current, self.best) if t is not None]
        distinct = {t.trial_id: t for t in found}
        return tuple(distinct.values())

    def is_best(self, trial: TrialEvidence) -> bool:
        return self.best is not None and trial.trial_id == self.best.trial_id

    def is_current(self, trial: TrialEvidence) -> bool:
        return self.current is not None and trial.trial_id == self.current.trial_id

    def name(self, trial: TrialEvidence) -> str:
        if trial.spec.engine == "imported":
            return "Imported"
        return "Current" if self.is_current(trial) else f"Trial {trial.ordinal}"

    def place(self, trial: TrialEvidence) -> str:
        """Where a number holds, inside a sentence."""
        if trial.spec.engine == "imported":
            return "the imported result"
        current = self.is_current(trial)
        return "the current configuration" if current else f"trial {trial.ordinal}"

    def target(self, metric: str) -> SlaTarget | None:
        """The first target on `metric`."""
        return next((t for t in self.evidence.spec.targets if t.metric == metric), None)


Builder = Callable[[ChartInput], Chart]


def empty(chart_id: str, short: str, title: str, reason: str) -> Chart:
    """A chart without data: same box, one sentence with reason and next step."""
    return Chart(
        id=chart_id,
        short=short,
        title=title,
        note="",
        label=reason,
        figure=None,
        columns=(),
        rows=(),
        empty_reason=reason,
    )


def nothing_yet(data: ChartInput, what: str) -> str:
    """Why there is no `what`: still to come, or never."""
    if data.evidence.cancelled:
        return f"The study was cancelled before {what} was measured."
    if data.evidence.finished:
        return f"No trial of this study measured {what}."
    return f"Not measured yet: {what} appears when a trial that measures it ends."
