"""The search against grid, random and Optuna's TPE on simulated serving surfaces.

Every configuration of the grid is simulated once without noise; a trial of any method reads that
value with 2 % noise, so that all of them see the same surface. Prints, at 10, 15 and 30 trials,
the median regret (true loss of the configuration with the best measured loss over the grid's best,
minus 1), the share of trials that ran, the share of seeds within 2 % of the best and the median
number of trials to get there; and the sign test over seeds against random.

    python benchmarks/bench_search.py [--seeds 20] [--surfaces chat-h100,...]

TPE is left out with a line where Optuna is not installed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from advisor.search import Knobs, Observation, Signals, Space, propose
from gpuagent.simulator import MACHINES, Arrival, ServingKnobs, StartRefused, simulate

SPACE = Space(
    values={
        "max_running": (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512),
        "max_batched_tokens": (256, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384),
        "chunked_prefill": (False, True),
        "memory_share_frac": (0.6, 0.7, 0.8, 0.9, 0.95, 0.98),
        "kv_dtype": ("auto", "fp8"),
        "cuda_graphs": (False, True),
    },
    memory={"max_running": 1, "memory_share_frac": 1, "cuda_graphs": 1},
    cache={"memory_share_frac": 1, "kv_dtype": 1, "max_batched_tokens": -1},
)
CURRENT: Knobs = {
    "max_running": 8,
    "max_batched_tokens": 512,
    "chunked_prefill": True,
    "memory_share_frac": 0.7,
    "kv_dtype": "auto",
    "cuda_graphs": False,
}
DEFAULT: Knobs = {
    "max_running": 512,
    "max_batched_tokens": 8192,
    "chunked_prefill": True,
    "memory_share_frac": 0.9,
    "kv_dtype": "auto",
    "cuda_graphs": True,
}
CHECKPOINTS = (10, 15, 30)
NOISE = 0.02


@dataclass(frozen=True)
class Surface:
    """rate_per_s None: all requests at once, and the loss is the time until the last token."""

    name: str
    machine: str
    rate_per_s: float | None
    input_mean: int
    output_mean: int
    ttft_s: float
    itl_s: float
    requests: int = 300

    def arrivals(self) -> list[Arrival]:
        rng = random.Random(11)
        at_s, found = 0.0, []
        for _ in range(self.requests):
            if self.rate_per_s is not None:
                at_s += rng.expovariate(self.rate_per_s)
            inputs = max(8, round(rng.lognormvariate(math.log(self.input_mean), 0.5)))
            outputs = max(4, round(rng.lognormvariate(math.log(self.output_mean), 0.5)))
            found.append(Arrival(at_s, min(inputs, 6000), min(outputs, 1500)))
        return found


SURFACES = (
    Surface("chat-h100", "qwen3-32b-2xh100", 6.0, 600, 200, 0.5, 0.05),
    Surface("long-h100", "qwen3-32b-2xh100", 1.6, 3500, 250, 1.5, 0.06),
    Surface("batch-h100", "qwen3-32b-2xh100", None, 800, 400, 0, 0),
    Surface("chat-h200", "gpt-oss-120b-h200", 7.0, 500, 300, 0.3, 0.04),
    Surface("batch-h200", "gpt-oss-120b-h200", None, 2000, 300, 0, 0),
    Surface("api-b200", "gpt-oss-120b-b200", 30.0, 900, 120, 0.15, 0.02),
)
# Not looked at while the rules of the search were written.
HELD_OUT = (
    Surface("short-h100", "qwen3-32b-2xh100", 5.0, 150, 400, 0.3, 0.04),
    Surface("answers-h100", "qwen3-32b-2xh100", 3.0, 300, 900, 1.0, 0.04),
    Surface("long-h200", "gpt-oss-120b-h200", 2.0, 4500, 300, 1.5, 0.05),
    Surface("long-b200", "gpt-oss-120b-b200", 9.0, 5000, 400, 0.8, 0.03),
    Surface("batch-b200", "gpt-oss-120b-b200", None, 600, 900, 0, 0),
    Surface("mixed-h100", "qwen3-32b-2xh100", 2.5, 1800, 350, 0.8, 0.045),
)
Table = dict[tuple[Any, ...], Observation]


def key(knobs: Knobs) -> tuple[Any, ...]:
    return tuple(knobs[name] for name in SPACE.values)


def evaluate(surface: Surface, values: tuple[Any, ...]) -> Observation:
    """True loss and signals of one configuration."""
    knobs = dict(zip(SPACE.values, values, strict=True))
    arrivals = surface.arrivals()
    try:
        served = simulate(MACHINES[surface.machine], ServingKnobs(**knobs), arrivals, seed=None)
    except StartRefused as refused:
        kind: Any = refused.kind
        return Observation(knobs, None, failure=kind)
    gaps = sorted(b - a for times in served.token_s for a, b in itertools.pairwise(times))
    ttfts = sorted(t[0] - a.at_s for t, a in zip(served.token_s, arrivals, strict=True))
    ttft = itl = None
    loss = served.end_s
    if surface.rate_per_s is not None:
        ttft = ttfts[int(0.95 * len(ttfts))] / surface.ttft_s
        itl = gaps[int(0.95 * len(gaps))] / surface.itl_s
        loss = max(ttft, itl)
    seen = served.counters
    signals = Signals(
        ttft_ratio=ttft,
        itl_ratio=itl,
        full_share=seen.full_steps / seen.steps,
        starved_share=seen.starved_steps / seen.steps,
        eager_share=seen.eager_steps / seen.steps,
        mixed_share=seen.mixed_steps / seen.steps,
        preemptions=seen.preemptions,
        kv_peak_frac=seen.kv_peak_frac,
        running_peak=seen.running_peak,
    )
    return Observation(knobs, loss, signals)


def table_of(surface: Surface, pool: ProcessPoolExecutor) -> Table:
    grid = list(itertools.product(*SPACE.values.values()))
    found = pool.map(evaluate, itertools.repeat(surface), grid, chunksize=64)
    return dict(zip(grid, found, strict=True))


Measure = Callable[[Knobs], Observation]


def measurer(table: Table, seed: int) -> tuple[Measure, list[Observation]]:
    """A function that measures with noise, and the list of what it measured."""
    rng, log = random.Random(seed), []

    def measure(knobs: Knobs) -> Observation:
        true = table[key(knobs)]
        loss = None if true.loss is None else true.loss * math.exp(rng.gauss(0, NOISE))
        log.append(Observation(true.knobs, loss, true.signals, true.failure))
        return log[-1]

    return measure, log


def ours(measure: Measure, seed: int, trials: int) -> None:
    history: list[Observation] = []
    while len(history) < trials:
        wanted = propose(SPACE, history, current=CURRENT, default=DEFAULT)
        if wanted is None:
            return
        history.append(measure(wanted.knobs))


def at_random(measure: Measure, seed: int, trials: int) -> None:
    rng = random.Random(1000 + seed)
    grid = list(itertools.product(*SPACE.values.values()))
    for knobs in (CURRENT, DEFAULT):
        measure(knobs)
    for values in rng.sample(grid, trials - 2):
        measure(dict(zip(SPACE.values, values, strict=True)))


def coarse_grid(measure: Measure, seed: int, trials: int) -> None:
    """A factorial of the ends and the middle, in random order: what a person sweeps by hand."""
    scales = [
        (scale[0], scale[len(scale) // 2], scale[-1]) if len(scale) > 2 else scale
        for scale in SPACE.values.values()
    ]
    grid = list(itertools.product(*scales))
    random.Random(2000 + seed).shuffle(grid)
    for knobs in (CURRENT, DEFAULT):
        measure(knobs)
    for values in grid[: trials - 2]:
        measure(dict(zip(SPACE.values, values, strict=True)))


def tpe(measure: Measure, seed: int, trials: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    for knobs in (CURRENT, DEFAULT):
        study.enqueue_trial(dict(knobs))

    def objective(trial: Any) -> float:
        knobs = {n: trial.suggest_categorical(n, scale) for n, scale in SPACE.values.items()}
        seen = measure(knobs)
        if seen.loss is None:
            raise optuna.TrialPruned
        return math.log(seen.loss)

    study.optimize(objective, n_trials=trials)


METHODS = {"ours": ours, "random": at_random, "grid": coarse_grid, "tpe": tpe}


@dataclass(frozen=True)
class Run:
    """regret at each checkpoint; feasible: share of trials that ran; reached: trials to 2 %."""

    regret: tuple[float, ...]
    feasible: float
    reached: int | None
    trials: int


def run(method: str, table: Table, seed: int) -> Run:
    best = min(o.loss for o in table.values() if o.loss is not None)
    measure, log = measurer(table, seed)
    METHODS[method](measure, seed, CHECKPOINTS[-1])

    def regret(trials: int) -> float:
        good = [o for o in log[:trials] if o.loss is not None]
        if not good:
            return math.inf
        chosen = min(good, key=lambda o: o.loss or math.inf)
        return (table[key(chosen.knobs)].loss or math.inf) / best - 1

    reached = next((n for n in range(1, len(log) + 1) if regret(n) <= 0.02), None)
    feasible = sum(o.loss is not None for o in log) / len(log)
    return Run(tuple(regret(n) for n in CHECKPOINTS), feasible, reached, len(log))


def sign_test(ours_: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided exact sign test over pairs; equal pairs are left out."""
    wins = sum(a < b for a, b in zip(ours_, theirs, strict=True))
    losses = sum(a > b for a, b in zip(ours_, theirs, strict=True))
    n, k = wins + losses, min(wins, losses)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


def show(name: str, runs: dict[str, list[Run]]) -> None:
    print(f"\n{name}")
    print(
        f"  {'method':8}" + "".join(f"regret@{n:<6}" for n in CHECKPOINTS) + "ran   <=2 %  trials"
    )
    for method, found in runs.items():
        regrets = [statistics.median(r.regret[i] for r in found) for i in range(len(CHECKPOINTS))]
        reached = [r.reached for r in found if r.reached is not None]
        middle = f"{statistics.median(reached):g}" if len(reached) * 2 > len(found) else "-"
        print(
            f"  {method:8}"
            + "".join(f"{regret:<13.1%}" for regret in regrets)
            + f"{statistics.mean(r.feasible for r in found):<6.0%}"
            + f"{len(reached) / len(found):<8.0%}{middle}"
        )
    for index, checkpoint in enumerate(CHECKPOINTS):
        against = {
            other: sign_test(
                [r.regret[index] for r in runs["ours"]], [r.regret[index] for r in runs[other]]
            )
            for other in runs
            if other != "ours"
        }
        text = ", ".join(f"{other} p = {p:.2g}" for other, p in against.items())
        print(f"  ours against others at {checkpoint}: {text}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--surfaces", default=",".join(s.name for s in (*SURFACES, *HELD_OUT)))
    args = parser.parse_args()
    methods = list(METHODS)
    try:
        import optuna  # noqa: F401
    except ImportError:
        print("Optuna is not installed: TPE is left out")
        methods.remove("tpe")
    chosen = args.surfaces.split(",")
    with ProcessPoolExecutor() as pool:
        for title, group in (("seen", SURFACES), ("held out", HELD_OUT)):
            everything: dict[str, list[Run]] = {method: [] for method in methods}
            for surface in (s for s in group if s.name in chosen):
                table = table_of(surface, pool)
                good = [o.loss for o in table.values() if o.loss is not None]
                runs = {m: [run(m, table, seed) for seed in range(args.seeds)] for m in methods}
                show(
                    f"{surface.name}: {len(table):,} configurations, "
                    f"{len(good) / len(table):.0%} run, best {min(good):.3g}, "
                    f"current {table[key(CURRENT)].loss:.3g}",
                    runs,
                )
                for method in methods:
                    everything[method] += runs[method]
            if any(everything.values()):
                show(f"all surfaces, {title}", everything)


if __name__ == "__main__":
    main()
