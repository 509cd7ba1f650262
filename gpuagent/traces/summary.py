"""The report of nsys stats tables: shares, counts and means are there; a timeline is not.

Idle, gaps, overlap, exposed time and their causes are None with the reason in `reliability`.
"""

from __future__ import annotations

from typing import Any

from gpuagent.traces import thresholds as limit
from gpuagent.traces.api_names import clean, group_of
from gpuagent.traces.copies import CopyRow, summary_copies
from gpuagent.traces.findings import Finding
from gpuagent.traces.kernel_names import GEMM_CLASSES, Kernel, kernel_of, rules_version, short_name
from gpuagent.traces.kernels import TensorCores, tensor_cores_from
from gpuagent.traces.model import Summary, SummaryRow
from gpuagent.traces.reliability import Caveat
from gpuagent.traces.report import TraceReport
from gpuagent.traces.units import pct, seconds
from gpuagent.traces.verdict import EXPERIMENTS, Evidence, Verdict

_EXPORT = "Export the timeline: nsys export --type sqlite REPORT.nsys-rep"
_NO_TIMELINE = Caveat(
    "summary_only",
    "unreliable",
    ("window_s", "busy_frac", "idle_frac", "idle_causes", "exposed_memcpy_frac", "comm_frac"),
    "The file is a summary without a timeline: idle time, gaps and overlap are not computable.",
    _EXPORT,
)


def report_summary(summary: Summary, source: dict[str, Any] | None = None) -> TraceReport:
    """Report of summary tables; `source` adds what is known about the file."""
    rows = [(row, kernel_of(row.name)) for row in summary.kernels if (row.total_s or 0) > 0]
    copies = summary_copies(summary)
    sets_s = sum(r.total_s or 0.0 for r in summary.copies if "memset" in r.name.lower())
    kernel_s = sum(row.total_s or 0.0 for row, _ in rows)
    gpu_s = kernel_s + sum(row.time_s for row in copies) + sets_s
    shares = _classes(rows, copies, sets_s, gpu_s)
    cores = _cores(rows)
    tiny_count, tiny_s, count = _tiny(rows)
    caveats = (_NO_TIMELINE, *_more_caveats(summary, rows, shares))
    findings = _findings(shares, cores, tiny_count, tiny_s, count, kernel_s)
    return TraceReport(
        source={
            **(source or {}),
            "format": summary.format,
            "kernels": count,
            "skipped": list(summary.skipped),
            "rules_version": rules_version(),
        },
        verdict=_verdict(shares, cores, tiny_count, count, gpu_s),
        reliability=caveats,
        window_s=None,
        busy_frac=None,
        idle_frac=None,
        idle_causes=None,
        memcpy_frac=None,
        exposed_memcpy_frac=None,
        comm_frac=None,
        exposed_comm_frac=None,
        kernel_classes={name: s / gpu_s for name, s in shares.items()} if gpu_s else None,
        tensor_core=_core_fracs(cores),
        top_kernels=tuple(_kernel(row, kernel, gpu_s) for row, kernel in rows[:25]),
        api={
            clean(row.name): {
                "group": group_of(row.name),
                "count": row.count,
                "time_s": row.total_s,
                "max_s": row.max_s,
            }
            for row in summary.api[:200]
        }
        if summary.api
        else None,
        devices=(),
        findings=findings,
        class_table=tuple(
            {
                "name": name,
                "frac": s / gpu_s,
                "time_s": s,
                "count": sum(row.count for row, k in rows if k.kernel_class == name),
                "mean_s": None,
                "window_frac": None,
            }
            for name, s in shares.items()
        ),
        matrix={
            "gemv_s": cores.gemv_s,
            "gemv_frac": cores.gemv_s / gpu_s if gpu_s else None,
            "decided_yes_frac": cores.decided_yes_frac,
        },
        tiny_kernels={
            "count": tiny_count,
            "count_frac": tiny_count / count if count else None,
            "time_s": tiny_s,
            "time_frac": tiny_s / kernel_s if kernel_s else None,
            "median_s": None,
            "mean_s": kernel_s / count if count else None,
        },
        host=None,
        copies=tuple(_copy(row) for row in copies),
        steps=None,
        phases=(),
        fusion=(),
        variance=(),
        cpu=None,
        timeline=None,
    )


def _classes(
    rows: list[tuple[SummaryRow, Kernel]],
    copies: tuple[CopyRow, ...],
    sets_s: float,
    gpu_s: float,
) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row, kernel in rows:
        sums[kernel.kernel_class] = sums.get(kernel.kernel_class, 0.0) + (row.total_s or 0.0)
    if copies:
        sums["memcpy"] = sum(row.time_s for row in copies)
    if sets_s:
        sums["memset"] = sets_s
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    return dict(ranked) if gpu_s else {}


def _cores(rows: list[tuple[SummaryRow, Kernel]]) -> TensorCores:
    sums: dict[str, float] = {}
    for row, kernel in rows:
        group = "gemm" if kernel.kernel_class in GEMM_CLASSES else kernel.kernel_class
        key = f"{group}-{kernel.tensor_core}"
        sums[key] = sums.get(key, 0.0) + (row.total_s or 0.0)
    return tensor_cores_from(sums)


def _core_fracs(cores: TensorCores) -> dict[str, float | None]:
    total = cores.gemm_s
    parts = {"yes": cores.yes_s, "no": cores.no_s, "unknown": cores.unknown_s}
    return {name: value / total if total else None for name, value in parts.items()}


def _tiny(rows: list[tuple[SummaryRow, Kernel]]) -> tuple[int, float, int]:
    """Count and time of kernels whose mean is below 10 µs, and the count of all kernels."""
    short = [row for row, _ in rows if (row.mean_s or 1.0) < limit.TINY_KERNEL_S]
    return (
        sum(row.count for row in short),
        sum(row.total_s or 0.0 for row in short),
        sum(row.count for row, _ in rows),
    )


def _more_caveats(
    summary: Summary, rows: list[tuple[SummaryRow, Kernel]], shares: dict[str, float]
) -> list[Caveat]:
    caveats = []
    if not rows:
        caveats.append(
            Caveat(
                "no_kernel_table",
                "unreliable",
                ("kernel_classes", "tensor_core", "top_kernels"),
                "The file holds no kernel table.",
                "Add the report cuda_gpu_kern_sum.",
            )
        )
    missing = [
        text
        for rows_of, text in (
            (summary.api, "cuda_api_sum"),
            (summary.copies, "cuda_gpu_mem_time_sum"),
        )
        if not rows_of
    ]
    if missing:
        caveats.append(
            Caveat(
                "tables_missing",
                "info",
                ("api", "memcpy_frac"),
                f"Not in the file, so not measured: {', '.join(missing)}.",
            )
        )
    total = sum(shares.values())
    if total and shares.get("other", 0.0) / total > limit.OTHER_MAX:
        caveats.append(
            Caveat(
                "unknown_kernels",
                "info",
                ("kernel_classes",),
                f"{pct(shares['other'] / total)} of GPU time is in kernels whose names no rule "
                "knows.",
            )
        )
    return caveats


def _verdict(
    shares: dict[str, float], cores: TensorCores, tiny_count: int, count: int, gpu_s: float
) -> Verdict:
    if not gpu_s or not count:
        return Verdict(
            "cannot_tell",
            "high",
            "the file holds no kernel times",
            f"No kernel table in this file. {_EXPORT}",
            None,
            (),
            EXPERIMENTS["cannot_tell"],
        )
    part = {name: value / gpu_s for name, value in shares.items()}
    gemv, matrix = part.get("gemv", 0.0), sum(part.get(k, 0.0) for k in ("gemm", "moe", "conv"))
    of = f"{seconds(gpu_s)} of GPU time"
    evidence = [
        Evidence("Matrix-vector products", gemv, "fraction", of),
        Evidence("Matrix products", matrix, "fraction", of),
        Evidence("Kernels below 10 µs on average", tiny_count / count, "fraction", "kernels"),
    ]
    idle = "Idle time is not computable from a summary."
    without = cores.no_s + cores.conv_no_s
    if part.get("comm", 0.0) > 0.4:
        name, share = "communication_bound", part["comm"]
        text = f"{pct(share)} of GPU time is communication."
    elif part.get("memcpy", 0.0) > 0.4:
        name, share = "transfer_bound", part["memcpy"]
        text = f"{pct(share)} of GPU time is copies."
    elif gemv > limit.GEMV_DOMINATES:
        name, share = "bandwidth_bound", gemv
        text = (
            f"{pct(gemv)} of GPU time is matrix-vector products, which memory bandwidth limits; "
            f"{pct(tiny_count / count)} of kernels are shorter than 10 µs."
        )
    elif without / gpu_s > 0.3 and without > cores.yes_s + cores.conv_yes_s:
        name, share = "fp32_compute", without / gpu_s
        text = f"{pct(share)} of GPU time is matrix work without tensor cores."
    elif matrix + part.get("attention", 0.0) >= 0.6:
        name, share = "compute_bound", matrix + part.get("attention", 0.0)
        text = f"{pct(share)} of GPU time is matrix and attention work."
    else:
        name, share = "cannot_tell", 0.0
        text = "No kernel class dominates, and the timeline that would tell more is missing."
    return Verdict(
        name,
        "high" if name == "cannot_tell" else "medium" if share > 0.4 else "low",
        "shares are exact, idle time is not in the file",
        f"{text} {idle}",
        share or None,
        tuple(evidence),
        _EXPORT if name == "cannot_tell" else EXPERIMENTS[name],
    )


def _findings(
    shares: dict[str, float],
    cores: TensorCores,
    tiny_count: int,
    tiny_s: float,
    count: int,
    kernel_s: float,
) -> tuple[Finding, ...]:
    """Findings that need no timeline. `recoverable_frac` is of kernel time here."""
    if not kernel_s or not count:
        return ()
    found = []
    gemv = cores.gemv_s / kernel_s
    if gemv > limit.GEMV_DOMINATES:
        found.append(
            Finding(
                "matrix_vector",
                "Batch more, or make weights smaller",
                f"{pct(gemv)} of kernel time is matrix-vector products: each reads all weights for "
                "one token, so memory bandwidth is the limit by design.",
                cores.gemv_s / 2,
                gemv / 2,
                "modelled: weights of half the size",
                "strong" if gemv > 0.4 else "warn",
                (Evidence("Matrix-vector products", gemv, "fraction", "kernel time"),),
                "Raise the batch or quantise weights to 8 or 4 bits.",
            )
        )
    if tiny_count / count > limit.TINY_COUNT and tiny_s / kernel_s > limit.TINY_TIME:
        found.append(
            Finding(
                "tiny_kernels",
                "Fuse small kernels, replay them as a graph",
                f"{pct(tiny_count / count)} of {count:,} kernels are shorter than 10 µs on average "
                f"and take {pct(tiny_s / kernel_s)} of kernel time.",
                None,
                None,
                "not computable: the gaps between kernels are not in the file",
                "warn",
                (
                    Evidence("Kernels below 10 µs", tiny_count / count, "fraction", "kernels"),
                    Evidence("Their time", tiny_s / kernel_s, "fraction", "kernel time"),
                ),
                "Use CUDA graphs and torch.compile; export the timeline to see the idle time.",
            )
        )
    without = cores.no_s + cores.conv_no_s
    decided = without + cores.yes_s + cores.conv_yes_s
    if decided and without / decided > 0.1 and decided / kernel_s > limit.GEMM_MATTERS:
        found.append(
            Finding(
                "tensor_cores",
                "Use tensor cores",
                f"{pct(without / decided)} of the matrix time whose name decides runs without "
                "tensor cores.",
                without / 2,
                without / 2 / kernel_s,
                "modelled: at least twice the rate with tensor cores",
                "strong" if without / decided > 0.5 else "warn",
                (Evidence("Without tensor cores", without / decided, "fraction", "matrix time"),),
                "Run the model in bf16 or fp16 or, as the smallest change, allow TF32.",
            )
        )
    return tuple(sorted(found, key=lambda finding: -(finding.recoverable_s or 0.0)))


def _kernel(row: SummaryRow, kernel: Kernel, gpu_s: float) -> dict[str, Any]:
    return {
        "name": row.name,
        "short": short_name(row.name),
        "class": kernel.kernel_class,
        "tensor_core": kernel.tensor_core,
        "count": row.count,
        "time_s": row.total_s,
        "frac": (row.total_s or 0.0) / gpu_s if gpu_s else None,
        "mean_s": row.mean_s,
        "min_s": row.min_s,
        "max_s": row.max_s,
        "cov": None,
    }


def _copy(row: CopyRow) -> dict[str, Any]:
    return {
        "direction": row.direction,
        "count": row.count,
        "time_s": row.time_s,
        "size_bytes": row.size_bytes,
        "gb_s": row.gb_s,
        "large_gb_s": None,
        "pageable_s": None,
        "link_gb_s": None,
        "link_frac": None,
    }
