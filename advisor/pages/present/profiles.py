"""A profile trial on its page: what each recording says, what looking cost, where the trace is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from advisor import units
from advisor.evidence import TrialEvidence
from advisor.pages.present.traces import trace_kind, verdict_label
from advisor.traces.models import Trace
from gpuagent.wire.trial import ProfileResult, RecordedTrace

RECORDERS = {"torch": "torch.profiler", "nsys": "Nsight Systems"}
_MOST_SHARES = 12


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording. trace: the analysed file, where it arrived; note: why it is not here."""

    recorder: str
    kind: str
    word: str
    sentence: str
    shares: tuple[tuple[str, str, str, str], ...]
    shares_of: str
    findings: tuple[tuple[str, str, str], ...]
    trace: Trace | None
    note: str


@dataclass(frozen=True, slots=True)
class ProfilePage:
    recordings: tuple[Recording, ...]
    costs: tuple[tuple[str, str, str], ...]


def profile_page(seen: TrialEvidence, traces: Sequence[Trace]) -> ProfilePage | None:
    """None for a trial that is no profile or has no result yet."""
    result = seen.measured(ProfileResult)
    if result is None:
        return None
    return ProfilePage(
        recordings=tuple(_recording(row, traces) for row in result.traces),
        costs=tuple(_costs(result)),
    )


def _recording(row: RecordedTrace, traces: Sequence[Trace]) -> Recording:
    cpu = row.work == "cpu"
    wanted = "kineto" if row.recorder == "torch" else "nsys-sqlite"
    trace = next((t for t in traces if t.format == wanted), None)
    note = row.artifact_reason or ("" if trace else _("The file has not arrived, or was refused."))
    return Recording(
        recorder=RECORDERS[row.recorder],
        kind="info" if cpu else trace_kind(row.bottleneck, len(row.findings)),
        word=_("CPU operators") if cpu else verdict_label(row.bottleneck),
        sentence=row.sentence,
        shares=tuple(
            (s.name, units.percent(s.frac, 3), units.seconds(s.time_s), f"{s.count:,}")
            for s in row.shares[:_MOST_SHARES]
        ),
        shares_of=_("Share of operator time") if cpu else _("Share of GPU time"),
        findings=tuple((f.title, f.detail, f.change) for f in row.findings),
        trace=trace,
        note=str(note) if trace is None else "",
    )


def _costs(result: ProfileResult) -> list[tuple[str, str, str]]:
    """(quantity, value, how): plain against profiled steps, nsys, allocator."""
    plain, profiled = result.decode_step_s.values, result.profiled_step_s.values
    ratio, memory = result.overhead_ratio, result.memory
    overhead = f"{ratio.value:.2f} ×" if ratio.value is not None else units.DASH
    rows = [
        (_("Decode step, no profiler"), _typical(plain), _("median, n = {n}").format(n=len(plain))),
        (
            _("Decode step, torch.profiler"),
            _typical(profiled),
            _("median, n = {n}").format(n=len(profiled)),
        ),
        (_("Overhead"), overhead, ratio.reason or _("profiled ÷ plain, medians")),
    ]
    if not any(t.recorder == "nsys" for t in result.traces):
        rows.append((_("Nsight Systems"), units.DASH, result.nsys_reason or ""))
    if memory is None:
        rows.append((_("Allocator"), units.DASH, result.memory_reason or ""))
    else:
        rows += [
            (
                _("Allocator, peak"),
                units.memory(memory.allocated_peak_bytes),
                _("of {reserved} reserved").format(
                    reserved=units.memory(memory.reserved_peak_bytes)
                ),
            ),
            (
                _("Fragmentation"),
                units.percent(memory.fragmentation_frac),
                _("1 − allocated ÷ reserved, at their peaks; {n} retries").format(
                    n=memory.alloc_retries
                ),
            ),
        ]
    return [(str(name), value, str(how)) for name, value, how in rows]


def _typical(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return units.seconds(ordered[len(ordered) // 2]) if ordered else units.DASH
