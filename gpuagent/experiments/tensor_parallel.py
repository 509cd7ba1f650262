"""One model over 1, 2, 4 and 8 devices: what splitting it is worth on this host.

Each size is a group of processes of its own (`gpuagent.lab.tensor_parallel`), so that a size which
runs out of memory or has no plan leaves the others as they are. On a processor the processes share
its cores: that tries the plan, and says nothing about devices.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gpuagent.engines import hf_loading
from gpuagent.errors import AgentError
from gpuagent.experiments.base import RunContext, median
from gpuagent.experiments.progress import Progress
from gpuagent.lab.tensor_parallel import OUT_OF_MEMORY_EXIT, Job, Measured
from gpuagent.models import ResolvedModel, resolve
from gpuagent.wire import FailureReason, Quantity, Samples
from gpuagent.wire.loaded import LoadedModel
from gpuagent.wire.parallel import TensorParallelConfig, TensorParallelPoint, TensorParallelResult

_POLL_S = 0.1
_STOP_S = 3.0
_LOG_CHARS = 4_000
# Nothing of this leaves the host, and host names need not resolve.
_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}
_NOTHING = Quantity(reason="it did not run")


def run(context: RunContext) -> TensorParallelResult:
    """Smallest size first. Raises AgentError where none runs."""
    import torch

    config = context.spec.config
    if not isinstance(config, TensorParallelConfig):
        message = f"config: {config.experiment} is not tensor_parallel"
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    model = resolve(
        context.spec.model, context.model_roots, offline=os.environ.get("HF_HUB_OFFLINE") == "1"
    )
    if model.folder is None or model.gguf_file:
        message = (
            "model: a split model is loaded from safetensors in a folder, part by part; "
            "a bare config and GGUF files have none"
        )
        raise AgentError(FailureReason.CONFIG_ERROR, message)
    devices = torch.cuda.device_count() if torch.cuda.is_available() else None
    threads = context.spec.settings.threads or torch.get_num_threads()
    progress = Progress(emit=context.emit, clock=context.clock, phases={"measure": 60})
    context.begin_measuring()
    progress.enter("measure", "Splitting the model")
    sizes = sorted(set(config.sizes))
    heads, vocab = _shape(model)
    rng = random.Random(context.spec.seed)  # noqa: S311  a prompt, nothing secret
    # Any ids will do: only times are compared, and answers among the sizes.
    prompt = [rng.randrange(vocab) for _ in range(config.input_tokens)]
    points: list[TensorParallelPoint] = []
    first: Measured | None = None
    with tempfile.TemporaryDirectory(prefix="tensor-parallel-") as folder:
        for index, size in enumerate(sizes):
            reason = _problem(size, heads, devices)
            measured: Measured | None = None
            if reason is None:
                job = Job(
                    folder=str(model.folder),
                    dtype=context.spec.settings.dtype,
                    attention=context.spec.settings.attention,
                    prompt=prompt,
                    decode_steps=config.decode_steps,
                    repeats=config.repeats,
                    threads=max(1, threads // size) if devices is None else threads,
                    rendezvous=str(Path(folder, f"meet-{size}")),
                    result=str(Path(folder, f"measured-{size}.json")),
                )
                measured, reason = _run_size(context, job, size, Path(folder))
            first = first or measured
            points.append(_point(size, measured, reason, first))
            progress.advance(index + 1, len(sizes), f"{size} of up to {sizes[-1]} processes")
    if first is None:
        reasons = "; ".join(f"{p.size}: {p.reason}" for p in points)
        raise AgentError(FailureReason.CONFIG_ERROR, f"sizes: none ran ({reasons})"[:800])
    context.facts.repeat_ratios += _repeat_ratios(points, config.decode_steps)
    whole = points[0].size == 1 and points[0].reason is None
    return TensorParallelResult(
        model=LoadedModel(
            architecture=first.architecture,
            dtype=first.dtype,
            attention=first.attention,
            device="cpu" if devices is None else "cuda",
            params=first.params,
            stored_weight_bytes=first.weight_bytes if whole else None,
            random_weights=False,
        ),
        backend="gloo" if devices is None else "nccl",
        input_tokens=config.input_tokens,
        points=tuple(points),
        threads=threads,
        versions=first.versions,
    )


def _shape(model: ResolvedModel) -> tuple[tuple[int, int], int]:
    """((heads, K/V heads), vocabulary) of the config."""
    text = hf_loading.read_config(model).get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    vocab = getattr(text, "vocab_size", None)
    if not isinstance(heads, int) or not isinstance(vocab, int):
        message = "the config names no attention heads or no vocabulary"
        raise AgentError(FailureReason.MODEL_UNSUPPORTED, message)
    kv_heads = getattr(text, "num_key_value_heads", None)
    return (heads, kv_heads if isinstance(kv_heads, int) else heads), vocab


def _problem(size: int, heads: tuple[int, int], devices: int | None) -> str | None:
    if devices is not None and size > devices:
        return f"this host has {devices} GPU{'s' if devices != 1 else ''}"
    if any(count % size for count in heads):
        return (
            f"{size} does not divide the {heads[0]} attention heads and {heads[1]} K/V heads "
            "evenly, which transformers' plan needs"
        )
    return None


def _run_size(
    context: RunContext, job: Job, size: int, folder: Path
) -> tuple[Measured | None, str | None]:
    """What the processes of one size measured, or why they did not."""
    path = folder / f"job-{size}.json"
    path.write_text(job.model_dump_json())
    logs = [folder / f"log-{size}-{rank}.txt" for rank in range(size)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                **_LOOPBACK,
            }
            with log.open("wb") as sink:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "gpuagent.lab.tensor_parallel", str(path)],
                        env=environment,
                        stdout=sink,
                        stderr=subprocess.STDOUT,
                    )
                )
        failed = _wait(context, started)
    finally:
        _stop(started)
    if failed is None:
        return Measured.model_validate_json(Path(job.result).read_text()), None
    if started[failed].returncode == OUT_OF_MEMORY_EXIT:
        return None, f"process {failed + 1} of {size} ran out of memory"
    return None, _last_line(logs[failed]) or f"exit code {started[failed].returncode}"


def _wait(context: RunContext, processes: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Until all have ended, or one has failed: its rank. Raises when the trial is to stop."""
    while True:
        context.tick()
        codes = [process.poll() for process in processes]
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None or all(code == 0 for code in codes):
            return failed
        time.sleep(_POLL_S)


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    deadline = time.monotonic() + _STOP_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_line(log: Path) -> str:
    """The error of a process: its last line that is no warning."""
    lines = [line.strip() for line in log.read_text(errors="replace")[-_LOG_CHARS:].splitlines()]
    return next((line for line in reversed(lines) if line and "Warning" not in line), "")[:300]


def _point(
    size: int, measured: Measured | None, reason: str | None, first: Measured | None
) -> TensorParallelPoint:
    if measured is None or first is None:
        return TensorParallelPoint(
            size=size,
            prefill_s=Samples(values=()),
            decode_step_s=Samples(values=()),
            weight_bytes=_NOTHING,
            peak_memory_bytes=_NOTHING,
            reason=reason,
        )
    peak = measured.peak_bytes
    return TensorParallelPoint(
        size=size,
        prefill_s=Samples(values=tuple(measured.prefill_s)),
        decode_step_s=Samples(values=tuple(measured.step_s)),
        weight_bytes=Quantity(value=float(measured.weight_bytes)),
        peak_memory_bytes=Quantity(reason="the processor's allocator keeps no peak of its own")
        if peak is None
        else Quantity(value=float(peak)),
        same_tokens=sum(a == b for a, b in zip(measured.answer, first.answer, strict=True)),
        answer_tokens=len(measured.answer),
    )


def _repeat_ratios(points: Sequence[TensorParallelPoint], steps: int) -> list[float]:
    """Typical step of each repeat over that of all repeats, averaged over the sizes."""
    per_size = []
    for point in points:
        values = point.decode_step_s.values
        if not values:
            continue
        typical = median(values)
        rounds = [median(values[i : i + steps]) for i in range(0, len(values), steps)]
        per_size.append([value / typical for value in rounds])
    return [sum(column) / len(column) for column in zip(*per_size, strict=True)]
