"""Records a few steps of the settings: where the time goes inside a step, and what looking costs.

The same sequence (prefill, then decode steps) runs without a profiler first and under one
afterwards, so that the overhead is measured and not guessed. Files are scrubbed here, before
anything leaves the machine.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from gpuagent.engines.base import Engine
from gpuagent.errors import AgentError
from gpuagent.experiments.base import LoadedEngine, RunContext, median
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.requests import PromptSource
from gpuagent.experiments.warmup import WarmUp, warm_up
from gpuagent.profilers.memory import NO_SNAPSHOT, take_snapshot
from gpuagent.profilers.nsys import find_nsys, record
from gpuagent.profilers.recorded import recorded_trace
from gpuagent.wire import FailureReason, Quantity, Samples
from gpuagent.wire.trial import ProfileConfig, ProfileResult, RecordedTrace

TORCH_FILE = "trace-torch.json.gz"
NSYS_FILE = "trace-nsys.sqlite"
_RAW_TORCH = "raw-torch.json.gz"
# Loading, warming up and exporting under nsys takes about this many times the plain load.
_NSYS_LOADS = 4
_NSYS_FIXED_S = 30.0
_FINISH_S = 5.0

Mark = Callable[[str], AbstractContextManager[Any]]


def run(context: RunContext) -> ProfileResult:
    """Profile the spec's settings. See `ProfileResult` for what comes out."""
    config = _config(context)
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={"warmup": 3, "measure:plain": 5, "measure:profiled": 10, "finish": 20},
    )
    loaded = context.open_engine(context.spec.settings)
    prompts = _prompts(context, config, loaded)
    progress.enter("warmup", "Warming up")
    warm = warm_up(
        loaded.engine,
        prompts[0],
        use_cache=context.spec.settings.kv_cache,
        clock=context.clock,
        tick=context.tick,
    )
    context.facts.warmup_stable = warm.stable
    context.begin_measuring()
    progress.enter("measure:plain", "Timing the steps without a profiler")
    plain = _plain(context, config, loaded.engine, prompts)
    if config.recorder == "marks":
        _marked(context, config, loaded.engine, prompts)
        return _result(loaded, warm, plain, None, (), "this run is the one under nsys")
    progress.enter("measure:profiled", "Recording with torch.profiler")
    return _recorded(context, config, loaded, warm, plain, prompts, progress)


def _config(context: RunContext) -> ProfileConfig:
    config = context.spec.config
    if not isinstance(config, ProfileConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not profile")
    return config


def _prompts(
    context: RunContext, config: ProfileConfig, loaded: LoadedEngine
) -> list[tuple[int, ...]]:
    """A batch of prompts of the asked length, shorter where the model's context is."""
    tokens = config.input_tokens
    limit = loaded.report.max_context
    if limit is not None:
        tokens = max(1, min(tokens, limit - config.warmup_steps - config.decode_steps - 1))
    if tokens < config.input_tokens:
        context.facts.notes.append(f"the prompt was cut to {tokens} tokens, the model's context")
    rng = random.Random(context.spec.seed)  # noqa: S311  reproducible draws, nothing secret
    stream = loaded.engine.encode(context.load_text(None).text)
    source = PromptSource(stream=stream, vocab_size=loaded.report.vocab_size)
    return [source.take(tokens, rng) for _ in range(config.batch)]


# --- the steps ---------------------------------------------------------------------------------


class _Times:
    """Seconds of each step of a sequence, by phase."""

    def __init__(self) -> None:
        self.prefill_s: list[float] = []
        self.decode_s: list[float] = []


def _sequence(
    context: RunContext,
    config: ProfileConfig,
    engine: Engine,
    prompts: Sequence[tuple[int, ...]],
    times: _Times,
    *,
    mark: Mark = lambda _: nullcontext(),
    after_step: Callable[[], None] = lambda: None,
) -> None:
    clock, use_cache = context.clock, context.spec.settings.kv_cache
    for _ in range(config.prefill_steps):
        context.tick()
        began = clock.now()
        with mark("prefill"):
            batch = engine.prefill(prompts, use_cache=use_cache)
        times.prefill_s.append(clock.now() - began)
        after_step()
        for _ in range(config.decode_steps):
            context.tick()
            began = clock.now()
            with mark("decode"):
                engine.step(batch)
            times.decode_s.append(clock.now() - began)
            after_step()
        engine.release(batch)


def _plain(
    context: RunContext,
    config: ProfileConfig,
    engine: Engine,
    prompts: Sequence[tuple[int, ...]],
) -> _Times:
    total = _Times()
    typical: list[float] = []
    for _ in range(config.repeats):
        times = _Times()
        _sequence(context, config, engine, prompts, times)
        typical.append(median(times.decode_s))
        total.prefill_s += times.prefill_s
        total.decode_s += times.decode_s
    middle = median(typical)
    if middle > 0:
        context.facts.repeat_ratios.extend(value / middle for value in typical)
    return total


def _discarded(
    context: RunContext,
    config: ProfileConfig,
    engine: Engine,
    prompts: Sequence[tuple[int, ...]],
    after_step: Callable[[], None],
) -> None:
    """The steps that a profiler throws away: its own start is slow."""
    batch = engine.prefill(prompts, use_cache=context.spec.settings.kv_cache)
    for _ in range(config.warmup_steps):
        context.tick()
        engine.step(batch)
        after_step()
    engine.release(batch)


def _marked(
    context: RunContext, config: ProfileConfig, engine: Engine, prompts: Sequence[tuple[int, ...]]
) -> None:
    from gpuagent.profilers.recorders import MarkRecorder

    with MarkRecorder(warmup=config.warmup_steps) as marks, engine.layer_ranges(marks.mark):
        _discarded(context, config, engine, prompts, marks.step)
        _sequence(
            context, config, engine, prompts, _Times(), mark=marks.mark, after_step=marks.step
        )


# --- recording ---------------------------------------------------------------------------------


def _recorded(
    context: RunContext,
    config: ProfileConfig,
    loaded: LoadedEngine,
    warm: WarmUp,
    plain: _Times,
    prompts: Sequence[tuple[int, ...]],
    progress: Progress,
) -> ProfileResult:
    with ExitStack() as stack:
        folder = context.work_dir
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="profile-")))
        raw = folder / _RAW_TORCH
        profiled = _under_torch(context, config, loaded.engine, prompts, raw)
        progress.enter("finish", "Reading the recording")
        traces: list[RecordedTrace] = []
        trace, reason = recorded_trace(raw, folder / TORCH_FILE, "torch")
        if trace is not None:
            traces.append(trace)
        else:
            context.facts.notes.append(f"torch.profiler: {reason}")
        memory = take_snapshot()
        nsys_trace, nsys_reason = _under_nsys(context, config, loaded, folder, progress)
        if nsys_trace is not None:
            traces.append(nsys_trace)
        if context.work_dir is None:
            # Nobody will fetch the files of a run without a folder.
            traces = [
                t.model_copy(update={"artifact": None, "artifact_reason": "the run keeps no files"})
                for t in traces
            ]
    result = _result(loaded, warm, plain, profiled, tuple(traces), nsys_reason)
    return result.model_copy(
        update={"memory": memory, "memory_reason": None if memory else NO_SNAPSHOT}
    )


def _under_torch(
    context: RunContext,
    config: ProfileConfig,
    engine: Engine,
    prompts: Sequence[tuple[int, ...]],
    raw: Path,
) -> _Times:
    from gpuagent.profilers.recorders import TorchRecorder

    active = config.prefill_steps * (1 + config.decode_steps)
    times = _Times()
    with (
        TorchRecorder(raw, warmup=config.warmup_steps, active=active) as recorder,
        engine.layer_ranges(recorder.mark),
    ):
        _discarded(context, config, engine, prompts, recorder.step)
        _sequence(
            context, config, engine, prompts, times, mark=recorder.mark, after_step=recorder.step
        )
    return times


def _under_nsys(
    context: RunContext,
    config: ProfileConfig,
    loaded: LoadedEngine,
    folder: Path,
    progress: Progress,
) -> tuple[RecordedTrace | None, str | None]:
    """The same steps in a process of its own under nsys; (trace, reason for none)."""
    nsys = find_nsys()
    if nsys is None:
        return None, "the nsys binary is not on the agent's path"
    if not loaded.report.model.device.startswith("cuda"):
        return None, "there is no CUDA device for nsys to trace"
    allowed_s = context.remaining_s() - _FINISH_S
    if allowed_s < _NSYS_FIXED_S + _NSYS_LOADS * loaded.report.load_s:
        return None, "no time was left for it within the trial's time limit"
    # One copy of the weights at a time.
    loaded.engine.close()
    progress.enter("finish", "Recording once more under nsys")
    inner_dir = folder / "nsys"
    inner_dir.mkdir(exist_ok=True)
    marks = config.model_copy(update={"recorder": "marks", "repeats": 3})
    spec = context.spec.model_copy(update={"config": marks, "timeout_s": allowed_s})
    (inner_dir / "spec.json").write_text(spec.model_dump_json())
    inner = [sys.executable, "-m", "gpuagent.child", str(inner_dir)]
    for root in context.model_roots:
        inner += ["--model-root", str(root)]
    try:
        raw = record(nsys, folder / "raw-nsys", inner, timeout_s=allowed_s, tick=context.tick)
    except AgentError as error:
        return None, str(error)[:1000]
    finally:
        for left in folder.glob("raw-nsys.*"):
            if left.suffix != ".sqlite":
                left.unlink()
    return recorded_trace(raw, folder / NSYS_FILE, "nsys")


def _result(
    loaded: LoadedEngine,
    warm: WarmUp,
    plain: _Times,
    profiled: _Times | None,
    traces: tuple[RecordedTrace, ...],
    nsys_reason: str | None,
) -> ProfileResult:
    steps = profiled.decode_s if profiled is not None else []
    base = median(plain.decode_s)
    overhead = Quantity(reason="nothing was recorded with torch.profiler")
    if steps and base > 0:
        overhead = Quantity(value=median(steps) / base)
    return ProfileResult(
        model=loaded.report.model,
        cold=warm.cold_start(loaded.report),
        prefill_s=Samples(values=tuple(plain.prefill_s)),
        decode_step_s=Samples(values=tuple(plain.decode_s)),
        profiled_step_s=Samples(values=tuple(steps)),
        overhead_ratio=overhead,
        traces=traces,
        nsys_reason=nsys_reason,
        memory_reason=NO_SNAPSHOT,
    )
