""" "Memory unusually high": from other processes over weights and cache to what no formula holds.

Every step names its counter, because process memory, the allocator's and the device's differ.
"""

from __future__ import annotations

from advisor import units
from advisor.diagnoses.walk import Diagnosis, Question, Step, checklist_step, concluded, from_rule
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import DTYPE_BYTES
from advisor.rules.checks import (
    m002_kv_cache_leak,
    m010_memory_above_formula,
    m011_memory_fragmented,
)
from advisor.rules.engine import without_host
from advisor.rules.rule import EvidenceItem
from advisor.rules.support import latest, predict
from advisor.shapes import ModelShape
from advisor.thresholds import (
    GRAPHS_MAX_SHARE,
    KV_BYTES_TOLERANCE,
    KV_RESERVED_MIN_USE,
    PEAK_MAX_EXCESS,
    WEIGHTS_TOLERANCE,
)
from gpuagent.wire.trial import BaselineResult, GridCell, KvCacheResult

COMPLAINT = "Memory is unusually high"
BASELINE = "A baseline of the current settings"


def memory(evidence: StudyEvidence) -> Diagnosis:
    """The walk over the current settings' newest baseline."""
    evidence = without_host(evidence)
    trial = evidence.current
    result = trial.measured(BaselineResult) if trial is not None else None
    steps = [_measured(trial, result)]
    if trial is not None:
        steps.append(_others(trial, result))
    steps += [
        _weights(evidence, trial, result),
        _cache(evidence, trial, result),
        from_rule(
            Question("allocator", "Does the allocator hold more than it hands out?"),
            m011_memory_fragmented.RULE,
            evidence,
        ),
        _activations(evidence, trial, result),
        _graphs(evidence, trial, result),
        from_rule(
            Question("leak", "Does memory grow with every answer?"),
            m002_kv_cache_leak.RULE,
            evidence,
        ),
        from_rule(
            Question("rest", "Do weights, cache and overheads explain the peak?"),
            m010_memory_above_formula.RULE,
            evidence,
        ),
    ]
    return concluded("memory", COMPLAINT, steps)


def _measured(trial: TrialEvidence | None, result: BaselineResult | None) -> Step:
    question = Question("measured", "Was the peak measured, and validly?")
    if trial is None or result is None or result.peak_memory_bytes.value is None:
        why = result.peak_memory_bytes.reason if result is not None else None
        return question.untold(
            why or "No baseline of the current settings has ended",
            run=BASELINE,
        )
    peak = result.peak_memory_bytes.value
    item = EvidenceItem(
        text=f"Peak {units.memory(peak)} in trial {trial.ordinal}, by {_counter(result)}",
        value=peak,
        unit="B",
        n=1,
        trial_id=trial.trial_id,
    )
    if trial.usable:
        return question.passed(
            item.text,
            item,
        )
    reasons = trial.result.validity.reasons if trial.result is not None else ()
    return question.failed(
        f"Trial {trial.ordinal} is invalid: {'; '.join(reasons)}",
        item,
        cause=f"The measurement is invalid: {'; '.join(reasons)}",
        fix="Remove what disturbed it and measure again.",
    )


def _counter(result: BaselineResult) -> str:
    names = {
        "cuda_reserved": "the device allocator's reserved bytes",
        "process_rss": "resident memory of the process",
        "simulated": "the simulator",
        "server_rss": "resident memory of all processes of the server",
        "server_device": "used device memory, the server's reserve included",
    }
    return names.get(result.memory_kind, result.memory_kind.replace("_", " "))


def _others(trial: TrialEvidence, result: BaselineResult | None) -> Step:
    question = Question("others", "Does another process hold memory on the device?")
    if result is not None and result.memory_kind == "process_rss":
        answer = "The peak is resident memory of this process alone"
        return question.passed(
            answer,
        )
    return checklist_step(
        question,
        [trial],
        ["foreign_gpu_processes"],
        cause="Another process holds memory on the same device",
        fix="Stop the other process, or give this one a device of its own.",
        run="nvidia-smi on the agent's host, during a trial",
    )


def _weights(
    evidence: StudyEvidence, trial: TrialEvidence | None, result: BaselineResult | None
) -> Step:
    question = Question("weights", "Do the weights take what the config says?")
    shape = evidence.shape
    if trial is None or result is None or shape is None or evidence.spec.engine == "simulated":
        return question.untold(
            "Loaded weights or a readable config are missing",
            run=BASELINE,
        )
    loaded, stored = result.model, result.model.stored_weight_bytes
    if stored is None:
        return question.untold(
            "A server that somebody else runs does not tell the size of its weights",
            run=BASELINE,
        )
    own = shape.weight_bytes("auto" if shape.quant is not None else loaded.dtype)
    item = EvidenceItem(
        text=f"{units.memory(stored)} loaded in {loaded.dtype}; the config "
        f"makes {units.memory(own)} of it",
        value=float(stored),
        unit="B",
        n=1,
        trial_id=trial.trial_id,
    )
    wider = _wider(shape, loaded.dtype)
    if wider is not None:
        return question.failed(
            f"{item.text}; the checkpoint itself is in {wider}",
            item,
            cause=f"Weights are held in {loaded.dtype}, wider than the checkpoint's {wider}",
            fix=f"Load them in {wider}, where the device computes in it as fast: the study's dtype "
            "rule says whether.",
        )
    if stored > own * (1 + WEIGHTS_TOLERANCE.value):
        return question.failed(
            item.text,
            item,
            cause=f"Weights take {units.memory(stored - own)} more than the config says",
            fix="Look for a second copy, an untied head or parts that were not quantised.",
        )
    return question.passed(
        item.text,
        item,
    )


def _wider(shape: ModelShape, loaded: str) -> str | None:
    """The checkpoint's own dtype where the loaded one has more bytes."""
    own = shape.torch_dtype.removeprefix("torch.")
    if shape.quant is not None or own not in DTYPE_BYTES or loaded not in DTYPE_BYTES:
        return None
    return own if DTYPE_BYTES[loaded] > DTYPE_BYTES[own] else None


def _cache(
    evidence: StudyEvidence, trial: TrialEvidence | None, result: BaselineResult | None
) -> Step:
    question = Question("cache", "Is the KV cache as large as the load needs?")
    if trial is not None and result is not None and result.server is not None:
        return _reserved(question, trial, result)
    found = latest(evidence, KvCacheResult)
    shape = evidence.shape
    if found is None or shape is None:
        return question.untold(
            "The cache's bytes were not read",
            run="A kv_cache trial, or a serving engine with its counters",
        )
    kv_trial, kv = found
    point = max(kv.points, key=lambda p: p.context_tokens)
    itemsize = DTYPE_BYTES.get(kv.model.dtype, 2)
    formula = shape.kv_bytes_for(point.context_tokens, itemsize)
    item = EvidenceItem(
        text=f"The cache of {point.context_tokens:,} tokens takes "
        f"{units.memory(point.cache_bytes)}; the formula gives {units.memory(formula)}",
        value=float(point.cache_bytes),
        unit="B",
        n=1,
        trial_id=kv_trial.trial_id,
    )
    if point.cache_bytes > formula * (1 + KV_BYTES_TOLERANCE.value):
        return question.failed(
            item.text,
            item,
            cause="The KV cache is larger than its tokens need",
            fix="Look for a static cache of the full context, padding to the longest prompt, or a "
            "wider cache dtype.",
        )
    return question.passed(
        item.text,
        item,
    )


def _reserved(question: Question, trial: TrialEvidence, result: BaselineResult) -> Step:
    """A server takes its share at the start; what matters is how much of it is ever used."""
    used = result.server.kv_peak_frac if result.server is not None else 0.0
    share = trial.settings.memory_share_frac
    set_to = f"memory share {share:g}" if share is not None else "the engine's own memory share"
    item = EvidenceItem(
        text=f"At most {units.percent(used)} of the reserved cache was in use under {set_to}",
        value=used,
        unit="share of the cache",
        n=1,
        trial_id=trial.trial_id,
    )
    if used < KV_RESERVED_MIN_USE.value:
        return question.failed(
            item.text,
            item,
            cause="The engine reserves a KV cache that the load does not use: its memory is high "
            "by design, not by need",
            fix="Lower the memory share or give the device more load; peaks of traffic need what "
            "the mean leaves free.",
        )
    return question.passed(
        item.text,
        item,
    )


def _activations(
    evidence: StudyEvidence, trial: TrialEvidence | None, result: BaselineResult | None
) -> Step:
    """What the largest step of the grid adds to the smallest, against cache and activations."""
    question = Question("activations", "Do larger steps take more than activations need?")
    cells = [c for c in result.cells if c.peak_memory_bytes.value is not None] if result else []
    estimate = predict(evidence)
    shape = evidence.shape
    if trial is None or len(cells) < 2 or estimate is None or shape is None or result is None:
        return question.untold(
            "Peaks of two batch sizes and a known device are missing",
            run="A baseline in process, with two batch sizes, on a device of the catalogue",
        )
    small, large = min(cells, key=_tokens), max(cells, key=_tokens)
    grown = _peak(large) - _peak(small)
    cache = shape.kv_bytes_for(large.input_tokens, DTYPE_BYTES.get(result.model.dtype, 2))
    most = large.batch * cache + estimate.memory.activation.high
    item = EvidenceItem(
        text=f"From {small.batch} × {small.input_tokens:,} to {large.batch} × "
        f"{large.input_tokens:,} tokens the peak grows by {units.memory(max(0.0, grown))}; cache "
        f"and activations explain up to {units.memory(most)} (predicted)",
        value=grown,
        unit="B",
        n=1,
        trial_id=trial.trial_id,
    )
    if grown > most * PEAK_MAX_EXCESS.value:
        return question.failed(
            item.text,
            item,
            cause="Temporary tensors grow beyond what activations need: attention that holds its "
            "whole score matrix, or logits of every position",
            fix="Use fused attention, prefill in chunks, and keep the logits of the last position.",
        )
    return question.passed(
        item.text,
        item,
    )


def _tokens(cell: GridCell) -> int:
    return cell.batch * cell.input_tokens


def _peak(cell: GridCell) -> float:
    return cell.peak_memory_bytes.value or 0.0


def _graphs(
    evidence: StudyEvidence, trial: TrialEvidence | None, result: BaselineResult | None
) -> Step:
    question = Question("graphs", "Do captured CUDA graphs hold memory?")
    device = evidence.device
    if evidence.spec.engine == "transformers" or (device is not None and device.kind == "cpu"):
        where = "a processor" if device is not None and device.kind == "cpu" else "process"
        return question.passed(
            f"The engine captures no graphs in {where}"
            if where == "process"
            else "There are no CUDA graphs on a processor",
        )
    pair = _with_and_without_graphs(evidence)
    if pair is None:
        return question.untold(
            "Peak memory with and without graphs was not compared",
            run="The current settings once with CUDA graphs and once without",
        )
    (on, with_bytes), (off, without_bytes) = pair
    share = (with_bytes - without_bytes) / with_bytes
    item = EvidenceItem(
        text=f"{units.memory(with_bytes)} with graphs (trial {on.ordinal}), "
        f"{units.memory(without_bytes)} without (trial {off.ordinal})",
        value=share,
        unit="share of the peak",
        n=1,
        trial_id=on.trial_id,
    )
    fails = share > GRAPHS_MAX_SHARE.value
    return question.judged(
        item.text,
        item,
        fails=fails,
        cause=f"CUDA graphs hold {units.percent(share)} of the peak",
        fix="Capture fewer batch sizes: up to the running batch is enough.",
    )


def _with_and_without_graphs(
    evidence: StudyEvidence,
) -> tuple[tuple[TrialEvidence, float], tuple[TrialEvidence, float]] | None:
    """Two usable trials with peaks that differ in nothing but graphs."""
    peaks = [
        (t, result.peak_memory_bytes.value)
        for t in evidence.trials
        if t.usable
        and (result := t.measured(BaselineResult)) is not None
        and result.peak_memory_bytes.value
    ]
    for on, with_bytes in peaks:
        for off, without_bytes in peaks:
            same = on.settings.differences(off.settings).keys() == {"cuda_graphs"}
            if same and off.settings.cuda_graphs is False:
                return (on, with_bytes), (off, without_bytes)
    return None
