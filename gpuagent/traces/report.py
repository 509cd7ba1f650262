"""The report of one trace as typed values and as the JSON whose keys are a promise.

Every fraction names its denominator in `denominators`; a value that the file cannot give is None,
never 0, and `reliability` says why.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from gpuagent.traces.findings import Finding
from gpuagent.traces.reliability import Caveat
from gpuagent.traces.verdict import Evidence, Verdict

REPORT_VERSION = 1

DENOMINATORS: dict[str, str] = {
    "busy_frac": "window, time-weighted over devices",
    "idle_frac": "window, time-weighted over devices",
    "idle_causes": "window, time-weighted over devices; the causes add up to idle_frac",
    "memcpy_frac": "window, time-weighted over devices",
    "exposed_memcpy_frac": "window, time-weighted over devices; copies with no kernel running",
    "comm_frac": "window, time-weighted over devices",
    "exposed_comm_frac": "window, time-weighted over devices; communication with no compute",
    "kernel_classes": "summed GPU time of kernels, copies and sets",
    "tensor_core": "time of GEMM and mixture-of-experts kernels, matrix-vector kernels left out",
    "top_kernels": "summed GPU time of kernels, copies and sets",
}


@dataclass(frozen=True, slots=True)
class TraceReport:
    """Everything the product says about one trace. `as_dict` gives the promised JSON keys."""

    source: dict[str, Any]
    verdict: Verdict
    reliability: tuple[Caveat, ...]
    window_s: float | None
    busy_frac: float | None
    idle_frac: float | None
    idle_causes: dict[str, float] | None
    memcpy_frac: float | None
    exposed_memcpy_frac: float | None
    comm_frac: float | None
    exposed_comm_frac: float | None
    kernel_classes: dict[str, float] | None
    tensor_core: dict[str, float | None] | None
    top_kernels: tuple[dict[str, Any], ...]
    api: dict[str, dict[str, Any]] | None
    devices: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    class_table: tuple[dict[str, Any], ...]
    matrix: dict[str, float | None] | None
    tiny_kernels: dict[str, Any] | None
    host: dict[str, Any] | None
    copies: tuple[dict[str, Any], ...]
    steps: dict[str, Any] | None
    phases: tuple[dict[str, Any], ...]
    fusion: tuple[dict[str, Any], ...]
    variance: tuple[dict[str, Any], ...]
    cpu: dict[str, Any] | None
    timeline: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "report_version": REPORT_VERSION,
            "source": self.source,
            "verdict": _verdict(self.verdict),
            "reliability": [asdict(caveat) for caveat in self.reliability],
            "window_s": self.window_s,
            "busy_frac": self.busy_frac,
            "idle_frac": self.idle_frac,
            "idle_causes": self.idle_causes,
            "memcpy_frac": self.memcpy_frac,
            "exposed_memcpy_frac": self.exposed_memcpy_frac,
            "comm_frac": self.comm_frac,
            "exposed_comm_frac": self.exposed_comm_frac,
            "kernel_classes": self.kernel_classes,
            "tensor_core": self.tensor_core,
            "top_kernels": list(self.top_kernels),
            "api": self.api,
            "devices": list(self.devices),
            "findings": [asdict(finding) for finding in self.findings],
            "class_table": list(self.class_table),
            "matrix": self.matrix,
            "tiny_kernels": self.tiny_kernels,
            "host": self.host,
            "copies": list(self.copies),
            "steps": self.steps,
            "phases": list(self.phases),
            "fusion": list(self.fusion),
            "variance": list(self.variance),
            "cpu": self.cpu,
            "timeline": self.timeline,
            "denominators": DENOMINATORS,
        }


_TUPLES = ("top_kernels", "devices", "class_table", "copies", "phases", "fusion", "variance")


def report_from_dict(table: dict[str, Any]) -> TraceReport:
    """The typed report of what `as_dict` gave, as stored or sent."""
    values = {field.name: table[field.name] for field in fields(TraceReport)}
    values |= {name: tuple(table[name]) for name in _TUPLES}
    verdict = {k: v for k, v in table["verdict"].items() if k not in ("class", "label")}
    verdict |= {"bottleneck": table["verdict"]["class"], "evidence": _evidence(table["verdict"])}
    values["verdict"] = Verdict(**verdict)
    values["reliability"] = tuple(
        Caveat(**{**row, "affects": tuple(row["affects"])}) for row in table["reliability"]
    )
    values["findings"] = tuple(
        Finding(**{**row, "evidence": _evidence(row)}) for row in table["findings"]
    )
    return TraceReport(**values)


def _evidence(row: dict[str, Any]) -> tuple[Evidence, ...]:
    return tuple(Evidence(**item) for item in row["evidence"])


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "class": verdict.bottleneck,
        "label": verdict.label,
        "confidence": verdict.confidence,
        "confidence_reason": verdict.confidence_reason,
        "sentence": verdict.sentence,
        "share": verdict.share,
        "second": verdict.second,
        "evidence": [asdict(row) for row in verdict.evidence],
        "experiment": verdict.experiment,
    }
