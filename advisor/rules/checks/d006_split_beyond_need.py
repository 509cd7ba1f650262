"""The model is split over more GPUs than it needs, where copies would serve more."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor import units
from advisor.estimates.memory import allowed_tp
from advisor.estimates.rows import RowError
from advisor.estimates.service import Estimate, estimate
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import (
    copies_change,
    is_calibrated,
    requests_in_flight,
    split_of,
    use_of,
)
from advisor.rules.rule import Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    hurts,
    longest_tokens,
    modelled_gain,
    not_applicable,
    plain,
    request_of,
)
from advisor.shapes import ShapeError
from advisor.thresholds import PLACEMENT_MIN_GAIN
from gpuagent.wire.settings import PARALLEL_SERVERS

ID = "split-beyond-need"


@dataclass(frozen=True, slots=True)
class _Option:
    """`copies` of the model, each on `tp` GPUs, with the load shared among them."""

    tp: int
    copies: int
    found: Estimate

    @property
    def tok_s(self) -> float:
        rate = self.found.throughput_tok_s
        return rate.value * self.copies if rate is not None else 0.0

    @property
    def text(self) -> str:
        if self.copies == 1:
            return f"one copy over {self.tp} GPUs"
        if self.tp == 1:
            return f"{self.copies} copies on one GPU each"
        return f"{self.copies} copies on {self.tp} GPUs each"


def check(evidence: StudyEvidence) -> list[Finding]:
    now, found = evidence.spec.current, current_baseline(evidence)
    split, shape = split_of(now), evidence.shape
    title = "Copies and a split are not compared"
    if (
        evidence.spec.engine not in PARALLEL_SERVERS
        or split.tp < 2
        or split.pp > 1
        or shape is None
    ):
        missing = "A vLLM or SGLang server with a tensor parallel size above 1, without a pipeline"
        return not_applicable(ID, title, missing)
    load = requests_in_flight(*found) if found is not None else None
    if found is None or load is None:
        missing = "A valid trial of the current settings: what runs at once decides"
        return not_applicable(ID, title, missing)
    trial, (flight, n) = found[0], load
    options = _options(evidence, split.tp, flight)
    if options is None:
        return not_applicable(ID, title, "A GPU of the catalogue that the predictor was fitted on")
    own, others = options
    seen = EvidenceItem(
        text=f"{units.number(flight)} requests were in flight on average at tensor parallel size "
        f"{split.tp}",
        value=flight,
        unit="requests",
        n=n,
        trial_id=trial.trial_id,
    )
    if not others:
        title = "No copies on fewer GPUs hold the model and have a request each"
        return plain(ID, Verdict.PASS, title, seen)
    best = max(others, key=lambda option: option.tok_s)
    ratio = best.tok_s / own.tok_s if own.tok_s > 0 else 0.0
    item = EvidenceItem(
        text=f"Predicted at this load: {units.rate(own.tok_s)} with {own.text}, "
        f"{units.rate(best.tok_s)} with {best.text}, {ratio:.2f} times as much",
        value=ratio,
        unit="×",
    )
    if ratio <= 1:
        return plain(ID, Verdict.PASS, "By prediction copies would serve no more", seen, item)
    if ratio < PLACEMENT_MIN_GAIN.value:
        title = "Copies may serve a little more than the split, or not"
        return plain(ID, Verdict.CANNOT_TELL, title, seen, item)
    if not hurts(evidence, "output_tok_s", "ttft_s"):
        title = f"By prediction {best.text} would serve more; the targets are met"
        return plain(ID, Verdict.INFORMATIVE, title, seen, item)
    return [_finding(evidence, (seen, item), best, ratio, flight)]


def _finding(
    evidence: StudyEvidence,
    items: tuple[EvidenceItem, ...],
    best: _Option,
    ratio: float,
    flight: float,
) -> Finding:
    gain = ratio - 1
    known = best.found.in_domain
    copies, use = best.copies * (evidence.spec.current.data_parallel or 1), use_of(evidence)
    idle = ""
    if use is not None and use.copies_help:
        # Idle GPUs hold copies, too, as long as each has a request.
        copies = max(copies, min(use.count // best.tp, int(flight)))
        idle = f" {use.idle} of the host's {use.count} GPUs are idle and hold copies, too."
    text = f"Run this study with tensor parallel size {best.tp} and data parallel size {copies}."
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Try {best.text}: by prediction they serve {units.percent(gain)} more",
        summary="A split pays with traffic between the GPUs at every layer; copies share nothing, "
        f"and each reads all weights. Which of them wins depends on the load: measure it.{idle}",
        evidence=items,
        change=copies_change(evidence, text, copies, best.tp),
        effect=Effect(
            metric="output_tok_s",
            change_frac=gain,
            low=0.0,
            high=2 * gain,
            basis="modelled",
            better=True,
        ),
        confidence="medium" if known else "low",
        confidence_reason="both placements are among the measured ones"
        if known
        else "the model itself was not measured on this GPU",
        gain=modelled_gain(evidence, {"output_tok_s": gain / 2}),
    )


def _options(
    evidence: StudyEvidence, tp: int, flight: float
) -> tuple[_Option, list[_Option]] | None:
    """(today's placement, copies on fewer GPUs that fit); None without a calibrated prediction."""
    request = request_of(evidence)
    if request is None:
        return None
    now, shape = evidence.spec.current, request.model.shape
    all_at_once = flight / (now.data_parallel or 1)
    found = []
    for size in allowed_tp(shape, tp):
        copies = tp // size
        if tp % size or all_at_once < copies:
            continue  # a copy without a request serves nothing
        try:
            guess = estimate(
                replace(
                    request,
                    engine=str(evidence.spec.engine),
                    tp=size,
                    expert_parallel=bool(now.expert_parallel) and size > 1,
                    kv_dtype=now.kv_dtype,
                    concurrency=max(1, round(all_at_once / copies)),
                    context=longest_tokens(evidence.spec.workload),
                )
            )
        except (RowError, ShapeError):
            return None
        if guess.fits and guess.throughput_tok_s is not None and is_calibrated(guess):
            found.append(_Option(size, copies, guess))
    own = next((option for option in found if option.tp == tp), None)
    return None if own is None else (own, [option for option in found if option.tp < tp])


RULE = Rule(
    id=ID,
    code="d006",
    group="parallelism",
    title="The split serves as much as copies would",
    failing_title="Try copies on fewer GPUs each",
    why="Tensor parallelism makes one request faster and pays with traffic at every layer. A model "
    "that fits fewer GPUs can be copied instead: whether that serves more depends on model, GPU "
    "and load, and goes either way in public measurements.",
    how_measured="Requests in flight by the client's clock; calibrated prediction of today's "
    "placement and of copies on fewer GPUs at that load, with the memory of each.",
    threshold=f"Fails when copies are predicted to serve {PLACEMENT_MIN_GAIN.value:g} × as much or "
    "more with the same requests in flight, by which the mean request takes less time, too, and a "
    "throughput or TTFT target is not met; below that it cannot tell, and told where the targets "
    "are met. Idle GPUs are counted for the copies, not for the prediction.",
    source=PLACEMENT_MIN_GAIN.source,
    when_not="When the longest prompts need the cache of several GPUs, or one stream is to be as "
    "fast as it can be.",
    needs=(
        "a valid trial of a vLLM or SGLang server with a tensor parallel size above 1",
        "a GPU that the predictor was fitted on",
    ),
    knobs=("tensor_parallel", "data_parallel"),
    check=check,
)
