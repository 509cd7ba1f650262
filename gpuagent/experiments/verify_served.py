"""Interleaved A/B of two configurations of a server.

Where both fit beside each other (on a CPU, or with memory shares that leave room) both servers run
and only one is loaded at a time. Where they do not, each is started anew for its runs, in the order
A BB AA BB A, which needs the fewest starts and still lets a drift fall on both sides alike.
"""

from __future__ import annotations

from gpuagent.experiments.base import RunContext, median
from gpuagent.experiments.pairing import MIN_PAIRS, note_cut, note_repeats, seed_of, sides_of
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.serve import (
    client_checks,
    count_checks,
    served_engine,
    warm_up,
)
from gpuagent.experiments.serve_quality import server_perplexity
from gpuagent.experiments.server_load import Scraper, Server, Traffic, send
from gpuagent.text import Passage
from gpuagent.wire import EngineSettings
from gpuagent.wire.loaded import LoadedModel, Perplexity
from gpuagent.wire.serving import ServedEngine
from gpuagent.wire.trial import AbRun, VerifyConfig, VerifyResult

_FINISH_S = 10.0
# What an engine takes of a GPU where nothing is said.
_DEFAULT_SHARE_FRAC = 0.92
_BOTH_FRAC = 0.95


class _Sides:
    """Opens the server of a side, closing the other one where only one fits."""

    def __init__(
        self,
        context: RunContext,
        settings: dict[str, EngineSettings],
        passage: Passage,
        streams: int,
    ) -> None:
        self._context, self._settings = context, settings
        self._passage, self._streams = passage, streams
        self._open: dict[str, tuple[Server, Traffic]] = {}
        self._together = _fit_together(context, settings)

    def get(self, side: str) -> tuple[Server, Traffic]:
        if side in self._open:
            return self._open[side]
        if not self._together:
            for server, _ in self._open.values():
                server.engine.close()
            self._open.clear()
        context = self._context
        server = context.open_server(self._settings[side])
        traffic = Traffic(server, context.spec.workload, self._passage, seed=context.spec.seed)
        warm_up(context, server, traffic, self._streams)
        self._open[side] = (server, traffic)
        return self._open[side]


def run(context: RunContext, config: VerifyConfig) -> VerifyResult:
    """Measure both sides in pairs. See `VerifyResult` for what comes out."""
    passage = context.load_text(config.text_path)
    settings = {"a": context.spec.settings, "b": config.candidate}
    sides = _Sides(context, settings, passage, config.streams)
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={"load": 100, "measure": 120, "quality": 5},
    )
    models: dict[str, LoadedModel] = {}
    served: dict[str, ServedEngine] = {}
    scored: dict[str, tuple[Perplexity | None, str | None]] = {}
    runs: list[AbRun] = []
    total = 2 * config.pairs
    context.facts.planned_requests = total * config.requests_per_run
    longest_s, measuring = 0.0, False
    for pair in range(config.pairs):
        if pair >= MIN_PAIRS and longest_s > context.remaining_s() - _FINISH_S:
            sent = len(runs) * config.requests_per_run
            note_cut(context.facts, pairs=pair, planned_pairs=config.pairs, planned_requests=sent)
            break
        began = context.clock.now()
        for side in sides_of(pair):
            server, traffic = sides.get(side)
            if side not in scored:
                models[side] = server.report.model
                scored[side] = server_perplexity(context, server, passage, config.perplexity_tokens)
            if not measuring and len(scored) == 2:
                progress.enter("measure", "Running both sides in turn")
            if not measuring:
                context.begin_measuring()
                measuring = True
            seed = seed_of(pair, context.spec.seed)
            planned = traffic.plan(count=config.requests_per_run, seed=seed)
            rate = context.spec.workload.request_rate_per_s
            streams = None if rate is not None else config.streams
            with Scraper(server.engine) as scraper:
                done = send(server, planned, tick=context.tick, streams=streams)
            runs.append(
                AbRun.model_validate({"side": side, "order": len(runs), "requests": done.records})
            )
            last = served_engine(server, context.spec.engine, done, scraper)
            served[side] = last
            if pair == 0:
                context.facts.checks += client_checks(done) if side == "a" else []
                context.facts.checks += [
                    check.model_copy(update={"id": f"{check.id}_{side}"})
                    for check in count_checks(last, context.spec.workload.shared_prefix_frac)
                ]
            progress.advance(len(runs), total, f"Run {len(runs)} of {total}")
        longest_s = max(longest_s, context.clock.now() - began)
    note_repeats(context.facts, runs, _typical_s)
    reasons = [reason for _, reason in scored.values() if reason is not None]
    return VerifyResult(
        model_a=models["a"],
        model_b=models["b"],
        candidate=config.candidate,
        runs=tuple(runs),
        perplexity_a=scored["a"][0],
        perplexity_b=scored["b"][0],
        perplexity_reason="; ".join(dict.fromkeys(reasons)) or None,
        served_a=served["a"],
        served_b=served["b"],
    )


def _fit_together(context: RunContext, settings: dict[str, EngineSettings]) -> bool:
    """On a CPU both fit; on a GPU where the two shares of its memory leave something free."""
    from gpuagent.telemetry.nvml import open_reader

    reader = open_reader()
    try:
        gpus = reader.gpus()
    finally:
        reader.close()
    if context.spec.engine == "openai" or not gpus:
        return True
    shares = [s.memory_share_frac or _DEFAULT_SHARE_FRAC for s in settings.values()]
    return sum(shares) <= _BOTH_FRAC


def _typical_s(run_: AbRun) -> float:
    ends = [r.token_s[-1] - r.sent_s for r in run_.requests if r.error is None and r.token_s]
    return median(ends) if ends else 0.0
