"""Findings, ranked by recoverable time, each with its evidence, its change and its caveat.

A finding needs its threshold passed and at least 2 % of the window to win back. `recoverable_s` is
an upper bound for measured losses and a stated model for modelled ones; None means it depends on
something the trace does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuagent.traces import thresholds as limit
from gpuagent.traces.analysis import Analysis
from gpuagent.traces.kernel_names import LIGHT_CLASSES
from gpuagent.traces.reliability import Caveat, unreliable
from gpuagent.traces.units import pct, seconds
from gpuagent.traces.verdict import Evidence

SHOWN = 6
"""How many a page or a terminal shows before it folds the others away."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth changing. `basis` is measured or modelled; `frac` is of the window."""

    code: str
    title: str
    detail: str
    recoverable_s: float | None
    recoverable_frac: float | None
    basis: str
    strength: str
    evidence: tuple[Evidence, ...]
    change: str


def findings_of(found: Analysis, caveats: tuple[Caveat, ...]) -> tuple[Finding, ...]:
    """Findings of one timeline, most recoverable time first."""
    idle_unusable = unreliable(caveats, "idle_frac") is not None
    checks = _BUSY_CHECKS if idle_unusable else _IDLE_CHECKS + _BUSY_CHECKS
    host = found.host
    if unreliable(caveats, "kernel_classes") is not None:
        checks = ()
    elif host.window_s and host.initialisation_s > limit.INITIALISATION * host.window_s:
        checks = (_allocation,)  # start-up says nothing about the steady state
    seen = [finding for check in checks if (finding := check(found)) is not None]
    seen.sort(key=lambda finding: -(finding.recoverable_s or 0.0))
    return tuple(seen)


def _finding(
    found: Analysis,
    code: str,
    title: str,
    detail: str,
    frac: float,
    change: str,
    evidence: tuple[Evidence, ...],
    *,
    basis: str = "measured",
    strong: bool = False,
) -> Finding | None:
    """A finding worth `frac` of the window, or None below the least that matters."""
    if frac < limit.RECOVERABLE_MIN:
        return None
    return Finding(
        code=code,
        title=title,
        detail=detail,
        recoverable_s=frac * found.window_ns * 1e-9 / max(len(found.devices), 1),
        recoverable_frac=frac,
        basis=basis,
        strength="strong" if strong else "warn",
        evidence=evidence,
        change=change,
    )


def _window(found: Analysis) -> str:
    return f"window {seconds(found.window_ns * 1e-9 / max(len(found.devices), 1))}"


# --- idle time ---------------------------------------------------------------------------------


def _launch(found: Analysis) -> Finding | None:
    share = found.cause_frac("host_launch")
    launches = found.host.launches
    if found.idle_frac <= limit.IDLE_WARN or share < 0.25 * found.idle_frac:
        return None
    kernels = launches.kernels if launches else 0
    in_graphs = launches.kernels_in_graphs / kernels if launches and kernels else 0.0
    change = (
        "Capture the step in CUDA graphs (vLLM, SGLang: enforce_eager off) or use torch.compile "
        "with mode='reduce-overhead'; a larger batch hides part of it."
        if in_graphs < 0.5
        else "Graphs are in use; the host work between replays is left: schedule asynchronously."
    )
    evidence = [
        Evidence("Idle while the host was late", share, "fraction", _window(found)),
        Evidence("Kernels replayed from graphs", in_graphs, "fraction", "kernels"),
    ]
    detail = f"{pct(share)} of the window is idle because the launch came after the GPU ran dry."
    if launches is not None:
        free = max(launches.calls - launches.waiting_calls, 1)
        own = (launches.time_s - launches.waiting_s) / free
        evidence.append(
            Evidence("Mean launch call", own, "s", "calls that did not wait for a full queue")
        )
        detail += f" {launches.calls:,} launch calls, {seconds(own)} each."
    return _finding(
        found,
        "launch_overhead",
        "Launch kernels in one go",
        detail,
        share,
        change,
        tuple(evidence),
        strong=found.idle_frac > limit.IDLE_STRONG,
    )


def _sync(found: Analysis) -> Finding | None:
    share = found.cause_frac("sync")
    if found.idle_frac <= limit.IDLE_WARN or share < limit.RECOVERABLE_MIN:
        return None
    waited = found.host.sync_max_s / found.host.window_s
    return _finding(
        found,
        "synchronisation",
        "Remove synchronising calls",
        f"The host waits for the GPU {found.host.sync_calls:,} times and launches late afterwards: "
        f"{pct(share)} of the window is idle for it.",
        share,
        "Keep results on the GPU: drop .item(), .cpu() and torch.cuda.synchronize() from the step, "
        "copy with non_blocking=True, test the stop condition every few tokens.",
        (
            Evidence("Idle after a wait", share, "fraction", _window(found)),
            Evidence("Longest-waiting thread", waited, "fraction", _window(found)),
            Evidence("Synchronising calls", float(found.host.sync_calls), "count", "all threads"),
        ),
        strong=share > limit.SYNC_WARN,
    )


def _step_border(found: Analysis) -> Finding | None:
    share = found.cause_frac("step_border")
    if found.idle_frac <= limit.IDLE_WARN or share < limit.TRANSFER_WARN:
        return None
    steps = found.steps.stats
    return _finding(
        found,
        "step_border",
        "Overlap the work between steps",
        f"{pct(share)} of the window is idle at step borders"
        + (f" ({steps.count:,} steps)." if steps else "."),
        share,
        "Schedule the next step while this one runs (asynchronous scheduling), load data in "
        "workers, sample on the GPU.",
        (Evidence("Idle at step borders", share, "fraction", _window(found)),),
        strong=share > limit.IDLE_WARN,
    )


def _allocation(found: Analysis) -> Finding | None:
    share = found.cause_frac("allocation")
    steady = found.host.alloc_steady_calls
    if share < limit.RECOVERABLE_MIN:
        return None
    steps = found.steps.stats
    per_step = f", {steady / steps.count:.1f} per step" if steps and steps.count else ""
    return _finding(
        found,
        "allocation",
        "Stop allocating inside the window",
        f"{pct(share)} of the window is idle during memory allocation or code loading "
        f"({found.host.alloc_calls:,} allocation calls, {steady:,} after the first of each kind"
        f"{per_step}).",
        share,
        "Warm up before recording; if calls remain, reuse buffers and check for allocator retries "
        "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
        (
            Evidence("Idle during allocation", share, "fraction", _window(found)),
            Evidence("Allocation calls after the first", float(steady), "count", "the window"),
        ),
        strong=share > limit.INITIALISATION,
    )


def _transfer(found: Analysis) -> Finding | None:
    share = found.exposed_transfer_frac + found.cause_frac("transfer")
    if share <= limit.TRANSFER_WARN:
        return None
    rows = [row for row in found.copies if row.direction != "DtoD"]
    if not rows:
        return None
    top = rows[0]
    known = [row.pageable_s for row in rows if row.pageable_s is not None]
    pageable = sum(known) / sum(row.time_s for row in rows) if known else None
    evidence = [
        Evidence("Exposed copies and staging", share, "fraction", _window(found)),
        Evidence(f"Copies {top.direction}", top.time_s, "s", f"{top.count:,} copies"),
    ]
    change = "Start copies early on their own stream, or keep the data on the GPU."
    if top.link_frac is not None and top.large_gb_s is not None:
        evidence.append(
            Evidence("Rate of large copies", top.large_gb_s, "GB/s", f"link {top.link_gb_s} GB/s")
        )
    if top.link_frac is not None and top.link_frac > limit.LINK_SATURATED:
        change = "The link is saturated, pinning cannot help: move fewer or smaller tensors."
    elif pageable is not None and pageable > limit.PAGEABLE:
        change = "Pin the host buffers (pin_memory=True) and copy with non_blocking=True."
        evidence.append(Evidence("Pageable copies", pageable, "fraction", "copy time"))
    return _finding(
        found,
        "transfer",
        "Hide or avoid copies",
        f"{pct(share)} of the window is copying with no kernel running, mostly {top.direction}.",
        share,
        change,
        tuple(evidence),
        strong=share > limit.TRANSFER_STRONG,
    )


# --- busy time ---------------------------------------------------------------------------------


def _communication(found: Analysis) -> Finding | None:
    share = found.exposed_comm_frac
    if share <= limit.COMM_WARN:
        return None
    overlap = 1 - share / found.frac(found.comm_ns)
    return _finding(
        found,
        "communication",
        "Overlap or shrink communication",
        f"{pct(share)} of the window is communication that no compute hides; {pct(overlap)} "
        "overlaps. Waiting for slow ranks is part of it.",
        share,
        "Overlap collectives with compute, use fewer tensor-parallel ranks or a custom all-reduce, "
        "check whether one rank is late.",
        (
            Evidence("Exposed communication", share, "fraction", _window(found)),
            Evidence("Overlap", overlap, "fraction", "communication time"),
        ),
        strong=share > limit.COMM_VERDICT,
    )


def _tensor_cores(found: Analysis) -> Finding | None:
    cores = found.work.tensor_cores
    without = cores.no_s + cores.conv_no_s
    decided = without + cores.yes_s + cores.conv_yes_s
    if decided <= 0 or without / decided <= 1 - limit.TENSOR_CORE_MIN:
        return None
    matrix = found.work.frac("gemm", "moe", "conv")
    if matrix <= limit.GEMM_MATTERS:
        return None
    old = [d.info.compute_capability for d in found.devices if d.info.compute_capability]
    before_ampere = bool(old) and max(old) < (8, 0)
    dtype = "fp16" if before_ampere else "bf16 or fp16"
    smallest = "" if before_ampere else " or, as the smallest change, allow TF32"
    share = found.frac(without * 1e9) / 2
    return _finding(
        found,
        "tensor_cores",
        "Use tensor cores",
        f"{pct(without / decided)} of the matrix time whose name decides runs without tensor cores "
        f"({seconds(without)}).",
        min(share, found.busy_frac),
        f"Run the model in {dtype}{smallest}.",
        (
            Evidence("Without tensor cores", without / decided, "fraction", "decided matrix time"),
            Evidence("Matrix work", matrix, "fraction", "GPU time"),
        ),
        basis="modelled: at least twice the rate with tensor cores",
        strong=without / decided > 0.5,
    )


def _attention(found: Analysis) -> Finding | None:
    work = found.work
    share = work.unfused_softmax_s / work.gpu_s if work.gpu_s else 0.0
    if share <= limit.UNFUSED_ATTENTION:
        return None
    return _finding(
        found,
        "unfused_attention",
        "Fuse attention",
        f"{pct(share)} of GPU time is softmax between two matrix products, and those products take "
        f"another {seconds(work.unfused_matrix_s)}: attention is written out, not fused.",
        found.frac(work.unfused_softmax_s * 1e9) * 0.8,
        "Use scaled_dot_product_attention (attn_implementation='sdpa') or FlashAttention.",
        (
            Evidence("Softmax between matrix products", share, "fraction", "GPU time"),
            Evidence("Time of that softmax", work.unfused_softmax_s, "s", "summed kernel time"),
        ),
        basis="modelled: fusing removes most of the softmax passes",
        strong=True,
    )


def _fusion(found: Analysis) -> Finding | None:
    if not found.fusion:
        return None
    light = found.work.frac(*sorted(LIGHT_CLASSES))
    least = found.frac(sum(c.saved_s for c in found.fusion) * 1e9)
    most = found.frac(sum(c.saved_most_s for c in found.fusion) * 1e9)
    tiny = found.work.tiny
    busy_light = light >= limit.LIGHT_SHARE and found.busy_frac >= limit.BUSY_ENOUGH
    tiny_heavy = tiny is not None and tiny.time_frac >= limit.TINY_TIME
    if least < limit.RECOVERABLE_MIN and not ((busy_light or tiny_heavy) and most > 0.04):
        return None
    top = found.fusion[0]
    run = " → ".join(top.kernels[:4]) + (" …" if len(top.kernels) > 4 else "")
    return _finding(
        found,
        "fusion",
        "Fuse small kernels",
        f"{pct(light)} of GPU time is small memory-bound kernels. The best run repeats "
        f"{top.repeats:,} times: {run}. "
        f"Merging saves {pct(least)} of the window in launches alone, at best {pct(most)}.",
        max(least, most / 2),
        "Use torch.compile or the engine's fused kernels (norm, rope, activation).",
        (
            Evidence("Small memory-bound kernels", light, "fraction", "GPU time"),
            Evidence("Saved at least", least, "fraction", _window(found)),
            Evidence("Saved at best", most, "fraction", _window(found)),
        ),
        basis="modelled: between launches only and all re-read memory",
        strong=most > limit.TRANSFER_STRONG,
    )


def _matrix_vector(found: Analysis) -> Finding | None:
    share = found.work.frac("gemv")
    if share <= limit.GEMV_DOMINATES:
        return None
    return _finding(
        found,
        "matrix_vector",
        "Batch more, or make weights smaller",
        f"{pct(share)} of GPU time is matrix-vector products: each reads all weights for one "
        "token, so memory bandwidth is the limit by design.",
        found.frac(found.work.tensor_cores.gemv_s * 1e9) / 2,
        "Raise the batch (continuous batching, more concurrency) or quantise weights to 8 or 4 "
        "bits.",
        (Evidence("Matrix-vector products", share, "fraction", "GPU time"),),
        basis="modelled: weights of half the size",
        strong=share > 0.4,
    )


_IDLE_CHECKS: tuple[Callable[[Analysis], Finding | None], ...] = (
    _launch,
    _sync,
    _step_border,
    _allocation,
    _transfer,
    _communication,
)
_BUSY_CHECKS: tuple[Callable[[Analysis], Finding | None], ...] = (
    _tensor_cores,
    _attention,
    _fusion,
    _matrix_vector,
)
