"""Studies whose engine runs outside of the agent's process: a real server, or the simulated one.

One trial at a time: the current settings, then what `searching` proposes from the counters, then
an interleaved A/B of the best, and at the end the misuse of a server on purpose. An endpoint has no
settings here, so it is measured and no more; it is misused only where that was asked for.
"""

from __future__ import annotations

from advisor.evidence import DeviceFacts, StudyEvidence, TrialEvidence
from advisor.knobs import change_text, settings_text
from advisor.studies.planned import PlannedTrial
from advisor.studies.searching import is_default, next_trial
from advisor.studies.timing import about
from advisor.targets import trial_metrics
from gpuagent.wire import EngineSettings, StudySpec
from gpuagent.wire.robustness import RobustnessConfig
from gpuagent.wire.serving import ServeConfig
from gpuagent.wire.trial import BaselineResult, ServeResult, VerifyConfig

# A simulated trial takes this long on the agent, whatever time it simulates; its highest rate more.
SIMULATED_TRIAL_S = 3.0
SIMULATED_BOUNDARY_S = 3.0
SIMULATED_RUN_REQUESTS = 200
# The paired test needs six to prove anything.
PAIRS = 6
RUN_S = 10.0
# Before the first start was seen: a small model on a CPU, a large one on GPUs, imports and all.
START_S = {"cpu": 60.0, "gpu": 120.0, "endpoint": 2.0}
WARM_S = 10.0
STREAMS = {"chat": 8, "api": 16, "edge": 1, "batch": 64}
CPU_STREAMS = {"chat": 4, "api": 8, "edge": 1, "batch": 16}
BOUNDARY_POINTS = 6
POINT_S = {"cpu": 15.0, "gpu": 30.0}
# Simulated time is nearly free: enough for six independent blocks, which a proof needs.
SIMULATED_POINT_S = 65.0
SIMULATED_BOUNDARY_POINTS = 10
# Tokens a second before anything was measured, for the first estimate of time alone.
GUESSED_TOK_S = {"cpu": 60.0, "gpu": 1500.0}
PERPLEXITY_TOKENS = 2048
# A misuse without its overload: most of it waits until the server is idle and quick again.
MISUSE_S = {"cpu": 60.0, "gpu": 30.0}
BURST_S = 30.0
BURST_TOKENS = 32
BURST = 64
MOST_BURST = 2048
# A request of the overload may wait for all others.
PATIENCE_S = 120.0
QUALITY_KNOBS = frozenset({"dtype", "kv_dtype", "attention"})


def first_trials(
    spec: StudySpec, device: DeviceFacts
) -> tuple[tuple[PlannedTrial, ...], tuple[str, ...]]:
    """(trials, notes): the current settings; what follows is decided by what they show."""
    notes: tuple[str, ...] = ()
    if spec.engine == "openai":
        notes = ("An endpoint is measured as it is: its settings are its owner's.",)
    elif spec.workload.request_rate_per_s is None:
        streams = streams_of(spec, device)
        notes = (
            f"No request rate was given: {streams} request{'s are' if streams > 1 else ' is'} kept "
            "in flight, and no claim at a rate follows.",
        )
    if _misuses(spec, device):
        took_s = _misuse_estimate_s(spec, device, None, BURST)
        notes += (
            f"At the end the server is misused on purpose ({about(took_s)}): clients that leave, "
            "prompts that are too long, more requests than it holds.",
        )
    current = PlannedTrial(
        role="current",
        title="Current settings",
        reason="Every comparison starts from the settings in use today.",
        settings=spec.current,
        config=_config(spec, device),
        estimate_s=_trial_estimate_s(spec, device, None),
    )
    return (current,), notes


def searched(evidence: StudyEvidence, spent_s: float) -> PlannedTrial | None:
    """The next configuration, as long as the budget holds it and the verification."""
    spec, device = evidence.spec, evidence.device
    if spec.engine in ("openai", "transformers_serve") or device is None:
        return None
    found = next_trial(evidence)
    one_s = _trial_estimate_s(spec, device, evidence)
    left_s = spec.budget_s - spent_s
    later_s = _verify_estimate_s(evidence)
    if _misuses(spec, device):
        later_s += _misuse_estimate_s(spec, device, evidence, BURST)
    if found is None or left_s < one_s + later_s:
        return None
    return PlannedTrial(
        role="variant",
        title=_title(evidence, found.settings),
        reason=found.reason,
        settings=found.settings,
        config=_config(spec, device),
        estimate_s=one_s,
    )


def verification(
    evidence: StudyEvidence, best: TrialEvidence, spent_s: float
) -> PlannedTrial | None:
    """The A/B trial; None where the budget does not hold it."""
    spec, device = evidence.spec, evidence.device
    if device is None:
        return None
    changed = set(spec.current.differences(best.settings))
    simulated = spec.engine == "simulated"
    estimate_s = _verify_estimate_s(evidence)
    if not simulated and estimate_s > spec.budget_s - spent_s:
        return None
    return PlannedTrial(
        role="verification",
        title="A/B of the best settings against the current ones",
        reason=f"Trial {best.ordinal} looks better, measured once. Interleaved runs with fresh "
        "requests tell a real gain from luck.",
        settings=spec.current,
        config=VerifyConfig(
            candidate=best.settings,
            pairs=PAIRS,
            requests_per_run=_run_requests(evidence),
            perplexity_tokens=PERPLEXITY_TOKENS if changed & QUALITY_KNOBS and not simulated else 0,
            streams=streams_of(spec, device),
        ),
        estimate_s=estimate_s,
    )


def misuse(
    evidence: StudyEvidence, settings: EngineSettings, spent_s: float
) -> PlannedTrial | None:
    """The robustness test of `settings`, once; None where the budget does not hold it.

    Settings that gave no valid measurement are not tested: nobody should serve with them.
    """
    spec, device = evidence.spec, evidence.device
    if device is None or not _misuses(spec, device):
        return None
    measured = [
        t
        for t in evidence.trials
        if t.usable and t.settings == settings and t.measured(ServeResult) is not None
    ]
    done = any(isinstance(t.spec.config, RobustnessConfig) for t in evidence.trials)
    if done or not measured:
        return None
    burst = _burst(measured[-1])
    estimate_s = _misuse_estimate_s(spec, device, evidence, burst)
    if estimate_s > spec.budget_s - spent_s:
        return None
    same = settings == spec.current
    return PlannedTrial(
        role="diagnosis",
        title=f"Robustness of the {'current' if same else 'recommended'} settings",
        reason="Shows how the server takes what clients do: leave, ask for too much, come all at "
        "once. It runs last, since it takes the server beyond its limits.",
        settings=settings,
        config=RobustnessConfig(burst=burst, patience_s=PATIENCE_S),
        estimate_s=estimate_s,
    )


def _misuses(spec: StudySpec, device: DeviceFacts) -> bool:
    """Whether it is wanted, and the agent is new enough for it."""
    able = device.experiments is None or "robustness" in device.experiments
    return spec.tests_robustness and able


def _burst(trial: TrialEvidence) -> int:
    """Twice what runs at once, and no more than is served in half a minute."""
    result = trial.measured(ServeResult)
    running = trial.settings.max_running
    if running is None and result is not None:
        running = result.served.facts.max_running
    wanted = 2 * running if running is not None else BURST
    tok_s = _tok_s(trial)
    most = MOST_BURST if tok_s is None else round(BURST_S * tok_s / BURST_TOKENS)
    return max(8, min(wanted, most, MOST_BURST))


def _tok_s(trial: TrialEvidence) -> float | None:
    """Output tokens a second over the whole window."""
    result = trial.measured(ServeResult)
    if result is None or result.window_s <= 0:
        return None
    return sum(r.output_tokens for r in result.requests) / result.window_s or None


def streams_of(spec: StudySpec, device: DeviceFacts) -> int:
    """Requests in flight in a closed loop: the scenario's usual number, at most all of them."""
    usual = CPU_STREAMS if device.kind == "cpu" else STREAMS
    return max(1, min(usual[spec.workload.preset], spec.workload.requests))


def _config(spec: StudySpec, device: DeviceFacts) -> ServeConfig:
    simulated = spec.engine == "simulated"
    latency = tuple(t for t in spec.targets if t.percentile is not None)
    points = SIMULATED_BOUNDARY_POINTS if simulated else BOUNDARY_POINTS
    return ServeConfig(
        streams=streams_of(spec, device),
        boundary_points=points if spec.boundary else 0,
        point_s=SIMULATED_POINT_S if simulated else POINT_S[device.kind],
        targets=latency if spec.boundary else (),
    )


def _title(evidence: StudyEvidence, settings: EngineSettings) -> str:
    """What differs from the earlier trial that is most alike."""
    if is_default(evidence.spec, evidence.device, settings):
        return "The engine's defaults"
    earlier = [t for t in evidence.trials if t.role in ("current", "variant")]
    nearest = min(earlier, key=lambda t: len(t.settings.differences(settings)), default=None)
    if nearest is None:
        return settings_text(settings)
    text = f"Trial {nearest.ordinal} with {change_text(nearest.settings, settings)}"
    return text if len(text) <= 160 else f"{text[:157]}…"


# --- time --------------------------------------------------------------------------------------


def _trial_estimate_s(
    spec: StudySpec, device: DeviceFacts, evidence: StudyEvidence | None
) -> float:
    if spec.engine == "simulated":
        return SIMULATED_TRIAL_S + (SIMULATED_BOUNDARY_S if spec.boundary else 0.0)
    start_s = _start_s(spec, device, evidence)
    boundary_s = BOUNDARY_POINTS * (POINT_S[device.kind] + 2) if spec.boundary else 0.0
    return start_s + WARM_S + _requests_s(spec, device, evidence) + boundary_s


def _misuse_estimate_s(
    spec: StudySpec, device: DeviceFacts, evidence: StudyEvidence | None, burst: int
) -> float:
    current = evidence.current if evidence is not None else None
    tok_s = (_tok_s(current) if current is not None else None) or GUESSED_TOK_S[device.kind]
    burst_s = burst * BURST_TOKENS / tok_s
    return _start_s(spec, device, evidence) + MISUSE_S[device.kind] + burst_s


def _start_s(spec: StudySpec, device: DeviceFacts, evidence: StudyEvidence | None) -> float:
    """The longest start that was seen, or a guess."""
    if spec.engine == "openai":
        return START_S["endpoint"]
    seen = [
        r.served.ready_s.value
        for t in (evidence.trials if evidence else ())
        if (r := t.measured(ServeResult)) is not None and r.served.ready_s.value is not None
    ]
    return max(seen, default=START_S[device.kind])


def _requests_s(spec: StudySpec, device: DeviceFacts, evidence: StudyEvidence | None) -> float:
    """The window of the current settings, or what its arrivals or a guessed speed make of it."""
    current = evidence.current if evidence is not None else None
    result = current.measured(BaselineResult) if current is not None else None
    if result is not None:
        return result.window_s
    workload = spec.workload
    if workload.request_rate_per_s is not None:
        return workload.requests / workload.request_rate_per_s
    tokens = workload.requests * (workload.output_tokens.mean + workload.input_tokens.mean / 8)
    return tokens / GUESSED_TOK_S[device.kind]


def _run_requests(evidence: StudyEvidence) -> int:
    """Requests of one run: about RUN_S of them, and no fewer than keep every stream busy twice."""
    spec, device = evidence.spec, evidence.device
    if spec.engine == "simulated" or device is None:
        return min(spec.workload.requests, SIMULATED_RUN_REQUESTS)
    rate = spec.workload.request_rate_per_s
    current = evidence.current
    metrics = trial_metrics(current) if current is not None else None
    if rate is None and metrics is not None and metrics.succeeded:
        window_s = _requests_s(spec, device, evidence)
        rate = metrics.succeeded / window_s if window_s > 0 else None
    wanted = round(RUN_S * rate) if rate else 2 * streams_of(spec, device)
    least = 2 * streams_of(spec, device) if spec.workload.request_rate_per_s is None else 4
    return max(1, min(spec.workload.requests, max(least, wanted)))


def _verify_estimate_s(evidence: StudyEvidence) -> float:
    spec, device = evidence.spec, evidence.device
    if spec.engine == "simulated" or device is None:
        return 2 * SIMULATED_TRIAL_S
    each_s = _requests_s(spec, device, evidence) / max(1, spec.workload.requests)
    runs_s = 2 * PAIRS * (_run_requests(evidence) * each_s + 1)
    # On a GPU the two may not fit beside each other, and are started in turn.
    starts = 2 if device.kind == "cpu" or spec.engine == "openai" else PAIRS + 1
    return starts * (_start_s(spec, device, evidence) + WARM_S) + runs_s
