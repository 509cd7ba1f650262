"""Layers with a sliding window need less cache than engines that page all layers alike reserve."""

from __future__ import annotations

from advisor import units
from advisor.estimates.memory import reserved_bytes_per_token
from advisor.evidence import StudyEvidence
from advisor.measures import DTYPE_BYTES, resolved_dtype
from advisor.rules.rule import EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import longest_tokens, not_applicable, plain
from advisor.thresholds import WINDOW_MIN_SAVING

ID = "window-not-freed"


def check(evidence: StudyEvidence) -> list[Finding]:
    shape = evidence.shape
    if shape is None or not any(layer.window is not None for _, layer in shape.groups):
        missing = "A readable config of a model with sliding-window layers"
        return not_applicable(ID, "No layer has a window", missing)
    itemsize = DTYPE_BYTES.get(resolved_dtype(evidence.spec.current, shape), 2)
    tokens = longest_tokens(evidence.spec.workload)
    needed = shape.kv_bytes_for(tokens, itemsize)
    reserved = tokens * reserved_bytes_per_token(shape, kv_itemsize=itemsize, engine="vllm")
    growing = shape.kv_bytes_per_token_growing(itemsize)
    full = shape.kv_bytes_per_token(itemsize)
    items = (
        EvidenceItem(
            text=f"{units.memory(full)} per token while windows fill, then "
            f"{units.memory(growing)} (exact)",
            value=growing,
            unit="B/token",
        ),
        EvidenceItem(
            text=f"A request of {tokens:,} tokens needs {units.memory(needed)}; an engine that "
            f"pages all layers alike reserves {units.memory(reserved)}",
            value=float(reserved),
            unit="B",
        ),
    )
    saving = 1 - needed / reserved if reserved else 0.0
    if saving <= WINDOW_MIN_SAVING.value:
        title = f"At {tokens:,} tokens the windows save nothing worth a setting"
        return plain(ID, Verdict.PASS, title, *items)
    return plain(
        ID,
        Verdict.INFORMATIVE,
        f"Windows save {units.percent(saving)} of the cache, where the engine frees their blocks",
        *items,
        summary="transformers' own cache stops at the window. Of a server, ask for a hybrid cache "
        "manager, or plan with the larger figure.",
    )


RULE = Rule(
    id=ID,
    code="a005",
    group="attention",
    title="Windows of attention save cache",
    failing_title="Plan with the cache that the engine reserves",
    why="A layer with a window never reads tokens behind it. Engines that keep one block table for "
    "all layers hold those tokens all the same, so two right figures differ twofold.",
    how_measured="Exact bytes of the config's layers with windows cut, beside those without.",
    threshold=f"Told when windows save more than {WINDOW_MIN_SAVING.value:.0%} at the workload's "
    "longest request; never a failure.",
    source=WINDOW_MIN_SAVING.source,
    when_not="Requests shorter than the window.",
    needs=("a config with sliding-window layers",),
    knobs=(),
    check=check,
)
