"""The verdict of a study: one sentence with the number that decides, and what to set.

Pure: evidence and findings in, words and settings out. The voice is that of the whole product:
verdict first, the number with its unit, what is not known said as such. A cancelled study has no
verdict, never a missed target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.evidence import TrialEvidence
from advisor.targets import TargetStatus
from gpuagent.wire import EngineSettings

VerdictStatus = Literal["met", "missed", "not_proven", "no_verdict", "no_targets"]
Verification = Literal["verified", "not_proven", "contradicted", "measured_once", "none"]


@dataclass(frozen=True, slots=True)
class StudyVerdict:
    """What a study says, at any moment of its life.

    sentence: the headline. lede: one or two sentences below it.
    best: the trial that the verdict rests on; it may be `current` itself.
    targets: status of every target for `best`, current_targets for `current`, in the spec's order.
    recommended: settings to use instead of the current ones; None where nothing better was found.
    changes: knob -> (current value, recommended value), empty without a recommendation.
    verification: verified = an interleaved A/B proved the gain; not_proven = it ran and proved
    neither; contradicted = it proved a loss; measured_once = not run (yet); none = nothing to do.
    noise_frac: relative difference below which two trials count as equal; None without trials.
    known, unknown: for a running study, what is settled and what is not, one sentence each.
    """

    status: VerdictStatus
    sentence: str
    lede: str
    current: TrialEvidence | None
    best: TrialEvidence | None
    targets: tuple[TargetStatus, ...]
    current_targets: tuple[TargetStatus, ...]
    recommended: EngineSettings | None
    changes: dict[str, tuple[object, object]]
    verification: Verification
    verification_sentence: str
    noise_frac: float | None
    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
