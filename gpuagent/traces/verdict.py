"""One bottleneck class by a fixed decision order, with the number that decides and how sure it is.

Order: validity, initialisation, transfer, communication, idle by cause, then what the busy GPU
does. It abstains (class `cannot_tell`) rather than guess, and says what to record instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.traces import thresholds as limit
from gpuagent.traces.analysis import Analysis
from gpuagent.traces.reliability import Caveat, unreliable
from gpuagent.traces.units import pct, seconds

CLASS_LABELS: dict[str, str] = {
    "cannot_tell": "Cannot tell",
    "initialisation": "Start-up in the window",
    "transfer_bound": "Transfer-bound",
    "communication_bound": "Communication-bound",
    "sync_bound": "Synchronisation-bound",
    "launch_bound": "Launch-bound",
    "scheduler_bound": "Scheduler-bound",
    "idle_unattributed": "Idle, cause unknown",
    "bandwidth_bound": "Memory-bandwidth-bound",
    "compute_bound": "Compute-bound",
    "fp32_compute": "FP32 compute, tensor cores unused",
    "busy": "Busy",
}

CAUSE_CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sync_bound", ("sync",)),
    ("launch_bound", ("host_launch", "kernel_gap")),
    ("scheduler_bound", ("step_border",)),
    ("initialisation", ("allocation",)),
    ("transfer_bound", ("transfer",)),
    ("communication_bound", ("communication",)),
    ("idle_unattributed", ("unattributed", "profiler")),
)

EXPERIMENTS: dict[str, str] = {
    "cannot_tell": "Record again as described, then analyse that file.",
    "initialisation": (
        "Record after warm-up; if allocations remain, compare with preallocated buffers."
    ),
    "transfer_bound": (
        "Repeat with pinned buffers and non_blocking=True, or with the data already on the GPU: "
        "if the step shortens by the exposed copy time, copies were the limit."
    ),
    "communication_bound": (
        "Run one step on a single device, or with communication overlapped: the step should "
        "shorten by the exposed communication time."
    ),
    "sync_bound": (
        "Remove the synchronising call (.item(), .cpu(), torch.cuda.synchronize) for one run: the "
        "waiting should turn into queued launches."
    ),
    "launch_bound": (
        "Run the same step under CUDA graphs (enforce_eager off) or "
        "torch.compile(mode='reduce-overhead'): step time should approach the busy time."
    ),
    "scheduler_bound": (
        "Record one step with twice the batch: if the gap between steps stays, the scheduler or "
        "data loading is the limit; try asynchronous scheduling."
    ),
    "idle_unattributed": "Record CPU activity and every process on this GPU, and look again.",
    "bandwidth_bound": (
        "Double the batch: if step time hardly grows, memory bandwidth is the limit. Counters "
        "(DRAM active, tensor active) would confirm it."
    ),
    "compute_bound": (
        "Double the batch: if step time doubles, compute is the limit. Tensor-core activity "
        "counters would confirm it."
    ),
    "fp32_compute": (
        "Run one step in bf16 or fp16 (TF32 as the smallest change on sm_80 and later): GEMM time "
        "should fall by half or more."
    ),
    "busy": "Counters (DRAM active, tensor active) tell bandwidth from compute.",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number behind a statement; `of` is its denominator or how it was measured."""

    label: str
    value: float
    unit: str
    of: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. `share` is the part of the window that the class explains, None if none."""

    bottleneck: str
    confidence: str
    confidence_reason: str
    sentence: str
    share: float | None
    evidence: tuple[Evidence, ...]
    experiment: str
    second: str | None = None

    @property
    def label(self) -> str:
        return CLASS_LABELS[self.bottleneck]


def decide(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict:
    """The verdict on one timeline."""
    stop = _abstains(found, caveats)
    if stop is not None:
        return stop
    for step in (_initialisation, _transfer, _communication, _idle):
        verdict = step(found, caveats)
        if verdict is not None:
            return verdict
    return _busy(found, caveats)


def _abstains(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict | None:
    stop = unreliable(caveats, "idle_frac")
    if stop is None:
        return None
    advice = f" {stop.record}" if stop.record else ""
    return Verdict(
        bottleneck="cannot_tell",
        confidence="high",
        confidence_reason="the trace cannot answer the question",
        sentence=f"{stop.message}{advice}",
        share=None,
        evidence=(Evidence("GPU events", float(len(found.trace.gpu)), "count", "the file"),),
        experiment=EXPERIMENTS["cannot_tell"],
    )


def _initialisation(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict | None:
    host = found.host
    share = host.initialisation_s / host.window_s if host.window_s else 0.0
    if share <= limit.INITIALISATION:
        return None
    return _verdict(
        found,
        caveats,
        "initialisation",
        "high" if share > 2 * limit.INITIALISATION else "medium",
        f"{pct(share)} of {seconds(host.window_s)} is memory allocation and code loading: the "
        "window shows start-up, not the steady state. Record after warm-up.",
        share,
        (
            Evidence("Allocation and module loading", share, "fraction", _window_text(found)),
            Evidence("Allocation calls", float(host.alloc_calls), "count", "the window"),
            Evidence("GPU idle", found.idle_frac, "fraction", _window_text(found)),
        ),
    )


def _transfer(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict | None:
    share = found.exposed_transfer_frac
    if share <= limit.TRANSFER_VERDICT or share < max(found.exposed_comm_frac, found.idle_frac):
        return None
    top = next(row for row in found.copies if row.direction != "DtoD")
    saturated = top.link_frac is not None and top.link_frac > limit.LINK_SATURATED
    rate = f" at {top.large_gb_s:.1f} GB/s" if top.large_gb_s is not None else ""
    advice = (
        "The link is saturated: move fewer bytes."
        if saturated
        else "Overlap copies with kernels, and pin the host memory."
        if top.pageable_s
        else "Overlap copies with kernels or keep the data on the GPU."
    )
    return _verdict(
        found,
        caveats,
        "transfer_bound",
        "high" if share > max(found.idle_frac, 0.3) else "medium",
        f"Copies that no kernel hides take {pct(share)} of {_total(found)}, mostly "
        f"{top.direction}{rate}. {advice}",
        share,
        (
            Evidence("Exposed host and peer copies", share, "fraction", _window_text(found)),
            Evidence(
                f"Copies {top.direction}", top.time_s, "s", f"{top.count:,} copies, summed time"
            ),
            Evidence("GPU idle", found.idle_frac, "fraction", _window_text(found)),
        ),
    )


def _communication(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict | None:
    share = found.exposed_comm_frac
    if share <= limit.COMM_VERDICT or share <= found.idle_frac:
        return None
    overlap = 1 - found.frac(sum(d.exposed_comm_ns for d in found.devices)) / found.frac(
        found.comm_ns
    )
    return _verdict(
        found,
        caveats,
        "communication_bound",
        "high" if share > 1.5 * found.idle_frac else "medium",
        f"Communication that no kernel hides takes {pct(share)} of {_total(found)}; {pct(overlap)} "
        "of communication overlaps with compute. Waiting for slow ranks is part of it.",
        share,
        (
            Evidence("Exposed communication", share, "fraction", _window_text(found)),
            Evidence("Overlap", overlap, "fraction", "communication time"),
            Evidence("GPU idle", found.idle_frac, "fraction", _window_text(found)),
        ),
    )


def _idle(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict | None:
    if found.idle_frac <= limit.IDLE_WARN or found.busy_frac >= limit.BUSY_ENOUGH:
        return None
    shares = {name: found.cause_frac(*causes) for name, causes in CAUSE_CLASSES}
    ranked = sorted(shares, key=lambda name: -shares[name])
    first = ranked[0]
    of_idle = shares[first] / found.idle_frac
    second = ranked[1] if of_idle < 0.5 and shares[ranked[1]] > limit.RECOVERABLE_MIN else None
    evidence = [
        Evidence("GPU idle", found.idle_frac, "fraction", _window_text(found)),
        Evidence(CLASS_LABELS[first], shares[first], "fraction", _window_text(found)),
        Evidence("Of the idle time", of_idle, "fraction", "GPU idle time"),
    ]
    launches = found.host.launches
    if launches is not None:
        evidence.append(
            Evidence("Launch calls", float(launches.calls), "count", "all host threads")
        )
        evidence.append(Evidence("Median launch call", launches.median_s, "s", "launch calls"))
    if found.work.tiny is not None:
        evidence.append(
            Evidence("Kernels below 10 µs", found.work.tiny.count_frac, "fraction", "kernels")
        )
    return _verdict(
        found,
        caveats,
        first,
        "high" if of_idle >= 0.6 else "medium" if of_idle >= 0.4 else "low",
        f"GPU idle {pct(found.idle_frac)} of {_total(found)}: "
        + _idle_reason(found, first, shares[first]),
        shares[first],
        tuple(evidence),
        second,
    )


def _idle_reason(found: Analysis, name: str, share: float) -> str:
    launches = found.host.launches
    if name == "launch_bound" and launches is not None:
        work = f"{launches.kernels:,} kernels, {launches.calls:,} launch calls"
        return (
            f"the host launches later than the GPU could start ({pct(share)} of the window; "
            f"{work}). CUDA graphs or compilation would remove most of it."
        )
    reasons = {
        "launch_bound": f"the gaps between kernels add up to {pct(share)} of the window.",
        "sync_bound": f"the host waits for the GPU and then launches late ({pct(share)} of the "
        f"window, {found.host.sync_calls:,} synchronising calls).",
        "scheduler_bound": f"the gaps lie at step borders ({pct(share)} of the window): "
        "scheduling, sampling or data loading on the host.",
        "initialisation": f"memory allocation and code loading hold the GPU up ({pct(share)} of "
        "the window).",
        "transfer_bound": f"the host copies while the GPU waits ({pct(share)} of the window).",
        "communication_bound": f"the device waits for its peers ({pct(share)} of the window).",
        "idle_unattributed": f"the trace does not tell why ({pct(share)} of the window has no "
        "recorded cause).",
    }
    return reasons[name]


def _busy(found: Analysis, caveats: tuple[Caveat, ...]) -> Verdict:
    work = found.work
    cores = work.tensor_cores
    decided = cores.yes_s + cores.no_s + cores.conv_yes_s + cores.conv_no_s
    without = cores.no_s + cores.conv_no_s
    matrix = work.frac("gemm", "moe", "conv", "attention")
    gemv = work.frac("gemv")
    memory = gemv + work.frac(
        *("elementwise", "norm", "copy_cat_index", "reduce", "softmax", "kv_cache_write", "rope"),
        *("quant", "sampling", "embedding", "triton", "memcpy", "memset"),
    )
    decode = _decode_only(found)
    unfused = work.unfused_softmax_s / work.gpu_s if work.gpu_s else 0.0
    gpu_time = f"{seconds(work.gpu_s)} of GPU time"
    busy = Evidence("GPU busy", found.busy_frac, "fraction", _window_text(found))
    start = f"GPU busy {pct(found.busy_frac)} of {_total(found)}"
    if unfused > limit.UNFUSED_ATTENTION:
        return _verdict(
            found,
            caveats,
            "busy",
            "high",
            f"{start}: {pct(unfused)} of GPU time is softmax between matrix products, that is "
            "attention which is not fused. Use scaled_dot_product_attention or FlashAttention.",
            unfused,
            (busy, Evidence("Unfused attention softmax", unfused, "fraction", gpu_time)),
        )
    if decided > 0 and without / decided > 0.5 and without / work.gpu_s > 0.3:
        share = without / work.gpu_s
        return _verdict(
            found,
            caveats,
            "fp32_compute",
            "high",
            f"{start}: {pct(share)} of GPU time is matrix work that uses no tensor cores.",
            share,
            (busy, Evidence("Matrix time without tensor cores", share, "fraction", gpu_time)),
        )
    if decode or gemv > limit.GEMV_DOMINATES or memory >= 0.6:
        share = max(memory, gemv)
        reason = (
            "the steps are decode only, which reads all weights for few tokens"
            if decode
            else f"{pct(gemv)} of GPU time is matrix-vector products"
            if gemv > limit.GEMV_DOMINATES
            else f"{pct(memory)} of GPU time is kernels that only move memory"
        )
        return _verdict(
            found,
            caveats,
            "bandwidth_bound",
            "medium",
            f"{start}: {reason}. Memory bandwidth is the likely limit (estimated from names, no "
            "counters).",
            None if decode else share,
            (
                busy,
                Evidence("Memory-bound kernels", memory, "fraction", gpu_time),
                Evidence("Matrix-vector products", gemv, "fraction", gpu_time),
            ),
        )
    if matrix >= 0.6:
        yes = cores.decided_yes_frac
        uses = f", {pct(yes)} of GEMM time on tensor cores" if yes is not None else ""
        return _verdict(
            found,
            caveats,
            "compute_bound",
            "medium",
            f"{start}: {pct(matrix)} of GPU time is matrix and attention work{uses}. Compute is "
            "the likely limit (estimated from names, no counters).",
            matrix,
            (busy, Evidence("Matrix and attention work", matrix, "fraction", gpu_time)),
        )
    return _verdict(
        found,
        caveats,
        "busy",
        "high" if found.idle_frac < 0.05 else "medium",
        f"{start}: nothing in this trace keeps it waiting.",
        None,
        (busy, Evidence("Matrix and attention work", matrix, "fraction", gpu_time)),
    )


def _decode_only(found: Analysis) -> bool:
    phases = {row.phase for row in found.steps.phases}
    return phases == {"decode"}


def _verdict(
    found: Analysis,
    caveats: tuple[Caveat, ...],
    name: str,
    confidence: str,
    sentence: str,
    share: float | None,
    evidence: tuple[Evidence, ...],
    second: str | None = None,
) -> Verdict:
    level, reason = lowered(confidence, name, caveats)
    return Verdict(name, level, reason, sentence, share, evidence, EXPERIMENTS[name], second)


def lowered(confidence: str, name: str, caveats: tuple[Caveat, ...]) -> tuple[str, str]:
    """Confidence after the caveats: one level less for warnings that touch this verdict."""
    levels = ["low", "medium", "high"]
    about_idle = name not in ("compute_bound", "fp32_compute", "bandwidth_bound", "busy")
    doubts = [
        caveat
        for caveat in caveats
        if caveat.severity == "warn"
        and (
            "kernel_classes" in caveat.affects
            or (about_idle and {"idle_frac", "idle_causes"} & set(caveat.affects))
        )
    ]
    if name == "launch_bound":
        doubts += [caveat for caveat in caveats if caveat.code == "with_stack"]
    level = levels.index(confidence) - min(len(doubts), 1)
    if doubts:
        return levels[max(level, 0)], doubts[0].message
    return confidence, {
        "high": "the deciding figure is exact and far past its threshold",
        "medium": "the deciding figure is estimated or near its threshold",
        "low": "no single cause dominates",
    }[confidence]


def _total(found: Analysis) -> str:
    devices = len(found.devices)
    text = seconds(max(d.window_ns for d in found.devices) * 1e-9)
    return f"{text} on {devices} GPUs" if devices > 1 else text


def _window_text(found: Analysis) -> str:
    return f"window {_total(found)}"
