"""Interleaved A/B: the current settings (a) against the candidate (b), both loaded at once.

The order is ABBA ABBA ..., so that a drift of the machine falls on both sides alike. Both sides of
a pair get the same fresh prompts, lengths and arrival times.
"""

from __future__ import annotations

from gpuagent.errors import AgentError
from gpuagent.experiments import verify_served
from gpuagent.experiments.base import LoadedEngine, RunContext, median
from gpuagent.experiments.pairing import MIN_PAIRS, note_cut, note_repeats, seed_of, sides_of
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.quality import measure_perplexity
from gpuagent.experiments.requests import PlannedRequest, PromptSource, plan_requests
from gpuagent.experiments.serving import serve
from gpuagent.experiments.warmup import warm_up
from gpuagent.text import Passage
from gpuagent.wire import EngineSettings, FailureReason
from gpuagent.wire.settings import SERVERS
from gpuagent.wire.trial import AbRun, Perplexity, VerifyConfig, VerifyResult

_FINISH_S = 5.0


def run(context: RunContext) -> VerifyResult:
    """Measure both sides in pairs. See `VerifyResult` for what comes out."""
    config = _config(context)
    if context.spec.engine in SERVERS:
        return verify_served.run(context, config)
    passage = context.load_text(config.text_path)
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={"warmup": 6, "measure": 60, "quality": 10, "finish": 1},
    )
    sides: dict[str, tuple[LoadedEngine, EngineSettings]] = {
        "a": (context.open_engine(context.spec.settings), context.spec.settings),
        "b": (context.open_engine(config.candidate), config.candidate),
    }
    first = sides["a"][0]
    stream = first.engine.encode(passage.text)
    source = PromptSource(stream=stream, vocab_size=first.report.vocab_size)
    _warm_up(context, config, sides, source, progress)
    context.begin_measuring()
    runs = _measure_pairs(context, config, sides, source, progress)
    perplexities, reason = _quality(context, config, sides, passage, stream, progress)
    return VerifyResult(
        model_a=first.report.model,
        model_b=sides["b"][0].report.model,
        candidate=config.candidate,
        runs=runs,
        perplexity_a=perplexities[0],
        perplexity_b=perplexities[1],
        perplexity_reason=reason,
    )


def _config(context: RunContext) -> VerifyConfig:
    config = context.spec.config
    if not isinstance(config, VerifyConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not verify")
    return config


def _warm_up(
    context: RunContext,
    config: VerifyConfig,
    sides: dict[str, tuple[LoadedEngine, EngineSettings]],
    source: PromptSource,
    progress: Progress,
) -> None:
    progress.enter("warmup", "Warming up both sides")
    stable: list[bool] = []
    busy_s = 0.0
    for loaded, settings in sides.values():
        planned = _plan(context, config, source, loaded.report.max_context, pair=0)
        warm = warm_up(
            loaded.engine,
            planned[0].prompt,
            use_cache=settings.kv_cache,
            clock=context.clock,
            tick=context.tick,
        )
        stable.append(warm.stable)
        outputs = sum(request.output_tokens for request in planned)
        busy_s += len(planned) * warm.prefill_s + outputs * warm.step_s
    context.facts.warmup_stable = all(stable)
    progress.expect("measure", busy_s * config.pairs)


def _plan(
    context: RunContext,
    config: VerifyConfig,
    source: PromptSource,
    max_context: int | None,
    *,
    pair: int,
) -> list[PlannedRequest]:
    return plan_requests(
        context.spec.workload,
        count=config.requests_per_run,
        seed=seed_of(pair, context.spec.seed),
        source=source,
        max_context=max_context,
    )


def _measure_pairs(
    context: RunContext,
    config: VerifyConfig,
    sides: dict[str, tuple[LoadedEngine, EngineSettings]],
    source: PromptSource,
    progress: Progress,
) -> tuple[AbRun, ...]:
    progress.enter("measure", "Running both sides in turn")
    runs: list[AbRun] = []
    total = config.pairs * 2
    context.facts.planned_requests = total * config.requests_per_run
    longest_s = 0.0
    for pair in range(config.pairs):
        if pair >= MIN_PAIRS and longest_s > context.remaining_s() - _FINISH_S:
            sent = len(runs) * config.requests_per_run
            note_cut(context.facts, pairs=pair, planned_pairs=config.pairs, planned_requests=sent)
            break
        pair_began = context.clock.now()
        for side in sides_of(pair):
            loaded, settings = sides[side]
            planned = _plan(context, config, source, loaded.report.max_context, pair=pair)
            records, _ = serve(
                loaded.engine,
                planned,
                use_cache=settings.kv_cache,
                clock=context.clock,
                tick=context.tick,
            )
            runs.append(
                AbRun.model_validate({"side": side, "order": len(runs), "requests": records})
            )
            progress.advance(len(runs), total, f"Run {len(runs)} of {total}")
        longest_s = max(longest_s, context.clock.now() - pair_began)
    note_repeats(context.facts, runs, _typical_s)
    return tuple(runs)


def _typical_s(run: AbRun) -> float:
    """Median gap between output tokens, or median time of a request with a single one."""
    gaps = [b - a for r in run.requests for a, b in zip(r.token_s, r.token_s[1:], strict=False)]
    return median(gaps or [r.token_s[-1] - r.sent_s for r in run.requests])


def _quality(
    context: RunContext,
    config: VerifyConfig,
    sides: dict[str, tuple[LoadedEngine, EngineSettings]],
    passage: Passage,
    stream: list[int] | None,
    progress: Progress,
) -> tuple[list[Perplexity | None], str | None]:
    progress.enter("quality", "Measuring perplexity of both sides")
    found: list[Perplexity | None] = []
    reasons: list[str] = []
    for side, (loaded, _) in sides.items():
        if context.remaining_s() < _FINISH_S:
            value, reason = None, "no time was left for it within the trial's time limit"
        else:
            value, reason = measure_perplexity(
                loaded.engine,
                loaded.report,
                passage,
                stream,
                tokens=config.perplexity_tokens,
                tick=context.tick,
            )
        found.append(value)
        if reason is not None and reason not in reasons:
            reasons.append(reason)
        progress.advance(len(found), len(sides), f"Perplexity of side {side}")
    return found, "; ".join(reasons) or None
