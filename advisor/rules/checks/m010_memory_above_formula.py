"""Peak memory is above what weights, cache and overheads explain."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.measures import DTYPE_BYTES
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    largest_cache,
    not_applicable,
    plain,
    predict,
)
from advisor.thresholds import PEAK_MAX_EXCESS

ID = "memory-above-formula"


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    estimate = predict(evidence)
    shape = evidence.shape
    peak = found[1].peak_memory_bytes.value if found is not None else None
    if found is None or peak is None or estimate is None or shape is None:
        return not_applicable(
            ID,
            "Peak memory cannot be explained",
            "A valid baseline with its peak memory, a readable config and a known device",
        )
    trial, result = found
    weights = result.model.stored_weight_bytes
    if weights is None or result.memory_kind in ("server_rss", "server_device"):
        # A server takes its share of the memory at the start, whatever it needs.
        missing = "The peak of an engine that allocates as it goes"
        return not_applicable(ID, "A server's memory is reserved, not used", missing)
    tokens, batch = largest_cache(trial)
    cache = batch * shape.kv_bytes_for(tokens, DTYPE_BYTES.get(result.model.dtype, 2))
    plan = estimate.memory
    rest = plan.activation.high + plan.graphs.high + plan.runtime.high
    most = weights + cache + rest
    items = (
        EvidenceItem(
            text=f"Peak {units.memory(peak)}, read once ({_counter(result.memory_kind)})",
            value=peak,
            unit="B",
            n=1,
            trial_id=trial.trial_id,
        ),
        EvidenceItem(
            text=f"Explained at most {units.memory(most)}: weights {units.memory(weights)}, cache "
            f"{units.memory(cache)} ({batch} × {tokens:,} tokens), overheads up to "
            f"{units.memory(rest)} (predicted)",
            value=float(most),
            unit="B",
        ),
    )
    if peak <= most * PEAK_MAX_EXCESS.value:
        title = f"Peak memory is explained by weights, cache and overheads ({units.memory(peak)})"
        return plain(ID, Verdict.PASS, title, *items)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Find {units.memory(peak - most)} that no formula explains",
            summary="A second copy of the weights, a cache for far more tokens than were asked, "
            "fragmentation and leaks are the usual causes.",
            evidence=items,
            change=Change(
                text="Record a profile with the allocator's snapshot, compare memory after each "
                "request, and check that the loader frees its copy of the weights."
            ),
            confidence="medium",
            confidence_reason="measured against the widest band of the formula",
        )
    ]


def _counter(kind: str) -> str:
    return "device allocator" if kind == "cuda_reserved" else "resident memory of the process"


RULE = Rule(
    id=ID,
    code="m010",
    group="memory",
    title="Peak memory is explained",
    failing_title="Find memory that no formula explains",
    why="Memory has few legitimate uses, and all of them can be computed. What is above them is a "
    "leak, fragmentation or a copy that should have been freed.",
    how_measured="Peak of the trial against weights as loaded, the largest cache of the trial and "
    "the upper ends of activation, graph and runtime overheads.",
    threshold=f"Fails above {PEAK_MAX_EXCESS.value} × the explained upper end.",
    source=PEAK_MAX_EXCESS.source,
    when_not="On processors the band is wide (thread pools, file cache of the weights): only large "
    "excess shows.",
    needs=("a valid baseline with its peak memory", "a readable config"),
    knobs=(),
    check=check,
)
