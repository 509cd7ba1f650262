"""How a study was measured, on what, and how far its statements reach: sentences for the report."""

from __future__ import annotations

from advisor import units
from advisor.evidence import Measurement, StudyEvidence
from advisor.reported import LOOPS, failed_words, source_of
from advisor.targets import in_flight
from advisor.verdict import StudyVerdict
from gpuagent.wire import ConfigModel, EnvironmentSnapshot
from gpuagent.wire.inside import (
    AttentionResult,
    BatchingResult,
    CalibrateResult,
    KernelsResult,
    QuantisationResult,
)
from gpuagent.wire.parallel import TensorParallelResult
from gpuagent.wire.robustness import RobustnessResult
from gpuagent.wire.trial import (
    BaselineResult,
    ImportedResult,
    KvCacheResult,
    ProfileResult,
    ServeResult,
    VerifyResult,
)

_INSIDE: tuple[tuple[type[Measurement], str], ...] = (
    (
        CalibrateResult,
        "Ceilings: large reads and copies, square matrix products per dtype and an empty launch,"
        " best of several runs each.",
    ),
    (
        KernelsResult,
        "Kernels: the model's own matrix products layer after layer against ceilings of the same"
        " run; operators and decode steps eager, compiled and as a CUDA graph.",
    ),
    (
        AttentionResult,
        "Attention: one layer at the model's heads over growing contexts; every variant is checked"
        " against a float64 reference, structures also by perplexity.",
    ),
    (
        QuantisationResult,
        "Formats: one load after the other, same prompts; speed, bytes, perplexity and greedy"
        " answers against the first format.",
    ),
    (
        BatchingResult,
        "Batches: decode steps over batch sizes, mixed prompts as they come and sorted in turn,"
        " prefill in chunks.",
    ),
    (
        TensorParallelResult,
        "Tensor parallelism: groups of processes, one device each, by transformers' own plan;"
        " prefill and decode of one sequence, answers against one device.",
    ),
)


def method_lines(evidence: StudyEvidence) -> tuple[str, ...]:
    """What was done, in the order in which a reader doubts it."""
    lines = []
    baselines = [r for t in evidence.trials if (r := t.measured(BaselineResult))]
    imported = _first(evidence, ImportedResult)
    if imported is not None:
        lines += _imported(evidence, imported)
    elif baselines:
        lines.append(_arrivals(baselines))
        lines += _warm_up(baselines)
        lines.append(_quality(baselines))
    verify = _first(evidence, VerifyResult)
    if verify is not None:
        order = " ".join(run.side.upper() for run in verify.runs)
        lines.append(
            f"Verification: {len(verify.runs)} runs, interleaved as {order} (A current,"
            " B recommended), each with its own seed and fresh prompts."
        )
    kv = _first(evidence, KvCacheResult)
    if kv is not None:
        lines.append(
            f"KV cache: decode steps with and without the cache at {len(kv.points)} context"
            " lengths; the cache's bytes are counted from its tensors."
        )
    profile = _first(evidence, ProfileResult)
    if profile is not None:
        names = (
            " and ".join(
                {"torch": "torch.profiler", "nsys": "Nsight Systems"}[t.recorder]
                for t in profile.traces
            )
            or "no profiler that gave a file"
        )
        lines.append(
            f"Profile: a few prefill and decode steps under {names}, beside the same steps without"
            " one; profiled times are used for shares alone, never as latencies."
        )
    if _first(evidence, RobustnessResult) is not None:
        lines.append(
            "Robustness: the server was misused on purpose, without other traffic; what it does for"
            " a client that left, and its memory, are claimed from its own metrics alone."
        )
    lines += [text for kind, text in _INSIDE if _first(evidence, kind) is not None]
    if imported is not None and not imported.requests:
        lines.append("The file has only percentiles: there is no interval and no distribution.")
        return _spaced(lines)
    targeted = dict.fromkeys(t.metric for t in evidence.spec.targets)
    if imported is not None:
        held = _held(imported)
        lines += [
            f"{units.METRIC_NAMES[metric]} of the single requests is {held[metric]}."
            for metric in targeted
            if metric in held
        ]
    else:
        for metric in targeted:
            definition = units.METRIC_DEFINITIONS[metric]
            lines.append(f"{units.METRIC_NAMES[metric]} is {definition}.")
    if baselines:
        lines.append(
            "Intervals are 95 %: order statistics for percentiles (bootstrap over requests for"
            " gaps between tokens), t intervals for means. A target counts as met or missed only"
            " where a test at that confidence says so."
        )
    return _spaced(lines)


def _spaced(lines: list[str]) -> tuple[str, ...]:
    return tuple(line.replace(" %", f"{units.NBSP}%") for line in lines)


def _imported(evidence: StudyEvidence, result: ImportedResult) -> list[str]:
    """Where the numbers come from, how the tool defines them, and what it does not tell."""
    single = len(result.requests)
    lines = [
        f"Not measured by an agent, but {source_of(evidence)}: {result.sent:,} requests, "
        f"{failed_words(result.failed)}, {LOOPS[result.loop]}.",
        f"The file holds {single:,} single requests." if single else "The file holds only sums.",
    ]
    lines += [
        f"{one.name} by the tool: {one.reason or one.definition}."
        for one in result.metrics
        if one.reason or one.definition
    ]
    return [*lines, *result.notes]


def _held(result: ImportedResult) -> dict[str, str]:
    """What the single requests of a file tell of each metric; nothing of what they do not."""
    found = {
        "ttft_s": "first output token − real send time",
        "itl_s": "every gap between two output tokens",
        "e2e_s": "last output token − real send time",
        "output_tok_s": "output tokens ÷ (last token − first real send)",
    }
    if any(one.sent_s > one.intended_s for one in result.requests):
        found |= {
            "ttft_s": "first output token − intended send time, the tool's own queue included",
            "e2e_s": "last output token − intended send time, the tool's own queue included",
            "output_tok_s": units.METRIC_DEFINITIONS["output_tok_s"],
        }
    if result.hidden_tokens:
        found["itl_s"] = "every gap between two chunks, which carry several tokens each"
        # The tool's own number is shown instead.
        del found["output_tok_s"]
    return found


def _first(evidence: StudyEvidence, kind: type[Measurement]) -> Measurement | None:
    found = evidence.succeeded(kind)
    return found[0].measured(kind) if found else None


def _arrivals(baselines: list[BaselineResult]) -> str:
    sent = sum(len(r.requests) for r in baselines)
    failed = sum(1 for r in baselines for q in r.requests if q.error is not None or not q.token_s)
    streams = max((r.streams or 1 for r in baselines if isinstance(r, ServeResult)), default=1)
    if all(r.arrivals == "poisson" for r in baselines):
        how = "Open-loop Poisson arrivals, timed from the intended send"
    elif streams > 1:
        how = (
            f"Up to {streams} requests in flight (closed loop), so no claim is made about a "
            "request rate"
        )
    else:
        how = "One request after the other (closed loop), so no claim is made about a request rate"
    tail = "none failed" if not failed else f"{failed:,} failed and count as over every limit"
    return f"{how}; {sent:,} requests in {len(baselines)} trials, {tail}."


def _warm_up(baselines: list[BaselineResult]) -> list[str]:
    """Nothing where no engine was started."""
    starts = [r.cold for r in baselines if r.cold is not None]
    if not starts:
        return []
    rounds = sorted({cold.warmup_iterations for cold in starts})
    text = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    load = max(cold.load_s for cold in starts)
    return [
        f"Loading ({units.seconds(load)} at most) and {text} warm-up rounds are kept apart from"
        " every number; the grid repeats each timing with the clock synchronised at both ends."
    ]


def _quality(baselines: list[BaselineResult]) -> str:
    known = [r.perplexity for r in baselines if r.perplexity is not None]
    if not known:
        reason = next((r.perplexity_reason for r in baselines if r.perplexity_reason), "")
        return f"Quality was not measured: {reason or 'no reason recorded'}."
    values = ", ".join(f"{units.number(p.value, 4)}" for p in known)
    first = known[0]
    return f"Quality: perplexity on {first.text}, {first.tokens:,} tokens: {values}."


def environment_lines(evidence: StudyEvidence) -> list[tuple[str, str]]:
    """Where it was measured, from the last finished trial's own snapshot."""
    results = [t.result for t in evidence.trials if t.result is not None]
    if not results:
        return []
    snapshot = results[-1].environment
    simulated = evidence.spec.engine == "simulated"
    lines = [("Device", _device(snapshot))]
    if not simulated and snapshot.host is not None:
        lines.append(("Host", _host(snapshot)))
    if snapshot.driver_version:
        lines.append(("Driver", snapshot.driver_version))
    if snapshot.versions:
        names = ", ".join(f"{name} {version}" for name, version in snapshot.versions.items())
        lines.append(("Software", names))
    if snapshot.threads is not None:
        lines.append(("Threads", str(snapshot.threads)))
    loaded = _first(evidence, BaselineResult)
    if loaded is not None and snapshot.host is not None and not simulated:
        model = loaded.model
        parts = [model.architecture]
        if model.params is not None:
            parts.append(f"{units.count(model.params)} parameters")
        if model.stored_weight_bytes is not None:
            parts.append(f"{units.memory(model.stored_weight_bytes)} of weights")
        if model.random_weights:
            parts.append("random weights")
        lines.append(("Model as loaded", ", ".join(parts)))
    return lines


def _device(snapshot: EnvironmentSnapshot) -> str:
    if not snapshot.gpus:
        return snapshot.device
    first = snapshot.gpus[0]
    parts = [f"{len(snapshot.gpus)} × {first.name}"]
    if first.memory_bytes:
        parts.append(units.memory(first.memory_bytes))
    if first.power_limit_w:
        parts.append(f"power limit {first.power_limit_w:.0f}{units.NBSP}W")
    parts.append("MIG on" if first.mig else "MIG off")
    return ", ".join(parts)


def _host(snapshot: EnvironmentSnapshot) -> str:
    host = snapshot.host
    if host is None:
        return "not known"
    memory = units.memory(host.memory_bytes)
    return f"{host.cpu}, {host.logical_cores} logical cores, {memory}, {host.os}"


def cancelled_note(evidence: StudyEvidence) -> str:
    """Which trials a person took out of a study that went on; "" for none."""
    if evidence.cancelled:
        return ""
    numbers = [str(t.ordinal) for t in evidence.trials if t.state == "cancelled"]
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f"Trial {numbers[0]} was cancelled; the study is without it."
    return f"Trials {', '.join(numbers)} were cancelled; the study is without them."


def _doubts(evidence: StudyEvidence) -> list[str]:
    """Why measurements are not simply valid; trials with the same reasons share a line."""
    trials: dict[str, list[str]] = {}
    for trial in evidence.trials:
        if trial.result is not None and trial.result.validity.verdict != "valid":
            reasons = "; ".join(trial.result.validity.reasons)
            trials.setdefault(reasons, []).append(str(trial.ordinal))
    return [
        f"Trial{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}: {reasons}."
        for reasons, numbers in trials.items()
    ]


def limit_lines(evidence: StudyEvidence, verdict: StudyVerdict) -> tuple[str, ...]:
    """What the report does not say."""
    lines = ["Holds for this device, these software versions and this mix of lengths."]
    if isinstance(evidence.spec.model, ConfigModel):
        lines.append("Random weights: speed and memory are those of the model, quality is not.")
    if evidence.spec.engine == "imported":
        lines.append("Whether the tool's own client was the bottleneck is not known.")
        lines.append("Settings and engine are not in the file: nothing is said about them.")
    elif evidence.spec.workload.request_rate_per_s is None:
        streams = max((in_flight(trial) for trial in evidence.trials), default=1)
        lines.append(
            f"The targets are judged with {streams} requests in flight: at a request rate latency "
            "may differ."
            if streams > 1
            else "Measured with one stream: latency under concurrent load is not known."
        )
    if verdict.verification in ("measured_once", "none") and verdict.recommended is not None:
        lines.append("The recommendation was measured once and not yet repeated against today's.")
    left_out = cancelled_note(evidence)
    if left_out:
        lines.append(left_out)
    lines += _doubts(evidence)
    lines += [f"Not known: {text}" for text in verdict.unknown]
    return tuple(lines)
