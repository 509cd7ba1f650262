"""A server on its trial's page: what it said about itself, its counts, its highest rate."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from advisor import units
from advisor.charts import Chart, ChartInput, chart
from advisor.charts.boundary import trial_charts
from advisor.charts.highest_rate import ended
from advisor.charts.rate_curve import rate_text
from advisor.evidence import StudyEvidence, TrialEvidence
from gpuagent.wire import Quantity
from gpuagent.wire.serving import CountCheck, EngineFacts, RateBoundary
from gpuagent.wire.trial import ServeResult

Line = tuple[str, str, str]
"""(name, value, how it is known or why not)"""

_COUNTED = {
    "requests": "Requests",
    "output_tokens": "Output tokens",
    "input_tokens": "Input tokens",
}
_OWN = "the engine's own words at its start"
_SIMULATED = "as simulated"


@dataclass(frozen=True, slots=True)
class CountLine:
    """One thing counted on both sides; kind and word say whether they agree."""

    name: str
    client: str
    server: str
    kind: str
    word: str
    note: str


@dataclass(frozen=True, slots=True)
class ServerPage:
    """What the Server section prints. command: "" for an endpoint, which the agent starts not."""

    lines: tuple[Line, ...]
    counts: tuple[CountLine, ...]
    command: str
    charts: tuple[tuple[Chart, ...], ...]


@dataclass(frozen=True, slots=True)
class BoundaryPage:
    """What the Highest rate section prints. reason: why there is none, "" where there is one."""

    lines: tuple[Line, ...]
    charts: tuple[tuple[Chart, ...], ...]
    reason: str


def has_server(trial: TrialEvidence) -> bool:
    return trial.measured(ServeResult) is not None


def has_boundary(trial: TrialEvidence) -> bool:
    """Whether a highest rate was looked for."""
    result = trial.measured(ServeResult)
    return result is not None and (result.boundary is not None or bool(result.boundary_reason))


def server_page(trial: TrialEvidence, evidence: StudyEvidence) -> ServerPage | None:
    """None for a trial without a server."""
    result = trial.measured(ServeResult)
    if result is None:
        return None
    served, counters = result.served, result.server
    simulated = evidence.spec.engine == "simulated"
    name = f"{served.engine} {served.version or ''}".strip()
    lines: list[Line] = [
        ("Start", units.seconds(served.ready_s.value), served.ready_s.reason or f"{name}, ready"),
        *_fact_lines(served.facts, _SIMULATED if simulated else _OWN),
        _share("Prefix cache hits", served.prefix_hit_frac, "of prompt tokens"),
        _share("Accepted draft tokens", served.spec_accepted_frac, "of what the draft proposed"),
    ]
    if counters is not None:
        most = f"at most {units.percent(counters.kv_peak_frac)} of the cache used"
        lines.append(("Running at the peak", f"{counters.running_peak:,} requests", most))
        own = _SIMULATED if simulated else "the server's own count"
        lines.append(("Preemptions", f"{counters.preemptions:,}", own))
    data = ChartInput.of_trial(evidence, trial.trial_id)
    return ServerPage(
        lines=tuple(lines),
        counts=tuple(_count(count) for count in served.counts),
        command=" \\\n  ".join(_grouped(served.command)),
        charts=((chart("server-timeline", data),),),
    )


def boundary_page(trial: TrialEvidence) -> BoundaryPage | None:
    """None for a trial that looked for no highest rate."""
    result = trial.measured(ServeResult)
    if result is None or not has_boundary(trial):
        return None
    if result.boundary is None:
        return BoundaryPage((), (), f"{result.boundary_reason}.")
    charts = trial_charts(trial)
    latency = tuple(c for c in charts if c.id not in ("goodput-by-rate", "throughput-by-rate"))
    groups = (latency, tuple(c for c in charts if c not in latency))
    lines = _boundary_lines(result.boundary, simulated=trial.spec.engine == "simulated")
    return BoundaryPage(lines, tuple(g for g in groups if g), "")


def _fact_lines(facts: EngineFacts, basis: str) -> list[Line]:
    told = [
        ("KV cache", facts.kv_cache_tokens, "tokens"),
        ("KV block", facts.kv_block_tokens, "tokens"),
        ("Longest context", facts.max_context, "tokens"),
        ("Most running requests", facts.max_running, "requests"),
        ("Tokens per step", facts.max_batched_tokens, "tokens"),
    ]
    lines = [(n, f"{v:,}{units.NBSP}{unit}", basis) for n, v, unit in told if v is not None]
    if facts.attention is not None:
        lines.append(("Attention", facts.attention, basis))
    if facts.graph_sizes:
        span = f"{len(facts.graph_sizes)}, up to {max(facts.graph_sizes):,}"
        lines.append(("CUDA graph sizes", span, basis))
    return lines


def _share(name: str, found: Quantity, of: str) -> Line:
    return name, units.percent(found.value), found.reason or of


def _count(count: CountCheck) -> CountLine:
    name = _COUNTED[count.what]
    if count.server is None:
        why = count.reason or "the server told no count"
        return CountLine(name, f"{count.client:,}", units.DASH, "na", "Client alone", why)
    same = count.client == count.server
    off = abs(count.client - count.server)
    return CountLine(
        name,
        f"{count.client:,}",
        f"{count.server:,}",
        "good" if same else "warn",
        "Same" if same else "Differs",
        count.reason or ("" if same else f"by {off:,}, {units.percent(off / (count.server or 1))}"),
    )


def _grouped(command: tuple[str, ...]) -> list[str]:
    """An option with its value on a line of its own."""
    lines: list[list[str]] = []
    for word in command:
        if not lines or word.startswith("--"):
            lines.append([word])
        else:
            lines[-1].append(word)
    return [shlex.join(line) for line in lines]


def _boundary_lines(found: RateBoundary, *, simulated: bool) -> tuple[Line, ...]:
    def rate(value: float | None) -> str:
        return units.DASH if value is None else rate_text(value)

    each = units.seconds(found.point_s, 2)
    proof = f"every target proven with {units.percent(found.confidence)} confidence"
    if found.proven_per_s is None:
        proof = "no rate had enough requests for a proof of every target"
        if found.needed_requests is not None:
            proof += f"; {found.needed_requests:,} in one run would do"
    return (
        ("Highest rate within the targets", rate(found.rate_per_s), ended(found)),
        (
            "Keeps all targets at",
            rate(found.low),
            "highest rate sent, on the fitted curve",
        ),
        ("Misses a target at", rate(found.high), "lowest rate sent, on the fitted curve"),
        ("Proven at", rate(found.proven_per_s), proof),
        ("Simulated rates", f"{len(found.points)}", f"up to {each} of simulated time each")
        if simulated
        else ("Measured rates", f"{len(found.points)}", f"{each} each"),
    )
