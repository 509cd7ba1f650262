"""What to measure, in which order, and why: the plan of a study and its next trials. Pure.

`plan` is made once, at submission, from spec, shape and device; `next_trials` is asked each time
all planned trials ended, and an empty answer ends the study. Every trial says why it is run and how
long it takes, and what the budget does not hold is left out by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from advisor import units
from advisor.candidates import best_candidate, recommended_settings
from advisor.evidence import DeviceFacts, Role, StudyEvidence, TrialEvidence
from advisor.measures import DTYPE_BYTES, baseline_of, resolved_dtype
from advisor.rules.rule import Finding
from advisor.shapes import ModelShape
from advisor.studies import served
from advisor.studies.diagnosis import parts
from advisor.studies.planned import PlannedTrial as PlannedTrial
from advisor.studies.timing import Timing, about, verify_s
from advisor.targets import trial_metrics
from gpuagent.request_metrics import RequestMetrics
from gpuagent.wire import EngineSettings, StudySpec, Workload
from gpuagent.wire.trial import (
    BaselineConfig,
    BaselineResult,
    KvCacheConfig,
    ProfileConfig,
    VerifyConfig,
)

Phase = Literal["understand", "baseline", "diagnose", "search", "verify", "done"]

TERMINAL = ("succeeded", "failed", "cancelled", "quarantined")
DTYPES = {"cpu": ("float32", "bfloat16"), "gpu": ("bfloat16", "float16", "float32")}
MAX_VERIFICATIONS = 2
# Lines of the measurement checklist that tell of the host's last minutes, not of a setting.
PASSING = frozenset(
    {
        "repeats_cov",
        "steady_state",
        "other_cpu_load",
        "cpu_steal",
        "foreign_gpu_processes",
        "gpu_throttled",
        "send_lag",
    }
)
# The paired test needs six to prove anything.
PAIRS = 6
RUN_S = 6.0
MAX_RUN_REQUESTS = 20
# Grid and diagnosis may take this share of the budget each; the workload's own requests decide.
GRID_SHARE = 0.08
GRID_MAX_S = 90.0
KV_SHARE = 0.14
KV_MAX_S = 125.0
MEMORY_HEADROOM_FRAC = 0.9


@dataclass(frozen=True, slots=True)
class Plan:
    """Trials in the order they run, and notes: what was left out, what may go wrong."""

    trials: tuple[PlannedTrial, ...]
    notes: tuple[str, ...]

    @property
    def estimate_s(self) -> float:
        return sum(trial.estimate_s for trial in self.trials)


@dataclass(frozen=True, slots=True)
class _Option:
    """A trial that could be run; the least `value` is dropped first."""

    trial: PlannedTrial
    value: int


def plan(spec: StudySpec, *, shape: ModelShape | None, device: DeviceFacts) -> Plan:
    """The first trials of a study: current settings, KV cache, other dtypes, within the budget."""
    if spec.engine != "transformers":
        return Plan(*served.first_trials(spec, device))
    timing = Timing(shape, device, spec.current)
    config = _baseline_config(spec, timing)
    current = PlannedTrial(
        role="current",
        title=f"Current settings ({settings_text(spec.current, shape)})",
        reason="Every comparison starts from the settings in use today.",
        settings=spec.current,
        config=config,
        estimate_s=timing.baseline_s(config, spec.workload),
    )
    notes = _memory_notes(spec, timing)
    options = [_Option(current, 100), _kv_option(spec, timing)]
    if spec.profile:
        options.append(_profile_option(spec, timing))
    if spec.goal == "diagnose":
        options += _diagnosis(spec, timing)
    for option in _variants(spec, timing, config) if spec.goal == "optimise" else ():
        lacking = _lacks_memory(spec, replace(timing, settings=option.trial.settings))
        if lacking:
            notes.append(f"Left out: {option.trial.title}. {lacking}.")
        else:
            options.append(option)
    kept, dropped = _within_budget(spec, timing, options)
    notes += [_dropped_note(option.trial, spec.budget_s) for option in dropped]
    total_s = sum(option.trial.estimate_s for option in kept)
    if total_s > spec.budget_s:
        notes.append(
            f"The current settings alone take {about(total_s)}, more than the budget of "
            f"{units.seconds(spec.budget_s)}: fewer requests shorten it."
        )
    return Plan(trials=tuple(option.trial for option in kept), notes=tuple(notes))


def next_trials(evidence: StudyEvidence, findings: Sequence[Finding]) -> tuple[PlannedTrial, ...]:
    """Trials that the evidence calls for; () while some are under way, and when nothing is left.

    A measurement that passing trouble on the host made invalid is taken once more, the current
    settings first: without them there is nothing to compare with.
    The best configuration that differs from the current one is verified by an interleaved A/B,
    where the budget still holds it. `findings` are those of `evidence`; a recommendation that a
    rule withdrew (quality, memory) is no candidate.
    """
    if evidence.finished or evidence.cancelled or evidence.device is None:
        return ()
    if any(trial.state not in TERMINAL for trial in evidence.trials):
        return ()
    again = _again(evidence)
    if again:
        return again
    if evidence.spec.engine != "transformers":
        return _next_served(evidence)
    best = _to_verify(evidence)
    planned = _verification(evidence, *best) if best is not None else None
    return (planned,) if planned is not None else ()


def _next_served(evidence: StudyEvidence) -> tuple[PlannedTrial, ...]:
    """The search, then the A/B of its best, then the misuse: what the budget holds of them."""
    spent = spent_s(evidence)
    found = served.searched(evidence, spent)
    best = _to_verify(evidence) if found is None else None
    if best is not None:
        found = served.verification(evidence, best[1], spent)
    if found is None:
        advised = recommended_settings(evidence, best_candidate(evidence))
        found = served.misuse(evidence, advised or evidence.spec.current, spent)
    return (found,) if found is not None else ()


def _to_verify(evidence: StudyEvidence) -> tuple[TrialEvidence, TrialEvidence] | None:
    """(current, best), where the best is another one that no A/B was made of."""
    current, best = evidence.current, best_candidate(evidence)
    if current is None or not current.usable or best is None or best.trial is current:
        return None
    runs = [trial for trial in evidence.trials if trial.role == "verification"]
    tried = [t.spec.config.candidate for t in runs if isinstance(t.spec.config, VerifyConfig)]
    if len(runs) >= MAX_VERIFICATIONS or best.trial.settings in tried:
        return None
    return current, best.trial


def phase_of(evidence: StudyEvidence) -> Phase:
    """Where a study stands: the earliest phase that still has work, `done` at the end."""
    if evidence.finished or evidence.cancelled:
        return "done"
    # The misuse of a server is a diagnosis by its role, and comes last.
    open_roles = {
        "verification" if t.spec.experiment == "robustness" else t.role
        for t in evidence.trials
        if t.state not in TERMINAL
    }
    phases: tuple[tuple[Role, Phase], ...] = (
        ("current", "baseline"),
        ("diagnosis", "diagnose"),
        ("variant", "search"),
        ("verification", "verify"),
    )
    for role, phase in phases:
        if role in open_roles:
            return phase
    return "done" if evidence.trials else "understand"


def settings_text(settings: EngineSettings, shape: ModelShape | None = None) -> str:
    """ "bfloat16, cache off": what differs from the defaults, dtype always."""
    parts = [resolved_dtype(settings, shape) if shape is not None else settings.dtype]
    if not settings.kv_cache:
        parts.append("cache off")
    if settings.attention != "auto":
        parts.append(settings.attention)
    if settings.threads is not None:
        parts.append(f"{settings.threads} thread{'s' if settings.threads != 1 else ''}")
    return ", ".join(parts)


# --- the first plan ----------------------------------------------------------------------------


def _baseline_config(spec: StudySpec, timing: Timing) -> BaselineConfig:
    """The largest grid around the workload's prompt length that keeps to its share of time."""
    limit = _context_limit(timing.shape)
    steps = min(16, max(2, limit // 2))
    prompt = max(1, min(spec.workload.input_tokens.mean, limit - steps))
    quarter = max(1, prompt // 4)
    batches = (1, 4, 16) if timing.device.kind == "gpu" else (1, 4)
    lengths = tuple(sorted({quarter, prompt}))
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        (batches, lengths),
        (batches[:2], lengths),
        ((1,), lengths),
        ((1,), (quarter,)),
        ((1,), (min(quarter, 128),)),
    )
    allowed_s = min(GRID_MAX_S, GRID_SHARE * spec.budget_s)
    made = [
        BaselineConfig(
            batch_sizes=grid_batches,
            input_tokens=grid_lengths,
            decode_steps=steps,
            perplexity_tokens=_perplexity_tokens(timing),
        )
        for grid_batches, grid_lengths in shapes
    ]
    return next((config for config in made if timing.grid_s(config) <= allowed_s), made[-1])


def _perplexity_tokens(timing: Timing) -> int:
    """2,048 tokens, fewer where reading them would take more than half a minute."""
    tokens = 2048
    while tokens > 256 and timing.prefill_s(tokens) > 30:
        tokens //= 2
    return tokens


def _context_limit(shape: ModelShape | None) -> int:
    return shape.max_context if shape is not None and shape.max_context else 1 << 20


def _kv_option(spec: StudySpec, timing: Timing) -> _Option:
    """Contexts double up to what the workload reaches, 512 at least, as time allows."""
    top = min(max(512, _mean_context(spec.workload)), _context_limit(timing.shape) - 8)
    contexts = [tokens for tokens in (64 << i for i in range(12)) if tokens <= top] or [
        max(1, top // 2),
        max(2, top),
    ]
    allowed_s = min(KV_MAX_S, KV_SHARE * spec.budget_s)
    tokens = _perplexity_tokens(timing) // 2
    config = _kv_config(contexts, 8, tokens)
    # Fewer steps first, then shorter contexts: 256 tokens are the least that says anything.
    while timing.kv_cache_s(config) - timing.load_s > allowed_s and contexts[-1] > 256:
        if config.decode_steps == 4:
            contexts = contexts[:-1]
        config = _kv_config(contexts, 4, tokens)
    trial = PlannedTrial(
        role="diagnosis",
        title="KV cache on and off",
        reason="Shows what the cache saves per token and whether its memory follows the formula.",
        settings=spec.current,
        config=config,
        estimate_s=timing.kv_cache_s(config),
    )
    worth = 76 if spec.goal == "diagnose" else 60
    return _Option(trial, worth if spec.current.kv_cache else 90)


def _profile_option(spec: StudySpec, timing: Timing) -> _Option:
    """A prompt of the workload's mean length, 512 at most: a longer one only makes a larger file.

    Kept before other measurements, since somebody asked for it.
    """
    config = ProfileConfig(input_tokens=max(1, min(512, spec.workload.input_tokens.mean)))
    trial = PlannedTrial(
        role="diagnosis",
        title="Profile of the current settings",
        reason="Shows where the time goes inside a step, and what keeps the device waiting.",
        settings=spec.current,
        config=config,
        estimate_s=timing.profile_s(config),
    )
    return _Option(trial, 92)


def _diagnosis(spec: StudySpec, timing: Timing) -> list[_Option]:
    """Every part of the model apart; formats are compared there, so no variants are run."""
    return [
        _Option(
            PlannedTrial(
                role="diagnosis",
                title=part.title,
                reason=part.reason,
                settings=spec.current,
                config=part.config,
                estimate_s=part.estimate_s,
            ),
            part.value,
        )
        for part in parts(spec, timing, _context_limit(timing.shape))
    ]


def _kv_config(contexts: Sequence[int], steps: int, perplexity_tokens: int) -> KvCacheConfig:
    chosen = list(contexts)[-6:]
    if len(chosen) < 2:
        chosen = [max(1, chosen[0] // 2), chosen[0]]
    return KvCacheConfig(
        context_tokens=tuple(chosen), decode_steps=steps, perplexity_tokens=perplexity_tokens
    )


def _variants(spec: StudySpec, timing: Timing, config: BaselineConfig) -> list[_Option]:
    """One knob at a time, so that each difference has one cause."""
    current, found = spec.current, []
    if not current.kv_cache:
        found.append(
            (
                current.model_copy(update={"kv_cache": True}),
                "KV cache on",
                "The cache is off today; this shows the same workload with it.",
                95,
            )
        )
    own = timing.dtype
    for dtype in DTYPES[timing.device.kind]:
        if dtype == own:
            continue
        reason, value = _dtype_reason(timing.device.kind, own, dtype)
        found.append(
            (
                current.model_copy(update={"dtype": dtype}),
                f"{dtype} instead of {own}",
                reason,
                value,
            )
        )
    if current.attention == "eager":
        found.append(
            (
                current.model_copy(update={"attention": "sdpa"}),
                "Attention sdpa instead of eager",
                "Fused attention avoids writing the score matrix to memory.",
                70,
            )
        )
    return [
        _Option(
            PlannedTrial(
                role="variant",
                title=title,
                reason=reason,
                settings=settings,
                config=config,
                estimate_s=replace(timing, settings=settings).baseline_s(config, spec.workload),
            ),
            value,
        )
        for settings, title, reason, value in found
    ]


def _dtype_reason(kind: str, own: str, dtype: str) -> tuple[str, int]:
    if kind == "cpu":
        if dtype == "float32":
            return "Many processors compute float32 faster than 16-bit formats.", 80
        return "Half the bytes per weight: faster where the processor computes in bfloat16.", 50
    if dtype == "float32":
        return "Reference for quality; slower and larger on GPUs.", 10
    if own == "float32":
        return "Half the bytes per weight, and tensor cores.", 85 if dtype == "bfloat16" else 40
    return "Same size as today's format with other kernels and another range.", 30


def _within_budget(
    spec: StudySpec, timing: Timing, options: list[_Option]
) -> tuple[list[_Option], list[_Option]]:
    """Drop the least valuable until the rest and a verification fit; the current one stays."""
    kept, dropped = list(options), []
    while len(kept) > 1:
        variants = [o.trial for o in kept if o.trial.role == "variant"]
        reserve_s = max((_reserve_s(spec, timing, trial) for trial in variants), default=0.0)
        if sum(o.trial.estimate_s for o in kept) + reserve_s <= spec.budget_s:
            break
        least = min(kept[1:], key=lambda option: option.value)
        kept.remove(least)
        dropped.append(least)
    return kept, dropped


def _reserve_s(spec: StudySpec, timing: Timing, variant: PlannedTrial) -> float:
    """Time of the smallest verification of `variant`."""
    config = VerifyConfig(candidate=variant.settings, pairs=PAIRS, requests_per_run=2)
    return verify_s(timing, replace(timing, settings=variant.settings), config, spec.workload)


def _dropped_note(trial: PlannedTrial, budget_s: float) -> str:
    return (
        f"Left out: {trial.title} ({about(trial.estimate_s)}). The budget of "
        f"{units.seconds(budget_s)} does not hold it."
    )


def _memory_notes(spec: StudySpec, timing: Timing) -> list[str]:
    lacking = _lacks_memory(spec, timing)
    return [f"The current settings may not fit. {lacking}."] if lacking else []


def _lacks_memory(spec: StudySpec, timing: Timing) -> str | None:
    """Why weights and the cache of one request do not fit the device, or None."""
    available = timing.device.memory_bytes
    if available is None or timing.shape is None:
        return None
    available *= max(1, timing.device.count)
    tokens = _mean_context(spec.workload)
    cache = timing.shape.kv_bytes_for(tokens, DTYPE_BYTES[timing.dtype])
    needed = timing.weight_bytes + cache
    if needed <= MEMORY_HEADROOM_FRAC * available:
        return None
    return (
        f"It needs {units.memory(needed)} in {timing.dtype}, and the device has "
        f"{units.memory(available)}"
    )


def _mean_context(workload: Workload) -> int:
    """Tokens of a mean request at its end, prompt and answer."""
    return workload.input_tokens.mean + workload.output_tokens.mean


# --- measuring again ---------------------------------------------------------------------------


def _again(evidence: StudyEvidence) -> tuple[PlannedTrial, ...]:
    """Invalid trials that may turn out better, each once, within half of what the budget has left.

    The other half is for the verification.
    """
    current = evidence.current
    if current is None:
        return ()
    disturbed = [
        trial
        for trial in evidence.trials
        if _disturbed_by(trial) is not None
        and evidence.repeat_of(trial) is None
        and not any(t.ordinal < trial.ordinal and t.measures_as(trial) for t in evidence.trials)
    ]
    if not current.usable:
        disturbed = [trial for trial in disturbed if trial.role == "current"]
    left_s = (evidence.spec.budget_s - spent_s(evidence)) / 2
    planned = []
    for trial in sorted(disturbed, key=lambda t: (t.role != "variant", t.ordinal)):
        took_s = trial_s(trial)
        if took_s > left_s:
            continue
        left_s -= took_s
        planned.append(
            PlannedTrial(
                role=trial.role,
                title=f"{trial.title}, measured again",
                reason=f"Trial {trial.ordinal} is invalid: {_disturbed_by(trial)}.",
                settings=trial.settings,
                config=trial.spec.config,
                estimate_s=took_s,
            )
        )
    return tuple(planned)


def _disturbed_by(trial: TrialEvidence) -> str | None:
    """What made a measurement invalid, where every such line may have passed by now."""
    if trial.result is None or trial.usable or trial.role == "verification":
        return None
    lines = [c for c in trial.result.validity.checks if c.verdict == "invalid"]
    if any(line.id not in PASSING for line in lines):
        return None
    return lines[0].message[:1].lower() + lines[0].message[1:]


# --- verification ------------------------------------------------------------------------------


def _verification(
    evidence: StudyEvidence, current: TrialEvidence, best: TrialEvidence
) -> PlannedTrial | None:
    """The A/B trial, sized by measured request times; None where budget or memory do not hold it.

    Both sides are loaded at once, so that they can take turns.
    """
    device = evidence.device
    if device is not None and device.memory_bytes is not None:
        weights = sum(baseline_of(t).model.stored_weight_bytes or 0 for t in (current, best))
        if weights > MEMORY_HEADROOM_FRAC * device.memory_bytes * max(1, device.count):
            return None
    measured = [_measured_request_s(trial) for trial in (current, best)]
    starts = [_measured_start_s(trial) for trial in (current, best)]
    left_s = evidence.spec.budget_s - spent_s(evidence)
    pair_s = sum(measured)
    changed = set(current.settings.differences(best.settings))
    quality = 1024 if changed & {"dtype", "attention"} else 0
    requests = max(2, min(MAX_RUN_REQUESTS, round(RUN_S / max(measured[0], 1e-6))))
    for per_run in (requests, max(2, requests // 2), 2):
        estimate_s = sum(starts) + (PAIRS * per_run + 1) * pair_s
        if estimate_s <= left_s:
            return PlannedTrial(
                role="verification",
                title=f"A/B: {settings_text(best.settings)} against the current settings",
                reason=f"Trial {best.ordinal} looks better, measured once. Interleaved runs with "
                "fresh prompts tell a real gain from drift and luck.",
                settings=evidence.spec.current,
                config=VerifyConfig(
                    candidate=best.settings,
                    pairs=PAIRS,
                    requests_per_run=per_run,
                    perplexity_tokens=quality,
                ),
                estimate_s=estimate_s,
            )
    return None


def spent_s(evidence: StudyEvidence) -> float:
    """Time that the finished trials took on the agent."""
    return sum(trial_s(trial) for trial in evidence.trials)


def trial_s(trial: TrialEvidence) -> float:
    """Time that a finished trial took on the agent, 0 for one that never ran."""
    if trial.started_at is None or trial.finished_at is None:
        return 0.0
    return (trial.finished_at - trial.started_at).total_seconds()


def _measured_request_s(trial: TrialEvidence) -> float:
    """Time that one more request adds to a run: its own, or the gap to the next arrival."""
    rate = trial.spec.workload.request_rate_per_s
    if rate is not None:
        return 1 / rate
    metrics: RequestMetrics | None = trial_metrics(trial)
    return float(metrics.e2e_s.mean()) if metrics is not None and metrics.succeeded else 1.0


def _measured_start_s(trial: TrialEvidence) -> float:
    baseline = trial.measured(BaselineResult)
    cold = baseline.cold if baseline is not None else None
    if cold is None:
        return 0.0
    return cold.import_s + cold.load_s + cold.first_request_ttft_s + cold.warmup_s
