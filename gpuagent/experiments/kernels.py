"""Where the time of a step goes: GEMMs against their ceilings, fusion, launches, allocations.

The ceilings are measured in the same run, so that both sides of each efficiency saw one clock.
"""

from __future__ import annotations

from typing import Any

from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext
from gpuagent.experiments.inside import Inside, head_shape, open_inside
from gpuagent.experiments.progress import Progress
from gpuagent.wire import FailureReason
from gpuagent.wire.ceilings import Ceilings
from gpuagent.wire.inside import FusedOperator, GemmShape, KernelsConfig, KernelsResult

# Compiling a step of 30 layers takes a minute on two slow cores; without twice that it is left out.
COMPILE_NEEDS_S = 150.0
CEILING_REPEATS = 5


def run(context: RunContext) -> KernelsResult:
    """Measure the spec's model: GEMMs first, then operators, then whole steps."""
    from gpuagent.lab import ceilings as ceilings_lab
    from gpuagent.lab import kernels as lab

    config = _config(context)
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={"warmup": 4, "measure:gemm": 20, "measure:steps": 60 if config.compile else 5},
    )
    inside = open_inside(context)
    context.begin_measuring()
    progress.enter("warmup", "Measuring the ceilings")
    found = ceilings_lab.measure(
        inside.device,
        repeats=CEILING_REPEATS,
        size_frac=1.0 if config.repeats >= 7 else 0.25,
        tick=context.tick,
        only=frozenset({"read", "gemm", "launch"}),
    )
    gemms = _gemms(context, config, inside, found, progress)
    no_compile = None if config.compile else "the trial asked for none"
    if no_compile is None and context.remaining_s() < COMPILE_NEEDS_S:
        no_compile = f"compiling may take {COMPILE_NEEDS_S:.0f} s, which the time limit lacks"
    progress.enter("measure:steps", "Operators and whole steps, eager and compiled")
    fused = _fused(context, config, inside, found, no_compile)
    costs = lab.step_costs(inside.module, inside.engine.cache_argument)
    steps = lab.step_forms(
        inside.module,
        inside.engine.cache_argument,
        # Steps are short against compiling them, and a decision rests on them.
        repeats=3 * config.repeats,
        tick=context.tick,
        no_compile=no_compile,
    )
    return KernelsResult(
        model=inside.loaded.report.model,
        ceilings=found,
        gemms=gemms,
        fused=fused,
        steps=steps,
        costs=costs,
        step_bytes=inside.loaded.report.model.stored_weight_bytes,
    )


def _config(context: RunContext) -> KernelsConfig:
    config = context.spec.config
    if not isinstance(config, KernelsConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not kernels")
    from gpuagent.lab.kernels import DTYPES

    unknown = [dtype for dtype in config.dtypes if dtype not in DTYPES]
    if unknown:
        message = f"dtypes: {unknown[0]} is unknown; known: {', '.join(DTYPES)}"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    return config


def _gemms(
    context: RunContext,
    config: KernelsConfig,
    inside: Inside,
    ceilings: Ceilings,
    progress: Progress,
) -> tuple[GemmShape, ...]:
    from gpuagent.lab import kernels as lab

    progress.enter("measure:gemm", "The model's own matrix products")
    groups = lab.linear_groups(inside.module)
    rows = sorted({*config.batch_sizes, config.input_tokens})
    jobs = [(d, r, g) for d in config.dtypes for r in rows for g in groups][:120]
    found: list[GemmShape] = []
    for index, (dtype, count, group) in enumerate(jobs):
        context.tick()
        found.append(
            lab.measure_gemm(
                group,
                rows=count,
                dtype=dtype,
                ceilings=ceilings,
                repeats=config.repeats,
                tick=context.tick,
            )
        )
        progress.advance(index + 1, len(jobs), f"Product {index + 1} of {len(jobs)}")
    return tuple(found)


def _fused(
    context: RunContext,
    config: KernelsConfig,
    inside: Inside,
    ceilings: Ceilings,
    no_compile: str | None,
) -> tuple[FusedOperator, ...]:
    from gpuagent.lab import kernels as lab

    heads = head_shape(inside.module)
    chains: list[Any] = lab.operator_chains(
        inside.module, config.input_tokens, heads.heads, heads.head_size
    )
    return tuple(
        lab.measure_chain(
            chain,
            rows=config.input_tokens,
            ceilings=ceilings,
            repeats=config.repeats,
            tick=context.tick,
            no_compile=no_compile,
        )
        for chain in chains
    )
