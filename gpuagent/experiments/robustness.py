"""A server misused on purpose, as a trial: what the stand-alone tool finds, with the server beside.

A server that dies of it is a result, not a failed trial: that is what the test is for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext, bytes_quantity
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.server_load import Server
from gpuagent.load.plan import TextPrompts
from gpuagent.load.probe import Probe
from gpuagent.load.robustness import RobustnessOptions, run_robustness
from gpuagent.wire import FailureReason, Quantity
from gpuagent.wire.robustness import (
    CHECKS,
    RobustnessCheck,
    RobustnessConfig,
    RobustnessReport,
    RobustnessResult,
)
from gpuagent.wire.serving import ServedEngine

# A server whose engine died answers 5xx for a moment before its process ends.
_DEATH_S = 2.0
_POLL_S = 0.1


def run(context: RunContext) -> RobustnessResult:
    """Start the spec's server and misuse it. See `RobustnessResult` for what comes out."""
    spec, config = context.spec, context.spec.config
    if not isinstance(config, RobustnessConfig):
        message = f"config: {config.experiment} is not robustness"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    progress = Progress(
        emit=context.emit, clock=context.clock, phases={"load": 60, "measure:misuse": 60}
    )
    server = context.open_server(spec.settings)
    engine, found = server.engine, server.report
    probe = Probe(
        engine.url,
        engine.served_name,
        api="completions",
        prompts=TextPrompts(context.load_text(None).text),
        key=engine.key,
        patience_s=config.patience_s,
        ignore_eos=engine.ignores_eos,
    )
    options = RobustnessOptions(
        burst=config.burst,
        cancelled=config.cancelled,
        watch_s=config.watch_s,
        patience_s=config.patience_s,
        context_tokens=found.max_context,
        ends_by_itself=not engine.ignores_eos,
    )
    context.begin_measuring()
    progress.enter("measure:misuse", "Misusing the server")
    watch = _Watch(server, progress)
    report = run_robustness(probe, options, on_check=watch.on_check, tick=context.tick)
    return RobustnessResult(
        model=found.model,
        served=ServedEngine(
            engine=spec.engine,
            version=found.version,
            command=found.command,
            ready_s=Quantity(value=found.ready_s)
            if found.ready_s is not None
            else Quantity(reason="an endpoint is not started by the agent"),
            facts=found.facts,
            timeline_reason="a robustness test keeps no timeline",
        ),
        # The address of a server that the agent's owner named is nobody else's business.
        report=_after_death(report, watch.died_after).model_copy(
            update={"url": spec.endpoint or spec.engine}
        ),
        memory_before_bytes=_memory(server, watch.memory_bytes),
        memory_after_bytes=Quantity(reason="the server was gone")
        if watch.died_after
        else _memory(server, engine.memory_bytes()),
        died_after=watch.died_after,
        died_why=watch.died_why,
    )


@dataclass(slots=True)
class _Watch:
    """Told of each check: whether the server lives, what it held once it was warm."""

    server: Server
    progress: Progress
    done: int = 0
    memory_bytes: int | None = None
    died_after: str | None = None
    died_why: str | None = None

    def on_check(self, check: RobustnessCheck) -> None:
        self.done += 1
        words = check.name.replace("_", " ")
        self.progress.advance(self.done, len(CHECKS), f"{words}: {check.verdict.replace('_', ' ')}")
        if check.name == "plain_request":
            self.memory_bytes = self.server.engine.memory_bytes()
        if self.died_after is None:
            gone = self._gone(_DEATH_S if check.verdict == "fail" else 0.0)
            if gone is not None:
                self.died_after, self.died_why = check.name, gone.message[:4000]

    def _gone(self, wait_s: float) -> AgentError | None:
        deadline = time.perf_counter() + wait_s
        while True:
            failure = self.server.engine.failure()
            if failure is not None or time.perf_counter() >= deadline:
                return failure
            time.sleep(_POLL_S)


def _after_death(report: RobustnessReport, died_after: str | None) -> RobustnessReport:
    """What was asked of a dead server says nothing more about it than that."""
    if died_after is None:
        return report
    at = next(i for i, check in enumerate(report.checks) if check.name == died_after)
    checks = [
        check
        if index <= at or check.name == "still_serving"
        else RobustnessCheck(
            name=check.name,
            verdict="cannot_tell",
            sentence=f"The server was gone since the check {died_after}",
        )
        for index, check in enumerate(report.checks)
    ]
    overload = report.overload if at >= CHECKS.index("overload") else None
    return report.model_copy(update={"checks": tuple(checks), "overload": overload})


def _memory(server: Server, value: int | None) -> Quantity:
    if server.engine.memory_kind == "unknown":
        return Quantity(reason="an endpoint does not tell how much memory it uses")
    return bytes_quantity(value)
