"""When the requests of a run are sent, and which of them count."""

from __future__ import annotations

import argparse
from dataclasses import replace

from gpuagent.errors import ConfigError
from gpuagent.load.arrivals import arrival_times
from gpuagent.load.driver import LoadRun
from gpuagent.wire.measure import RequestRecord

DEFAULT_DURATION_S = 30.0
_MOST_PLANNED = 1_000_000
_CLOCK_ROUNDING_S = 1e-6


def open_times(args: argparse.Namespace, rate_per_s: float, *, seed: int) -> list[float]:
    """Intended send times of an open loop, warm-up included."""
    window_s = args.duration
    if window_s is None and args.requests is None:
        window_s = DEFAULT_DURATION_S
    warm = round(rate_per_s * args.warmup)
    if window_s is None:
        count = int(args.requests) + warm
    else:
        expected = rate_per_s * (window_s + args.warmup)
        count = round(expected + 10 * expected**0.5 / args.burstiness + 10)
    if count > _MOST_PLANNED:
        raise ConfigError(f"{count:,} requests are more than {_MOST_PLANNED:,}: shorten the run")
    if args.burstiness > 1:
        raise ConfigError("burstiness: must lie above 0 and up to 1")
    times = arrival_times(args.arrivals, rate_per_s, count, seed=seed, burstiness=args.burstiness)
    if window_s is not None:
        times = [at_s for at_s in times if at_s <= window_s + args.warmup]
        if args.requests is not None:
            times = times[: args.requests + warm]
    if not times:
        raise ConfigError(
            f"no request falls into {window_s:g} s at {rate_per_s:g} a second: make it longer"
        )
    return times


def without_warmup(run: LoadRun, warmup_s: float) -> LoadRun:
    """The run without the requests of its first seconds, times counted from there."""
    if warmup_s <= 0:
        return run
    # The clock's own rounding must not drop the request that is due at the very end.
    first_s = warmup_s - _CLOCK_ROUNDING_S
    kept = [i for i, record in enumerate(run.records) if record.intended_s >= first_s]
    return replace(
        run,
        records=tuple(_shifted(run.records[i], warmup_s) for i in kept),
        turns=tuple(run.turns[i] for i in kept) if run.turns else (),
        wall_s=max(0.0, run.wall_s - warmup_s),
    )


def _shifted(record: RequestRecord, by_s: float) -> RequestRecord:
    return record.model_copy(
        update={
            "intended_s": max(0.0, record.intended_s - by_s),
            "sent_s": record.sent_s - by_s,
            "token_s": tuple(at_s - by_s for at_s in record.token_s),
        }
    )
