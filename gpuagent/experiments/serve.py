"""A server under the workload's load, with its own counters beside; then its highest rate.

The targets are judged on the workload's own requests. The boundary is a second question and gets
rates, seeds and time of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext, bytes_quantity, joules, joules_per_token, median
from gpuagent.experiments.idle import idle_power_w, net_joules_per_token
from gpuagent.experiments.progress import Progress
from gpuagent.experiments.serve_boundary import find_rate
from gpuagent.experiments.serve_quality import server_perplexity
from gpuagent.experiments.server_load import Scraper, Server, Traffic, reconcile, send
from gpuagent.load.driver import LoadRun
from gpuagent.load.selfcheck import check_client
from gpuagent.wire import FailureReason, Quantity
from gpuagent.wire.loaded import ColdStart
from gpuagent.wire.measure import RequestRecord, ValidityCheck
from gpuagent.wire.serving import RateBoundary, ServeConfig, ServedEngine
from gpuagent.wire.trial import ServerCounters, ServeResult

_WARM_SEED_STEP = 104_729
_WARM_ROUNDS = 6
_WARM_LIMIT_S = 20.0
_WARM_TOKENS = 16
_STABLE_FRAC = 0.10
_FINISH_S = 8.0
_COUNT_TOLERANCE_FRAC = 0.01
_HIT_TOLERANCE_FRAC = 0.01
_CACHE_FULL_FRAC = 0.95
# Lines about the client that no other check of the trial looks at.
_CLIENT_LINES = frozenset({"client_cpu", "rate_sent", "client_connections"})


def run(context: RunContext) -> ServeResult:
    """Measure the spec's settings on a server. See `ServeResult` for what comes out."""
    spec = context.spec
    config = _config(context)
    passage = context.load_text(config.text_path)
    requests = spec.workload.requests
    progress = Progress(
        emit=context.emit,
        clock=context.clock,
        phases={
            "load": 60,
            "warmup": 5,
            "measure:requests": 60,
            "measure:boundary": config.boundary_points * (config.point_s + 3),
            "quality": 2,
        },
    )
    server = context.open_server(spec.settings)
    traffic = Traffic(server, spec.workload, passage, seed=spec.seed)
    planned = traffic.plan(count=requests, seed=spec.seed)
    context.facts.planned_requests = len(planned)
    progress.enter("warmup", "Warming up")
    warm_s, rounds = warm_up(context, server, traffic, config.streams)

    idle = idle_power_w(context)
    context.begin_measuring()
    progress.enter("measure:requests", "Sending the workload's requests")
    before_j = context.energy.read_j()
    streams = None if spec.workload.request_rate_per_s is not None else config.streams
    with Scraper(server.engine) as scraper:
        run_ = send(
            server,
            planned,
            tick=context.tick,
            streams=streams,
            until_s=max(1.0, context.remaining_s() - _FINISH_S),
            on_progress=lambda sent, done: progress.advance(
                done, len(planned), f"Request {done} of {len(planned)}"
            ),
        )
    used_j = joules(before_j, context.energy.read_j())
    tokens = sum(record.output_tokens for record in run_.records)
    energy = joules_per_token(used_j, tokens, context.energy)
    context.facts.checks += client_checks(run_)
    served = served_engine(server, spec.engine, run_, scraper)
    context.facts.checks += count_checks(served, spec.workload.shared_prefix_frac)

    boundary, boundary_reason = _boundary(context, config, server, traffic, progress, run_.records)
    progress.enter("quality", "Scoring the text")
    perplexity, why_not = server_perplexity(context, server, passage, config.perplexity_tokens)
    report = server.report
    return ServeResult(
        model=report.model,
        cold=None
        if report.ready_s is None
        else ColdStart(
            import_s=0.0,
            load_s=max(0.0, report.ready_s - report.first_request_s),
            first_request_ttft_s=report.first_request_s,
            warmup_s=warm_s,
            warmup_iterations=rounds,
        ),
        cells=(),
        requests=run_.records,
        arrivals="closed_loop" if streams is not None else "poisson",
        window_s=run_.wall_s,
        peak_memory_bytes=bytes_quantity(scraper.peak_memory_bytes())
        if server.engine.memory_kind != "unknown"
        else Quantity(reason="an endpoint does not tell how much memory it uses"),
        memory_kind=server.engine.memory_kind,
        joules_per_token=energy,
        idle_power_w=idle,
        net_joules_per_token=net_joules_per_token(energy, idle, run_.wall_s, tokens),
        read_bandwidth_bytes_s=Quantity(reason="it is not measured beside a running server"),
        perplexity=perplexity,
        perplexity_reason=why_not,
        server=server_counters(scraper, served, spec.settings.max_running),
        served=served,
        streams=streams,
        boundary=boundary,
        boundary_reason=boundary_reason,
    )


def _config(context: RunContext) -> ServeConfig:
    config = context.spec.config
    if not isinstance(config, ServeConfig):
        raise AgentError(FailureReason.CONFIG_ERROR, f"config: {config.experiment} is not serve")
    return config


def warm_up(
    context: RunContext, server: Server, traffic: Traffic, streams: int
) -> tuple[float, int]:
    """(seconds, rounds): short closed loops with seeds of their own until their times agree."""
    began = context.clock.now()
    times: list[float] = []
    count = max(2, min(streams, 32))
    while len(times) < _WARM_ROUNDS and not _stable(times):
        if len(times) >= 2 and context.clock.now() - began > _WARM_LIMIT_S:
            break
        seed = context.spec.seed + _WARM_SEED_STEP * (len(times) + 1)
        planned = traffic.plan(
            count=count, seed=seed % 2**31, paced=False, most_output=_WARM_TOKENS
        )
        run_ = send(server, planned, tick=context.tick, streams=count)
        good = [r.token_s[-1] - r.sent_s for r in run_.records if r.error is None and r.token_s]
        if good:
            times.append(median(good))
    stable = _stable(times)
    before = context.facts.warmup_stable
    context.facts.warmup_stable = stable if before is None else before and stable
    return context.clock.now() - began, len(times)


def _stable(times: Sequence[float]) -> bool:
    """Whether the last two rounds took about the same time."""
    latest = times[-2:]
    return len(times) >= 2 and max(latest) <= min(latest) * (1 + _STABLE_FRAC)


def client_checks(run_: LoadRun) -> list[ValidityCheck]:
    return [check for check in check_client(run_).checks if check.id in _CLIENT_LINES]


def served_engine(server: Server, name: str, run_: LoadRun, scraper: Scraper) -> ServedEngine:
    """Who was measured, with its timeline and the two sides' counts."""
    report, timeline = server.report, scraper.timeline()
    queries, hits = scraper.increase("prefix_queries"), scraper.increase("prefix_hits")
    hit = Quantity(reason="the server does not count prefix cache hits")
    if queries and hits is not None:
        hit = Quantity(value=min(1.0, hits / queries))
    elif scraper.after is not None and scraper.after.prefix_hit_frac is not None:
        hit = Quantity(value=scraper.after.prefix_hit_frac)
    drafted, accepted = scraper.increase("draft_tokens"), scraper.increase("accepted_tokens")
    accepted_frac = Quantity(reason="the server does not speculate")
    if drafted and accepted is not None:
        accepted_frac = Quantity(value=min(1.0, accepted / drafted))
    return ServedEngine(
        engine=name,
        version=report.version,
        command=report.command,
        ready_s=Quantity(value=report.ready_s)
        if report.ready_s is not None
        else Quantity(reason="an endpoint is not started by the agent"),
        facts=report.facts,
        timeline=timeline,
        timeline_reason=None if timeline else "the server answered no request for its metrics",
        counts=reconcile(run_, scraper),
        prefix_hit_frac=hit,
        spec_accepted_frac=accepted_frac,
    )


def count_checks(served: ServedEngine, shared_prefix_frac: float) -> list[ValidityCheck]:
    """Checklist rows 6, 14 and 15: both sides saw the same, and no cache answered for the model
    beyond the beginning that the workload's requests share."""
    checks = []
    for count in served.counts:
        check_id, words = f"count_{count.what}", count.what.replace("_", " ")
        if count.server is None:
            message = f"Only the client counted {words}: {count.reason}"
            checks.append(ValidityCheck(id=check_id, verdict="not_checked", message=message))
            continue
        allowed = 0.0 if count.what == "requests" else _COUNT_TOLERANCE_FRAC
        off = abs(count.client - count.server) / max(1, count.server)
        good = off <= allowed
        checks.append(
            ValidityCheck(
                id=check_id,
                verdict="valid" if good else "warn",
                message=f"Client and server counted {count.client:,} and {count.server:,} {words}",
                value=off,
                limit=allowed,
            )
        )
    hit = served.prefix_hit_frac.value
    if hit is not None:
        limit = shared_prefix_frac + _HIT_TOLERANCE_FRAC
        good = hit <= limit
        shares = f"shares {shared_prefix_frac:.0%} of them" if shared_prefix_frac else "shares none"
        message = (
            "Prompts were new to the prefix cache, but for what the workload shares"
            if good and shared_prefix_frac
            else "Prompts were new to the prefix cache"
            if good
            else f"The prefix cache answered for {hit:.1%} of the prompt tokens, and the workload "
            f"{shares}: times to first token are too good"
        )
        checks.append(
            ValidityCheck(
                id="prefix_cache_cold",
                verdict="valid" if good else "warn",
                message=message,
                value=hit,
                limit=limit,
            )
        )
    return checks


def server_counters(
    scraper: Scraper, served: ServedEngine, max_running: int | None
) -> ServerCounters | None:
    """The gauges' shares over the window; None where the server shows none.

    A full batch is seen only where its limit is known; requests wait for room in the cache where
    some wait and the cache is nearly full.
    """
    seen = [scrape.seen for scrape in scraper.scrapes if scrape.seen is not None]
    gauges = [s for s in seen if s.running is not None and s.waiting is not None]
    if not gauges:
        return None
    limit = max_running or served.facts.max_running
    queued = [s for s in gauges if (s.waiting or 0) > 0]
    full = sum(1 for s in queued if limit is not None and (s.running or 0) >= limit)
    starved = sum(1 for s in queued if (s.kv_frac or 0) > _CACHE_FULL_FRAC)
    steps, preemptions = scraper.increase("steps"), scraper.increase("preemptions")
    return ServerCounters(
        steps=None if steps is None else round(steps),
        preemptions=round(preemptions or 0),
        running_peak=max(round(max(s.running or 0 for s in gauges)), _least_batch(scraper)),
        kv_peak_frac=min(1.0, max(s.kv_frac or 0.0 for s in gauges)),
        full_frac=full / len(gauges),
        starved_frac=starved / len(gauges),
        eager_frac=None,
        mixed_frac=None,
        shares_of="samples",
        samples=len(gauges),
    )


def _least_batch(scraper: Scraper) -> int:
    """Requests that must have run at once: a step gives each of them one token at most.

    Samples of a gauge once a second can miss a batch that came and went between them. 0 where the
    engine counts no steps, and where drafts give a request several tokens a step.
    """
    steps, tokens = scraper.increase("steps"), scraper.increase("output_tokens")
    if not steps or not tokens or scraper.increase("draft_tokens"):
        return 0
    return math.ceil(tokens / steps - 1e-9)


def _boundary(
    context: RunContext,
    config: ServeConfig,
    server: Server,
    traffic: Traffic,
    progress: Progress,
    records: Sequence[RequestRecord],
) -> tuple[RateBoundary | None, str | None]:
    if config.boundary_points == 0:
        return None, None
    progress.enter("measure:boundary", "Looking for the highest rate that keeps the targets")
    return find_rate(
        context,
        config,
        server,
        traffic,
        records,
        on_point=lambda done, text: progress.advance(done, config.boundary_points, text),
    )
