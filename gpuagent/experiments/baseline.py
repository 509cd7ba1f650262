"""One configuration on its own: a grid of prefill and decode, the workload's requests, quality.

The grid separates what the requests mix: prefill is bound by arithmetic, decode by reading memory.
Its cells are interleaved over the repeats, so that a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from gpuagent.engines.base import Engine
from gpuagent.errors import AgentError
from gpuagent.experiments.base import (
    LoadedEngine,
    RunContext,
    bytes_quantity,
    joules,
    joules_per_token,
    median,
    timed,
)
from gpuagent.experiments.idle import idle_power_w, net_joules_per_token
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.quality import WINDOW_TOKENS, measure_perplexity
from gpuagent.experiments.requests import PlannedRequest, PromptSource, plan_requests
from gpuagent.experiments.serving import serve
from gpuagent.experiments.warmup import WarmUp, warm_up
from gpuagent.text import Passage
from gpuagent.wire import FailureReason, Quantity, Samples
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.trial import BaselineConfig, BaselineResult, GridCell, Perplexity

# The grid may use this much of the time that is left; the requests are what targets are about.
_GRID_SHARE = 0.4
_FINISH_S = 5.0


@dataclass(slots=True)
class _Cell:
    """Raw numbers of one grid cell while they are taken."""

    batch: int
    input_tokens: int
    prefill_s: list[float] = field(default_factory=list)
    decode_step_s: list[float] = field(default_factory=list)
    repeat_step_s: list[float] = field(default_factory=list)
    peak_bytes: int | None = None
    energy_j: float | None = None
    energy_tokens: int = 0

    def to_wire(self, context: RunContext) -> GridCell:
        return GridCell(
            batch=self.batch,
            input_tokens=self.input_tokens,
            prefill_s=Samples(values=tuple(self.prefill_s)),
            decode_step_s=Samples(values=tuple(self.decode_step_s)),
            peak_memory_bytes=bytes_quantity(self.peak_bytes),
            joules_per_token=joules_per_token(self.energy_j, self.energy_tokens, context.energy),
        )


def run(context: RunContext) -> BaselineResult:
    """Measure the spec's settings. See `BaselineResult` for what comes out."""
    spec, clock = context.spec, context.clock
    config = _config(context)
    use_cache = spec.settings.kv_cache
    passage = context.load_text(config.text_path)
    progress = Progress(
        emit=context.emit,
        clock=clock,
        phases={"warmup": 3, "measure:grid": 20, "measure:requests": 60, "quality": 8, "finish": 2},
    )
    loaded = context.open_engine(spec.settings)
    engine, report = loaded.engine, loaded.report
    stream = engine.encode(passage.text)
    source = PromptSource(stream=stream, vocab_size=report.vocab_size)
    planned = plan_requests(
        spec.workload,
        count=spec.workload.requests,
        seed=spec.seed,
        source=source,
        max_context=report.max_context,
    )

    progress.enter("warmup", "Warming up")
    engine.reset_peak_memory()
    warm = warm_up(engine, planned[0].prompt, use_cache=use_cache, clock=clock, tick=context.tick)
    context.facts.warmup_stable = warm.stable
    _expect(progress, context, config, warm, planned)

    idle = idle_power_w(context)
    context.begin_measuring()
    cells = _measure_grid(context, config, engine, source, progress)
    records, window_s, energy_per_token = _measure_requests(context, engine, planned, progress)
    peaks = [cell.peak_bytes for cell in cells] + [engine.peak_memory_bytes()]
    peak_bytes = max((peak for peak in peaks if peak is not None), default=None)

    perplexity, reason = _quality(context, config, loaded, passage, stream, progress)
    progress.enter("finish", "Measuring the memory bandwidth")
    return BaselineResult(
        model=report.model,
        cold=warm.cold_start(report),
        cells=tuple(cell.to_wire(context) for cell in cells),
        requests=records,
        arrivals="closed_loop" if spec.workload.request_rate_per_s is None else "poisson",
        window_s=window_s,
        peak_memory_bytes=bytes_quantity(peak_bytes),
        memory_kind=engine.memory_kind,
        joules_per_token=energy_per_token,
        idle_power_w=idle,
        net_joules_per_token=net_joules_per_token(
            energy_per_token, idle, window_s, sum(r.output_tokens for r in records)
        ),
        read_bandwidth_bytes_s=_bandwidth(engine, context),
        perplexity=perplexity,
        perplexity_reason=reason,
    )


def _config(context: RunContext) -> BaselineConfig:
    config = context.spec.config
    if not isinstance(config, BaselineConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not baseline")
    return config


def _expect(
    progress: Progress,
    context: RunContext,
    config: BaselineConfig,
    warm: WarmUp,
    planned: list[PlannedRequest],
) -> None:
    """Replace the guessed phase times by ones that follow from the warm-up."""
    per_token_s = warm.prefill_s / max(1, len(planned[0].prompt))
    sizes = [(b, n) for b in config.batch_sizes for n in config.input_tokens]
    once_s = sum(b * n * per_token_s + config.decode_steps * warm.step_s for b, n in sizes)
    progress.expect("measure:grid", once_s * config.repeats)
    busy_s = sum(
        len(request.prompt) * per_token_s + request.output_tokens * warm.step_s
        for request in planned
    )
    progress.expect("measure:requests", max(busy_s, planned[-1].intended_s or 0.0))
    progress.expect("quality", config.perplexity_tokens * per_token_s * 2)
    context.facts.planned_requests = len(planned)


def _measure_grid(
    context: RunContext,
    config: BaselineConfig,
    engine: Engine,
    source: PromptSource,
    progress: Progress,
) -> list[_Cell]:
    limit = context.facts.latest_load.max_context if context.facts.latest_load else None
    cells = [
        _Cell(batch, tokens)
        for batch in config.batch_sizes
        for tokens in config.input_tokens
        if limit is None or tokens + config.decode_steps <= limit
    ]
    skipped = len(config.batch_sizes) * len(config.input_tokens) - len(cells)
    if skipped:
        context.facts.notes.append(f"{skipped} grid cells are longer than the model's context")
    rng = random.Random(context.spec.seed)  # noqa: S311  order of cells, nothing secret
    progress.enter("measure:grid", "Timing prefill and decode apart")
    began = context.clock.now()
    for repeat in range(config.repeats):
        order = list(cells)
        rng.shuffle(order)
        for position, cell in enumerate(order):
            prompts = [source.take(cell.input_tokens, rng) for _ in range(cell.batch)]
            _measure_cell(context, config, engine, cell, prompts)
            progress.advance(
                repeat * len(order) + position + 1,
                config.repeats * len(order),
                f"Grid, repeat {repeat + 1} of {config.repeats}",
            )
        if repeat == 0:
            cells = _affordable(context, cells, config, context.clock.now() - began)
    _note_repeats(context, cells, config)
    return cells


def _measure_cell(
    context: RunContext,
    config: BaselineConfig,
    engine: Engine,
    cell: _Cell,
    prompts: list[tuple[int, ...]],
) -> None:
    clock, tick = context.clock, context.tick
    tick()
    engine.reset_peak_memory()
    before_j = context.energy.read_j()
    began = clock.now()
    batch = engine.prefill(prompts, use_cache=context.spec.settings.kv_cache)
    cell.prefill_s.append(clock.now() - began)
    steps: list[float] = []
    # The prefill made the first of decode_steps tokens.
    for _ in range(config.decode_steps - 1):
        tick()
        steps.append(timed(clock, lambda: engine.step(batch)))
    used_j = joules(before_j, context.energy.read_j())
    peak = engine.peak_memory_bytes()
    engine.release(batch)
    cell.decode_step_s.extend(steps)
    cell.repeat_step_s.append(median(steps))
    if peak is not None:
        cell.peak_bytes = max(cell.peak_bytes or 0, peak)
    if used_j is not None:
        cell.energy_j = (cell.energy_j or 0.0) + used_j
        cell.energy_tokens += cell.batch * config.decode_steps


def _affordable(
    context: RunContext, cells: list[_Cell], config: BaselineConfig, once_s: float
) -> list[_Cell]:
    """Drop the slowest cells when the grid would eat the time of the requests."""
    kept = sorted(cells, key=lambda cell: cell.prefill_s[0] + sum(cell.decode_step_s))
    costs = [cell.prefill_s[0] + sum(cell.decode_step_s) for cell in kept]
    scale = once_s / sum(costs) if sum(costs) > 0 else 1.0
    while len(kept) > 1 and sum(costs) * scale * (config.repeats - 1) > (
        _GRID_SHARE * context.remaining_s()
    ):
        dropped, _ = kept.pop(), costs.pop()
        context.facts.notes.append(
            f"the grid cell batch {dropped.batch}, {dropped.input_tokens} tokens was left out: "
            "it would not fit the time limit"
        )
    return [cell for cell in cells if cell in kept]


def _note_repeats(context: RunContext, cells: list[_Cell], config: BaselineConfig) -> None:
    """Per repeat: mean over cells of its decode time over the cell's median. 1 is typical."""
    typical = [median(cell.repeat_step_s) for cell in cells]
    for repeat in range(config.repeats):
        ratios = [
            cell.repeat_step_s[repeat] / middle
            for cell, middle in zip(cells, typical, strict=True)
            if middle > 0
        ]
        if ratios:
            context.facts.repeat_ratios.append(sum(ratios) / len(ratios))


def _measure_requests(
    context: RunContext, engine: Engine, planned: list[PlannedRequest], progress: Progress
) -> tuple[tuple[RequestRecord, ...], float, Quantity]:
    progress.enter("measure:requests", "Sending the workload's requests")
    engine.reset_peak_memory()
    before_j = context.energy.read_j()
    records, window_s = serve(
        engine,
        planned,
        use_cache=context.spec.settings.kv_cache,
        clock=context.clock,
        tick=context.tick,
        until=context.deadline - _FINISH_S,
        on_done=lambda done: progress.advance(
            done, len(planned), f"Request {done} of {len(planned)}"
        ),
    )
    used_j = joules(before_j, context.energy.read_j())
    tokens = sum(record.output_tokens for record in records)
    return records, window_s, joules_per_token(used_j, tokens, context.energy)


def _quality(
    context: RunContext,
    config: BaselineConfig,
    loaded: LoadedEngine,
    passage: Passage,
    stream: list[int] | None,
    progress: Progress,
) -> tuple[Perplexity | None, str | None]:
    progress.enter("quality", "Measuring perplexity")
    if context.remaining_s() < _FINISH_S:
        return None, "no time was left for it within the trial's time limit"
    return measure_perplexity(
        loaded.engine,
        loaded.report,
        passage,
        stream,
        tokens=config.perplexity_tokens,
        tick=context.tick,
        on_window=lambda done, total: progress.advance(
            done, total, f"Perplexity, window {done} of {total} ({WINDOW_TOKENS} tokens)"
        ),
    )


def _bandwidth(engine: Engine, context: RunContext) -> Quantity:
    try:
        return Quantity(value=engine.read_bandwidth_bytes_s(context.tick))
    except AgentError as error:
        if error.reason is not FailureReason.OUT_OF_MEMORY:
            raise
        return Quantity(reason="too little memory was free for the read buffer")
