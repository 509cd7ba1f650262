"""What measuring costs: the same decode loop with telemetry and events on and off.

On is what a trial has: a sampler in its own process (the validity watch), a second one in another
process (the agent), and a progress call after each step whose events go through a pipe. Blocks
follow each other as ABBA; the ratio is that of pairs, with its interval, beside the noise floor of
the blocks without measuring. The processor time of one sample and one event is printed, too: it
bounds the cost where other work on the machine makes the ratio wide.

    python benchmarks/bench_sampler.py [--pairs 20] [--block-s 3] [--threads 1]

The model has the size of SmolLM2-135M and random weights: its speed does not depend on them.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from gpuagent.child import EventPipe
from gpuagent.engines import create_engine
from gpuagent.engines.base import Engine
from gpuagent.experiments.base import SystemClock
from gpuagent.experiments.progress import Progress
from gpuagent.models import resolve
from gpuagent.stats import compare_pairs, noise_floor
from gpuagent.telemetry.sampler import PERIOD_S, Sampler
from gpuagent.wire import ConfigModel, EngineSettings

CONFIG = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
PROMPT = tuple(range(64))
MAX_STEPS = 20


def agent_side(commands: Connection, events_fd: int, pid: int) -> None:
    """The agent's part: reads events, and samples between "on" and "off"."""
    os.set_blocking(events_fd, False)
    sampler: Sampler | None = None
    while True:
        if commands.poll(0.25):
            command = commands.recv()
            if sampler is not None:
                sampler.stop()
            sampler = None
            if command == "end":
                return
            if command == "on":
                sampler = Sampler()
                sampler.watch(pid)
                sampler.start()
            commands.send("done")
        try:
            os.read(events_fd, 1 << 16)
        except BlockingIOError:
            pass
        if sampler is not None:
            sampler.drain()


def decode(engine: Engine, block_s: float, progress: Progress | None) -> float:
    """Seconds per step over a block; contexts repeat, so that both sides do the same work."""
    done, took_s = 0, 0.0
    while took_s < block_s:
        batch = engine.prefill([PROMPT], use_cache=True)
        began = time.perf_counter()
        for step in range(MAX_STEPS):
            engine.step(batch)
            if progress is not None:
                progress.advance(step + 1, MAX_STEPS, f"Step {step + 1} of {MAX_STEPS}")
        took_s += time.perf_counter() - began
        done += MAX_STEPS
        engine.release(batch)
    return took_s / done


def cpu_cost_s(action: object, repeats: int) -> float:
    """Processor seconds of this thread per call."""
    assert callable(action)
    action()
    began = time.thread_time()
    for _ in range(repeats):
        action()
    return (time.thread_time() - began) / repeats


def main() -> int:
    """Print the ratio and the costs of single calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20, help="6 at least")
    parser.add_argument("--block-s", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    read_fd, write_fd = os.pipe()
    ours, theirs = mp.Pipe()
    agent = mp.get_context("fork").Process(
        target=agent_side, args=(theirs, read_fd, os.getpid()), daemon=True
    )
    agent.start()
    pipe = EventPipe(write_fd)
    engine = create_engine("transformers")
    model = resolve(ConfigModel(name="135M", config=CONFIG), [Path.cwd()], offline=True)
    engine.load(model, EngineSettings(threads=args.threads), seed=0, tick=lambda: None)
    decode(engine, 1.0, None)
    off: list[float] = []
    on: list[float] = []
    for pair in range(args.pairs):
        for measured in (False, True) if pair % 2 == 0 else (True, False):
            ours.send("on" if measured else "off")
            ours.recv()
            if not measured:
                off.append(decode(engine, args.block_s, None))
                continue
            progress = Progress(emit=pipe.emit, clock=SystemClock(), phases={"measure": 60})
            progress.enter("measure", "Decoding")
            with Sampler() as sampler:
                sampler.watch(os.getpid())
                on.append(decode(engine, args.block_s, progress))
    ours.send("end")
    agent.join(5)
    found = compare_pairs(off, on)
    floor = noise_floor(off)
    print(
        f"step with / without measuring: {found.ratio:.4f} ({found.low:.4f} to {found.high:.4f}, "
        f"{found.n_a} pairs of {args.block_s:g} s), {found.verdict.replace('_', ' ')}; "
        f"noise floor {floor:.2%}"
        if floor is not None
        else ""
    )
    sampler = Sampler()
    sampler.watch(os.getpid())
    sample_s = cpu_cost_s(sampler.sample_now, 50)
    sampler.stop()
    event_s = cpu_cost_s(lambda: pipe.emit("measure", "Step 1 of 20", 0.5, 10.0), 500)
    cores = os.cpu_count() or 1
    frac = (2 * sample_s / PERIOD_S + 2 * event_s) / cores
    print(
        f"one sample {sample_s * 1e3:.2f} ms, one event {event_s * 1e6:.0f} µs of processor time; "
        f"two samples and two events a second are {frac:.3%} of {cores} cores"
    )
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
