"""One process of a model that is split by transformers' tensor-parallel plan.

`python -m gpuagent.lab.tensor_parallel JOB.json` with RANK, LOCAL_RANK and WORLD_SIZE set; the
first process writes what it measured. Plain subprocesses instead of torchrun, whose workers leave
the session of their parent and would outlive a trial that is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

OUT_OF_MEMORY_EXIT = 86


class Job(BaseModel):
    """What every process of one size reads. folder: of the model. prompt: token ids, [S].

    rendezvous: a file that does not exist yet, by which the processes find each other. result:
    where the first one writes a `Measured`.
    """

    folder: str
    dtype: str
    attention: str
    prompt: list[int]
    decode_steps: int
    repeats: int
    threads: int
    rendezvous: str
    result: str


class Measured(BaseModel):
    """Seconds of each prefill and step, the greedy answer, bytes of the fullest process.

    peak_bytes: None on a processor, which keeps no peak of its own.
    """

    prefill_s: list[float]
    step_s: list[float]
    answer: list[int]
    params: int
    weight_bytes: int
    peak_bytes: int | None
    architecture: str
    dtype: str
    attention: str
    versions: dict[str, str]


def main(path: str) -> int:
    """Exit code 0, or OUT_OF_MEMORY_EXIT."""
    import torch

    job = Job.model_validate_json(Path(path).read_text())
    try:
        measured = _measure(job)
    except torch.OutOfMemoryError as error:
        print(error, file=sys.stderr)  # noqa: T201  the parent reads it
        return OUT_OF_MEMORY_EXIT
    if measured is not None:
        Path(job.result).write_text(json.dumps(measured.model_dump()))
    return 0


def _measure(job: Job) -> Measured | None:
    """What this process saw; None in all but the first."""
    import torch
    import torch.distributed as dist
    import transformers

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.set_num_threads(job.threads)
    if size > 1:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"file://{job.rendezvous}",
            rank=rank,
            world_size=size,
        )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = _load(job, device, split=size > 1)
    module: Any = model.eval()
    ids = torch.tensor([job.prompt], device=device)  # [1, S]
    prefills: list[float] = []
    steps: list[float] = []
    answer: list[int] = []
    with torch.inference_mode():
        for repeat in range(job.repeats + 1):
            cache = transformers.DynamicCache(config=module.config)
            seconds, logits = _timed(module, ids, cache, device)
            taken, answer = [], []
            for _ in range(job.decode_steps):
                token = logits[:, -1:].argmax(-1)  # [1, 1]
                answer.append(int(token))
                step_s, logits = _timed(module, token, cache, device)
                taken.append(step_s)
            # The first round warms up.
            if repeat:
                prefills.append(seconds)
                steps += taken
    own = _held(module, device)
    everyone: list[Any] = [own]
    if size > 1:
        everyone = [None] * size
        dist.all_gather_object(everyone, own)
        dist.barrier()
        dist.destroy_process_group()
    if rank:
        return None
    peaks = [peak for _, _, peak in everyone]
    return Measured(
        prefill_s=prefills,
        step_s=steps,
        answer=answer,
        params=own[0],
        weight_bytes=max(held for _, held, _ in everyone),
        peak_bytes=None if None in peaks else max(peaks),
        architecture=type(module).__name__,
        dtype=str(module.dtype).removeprefix("torch."),
        attention=str(getattr(module.config, "_attn_implementation", None) or "unknown"),
        versions=_versions(),
    )


def _load(job: Job, device: Any, *, split: bool) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    arguments: dict[str, Any] = {
        "dtype": job.dtype if job.dtype == "auto" else getattr(torch, job.dtype),
        "trust_remote_code": False,
        "local_files_only": True,
        "use_safetensors": True,
    }
    if job.attention != "auto":
        arguments["attn_implementation"] = job.attention
    if split and "tp_plan" in getattr(DistributedConfig, "__dataclass_fields__", {}):
        arguments["distributed_config"] = DistributedConfig(tp_plan="auto")
    elif split:
        # transformers before 5.17 or so
        arguments["tp_plan"] = "auto"
    elif device.type == "cuda":
        arguments["device_map"] = {"": device.index}
    return AutoModelForCausalLM.from_pretrained(job.folder, **arguments)


def _timed(module: Any, ids: Any, cache: Any, device: Any) -> tuple[float, Any]:
    """Seconds of one forward pass, and its logits [1, S, V]."""
    from gpuagent.lab.clock import synchronise

    synchronise(device)
    began = time.perf_counter()
    logits = module(input_ids=ids, past_key_values=cache, use_cache=True).logits
    synchronise(device)
    return time.perf_counter() - began, logits


def _held(module: Any, device: Any) -> tuple[int, int, int | None]:
    """(parameters of the whole model, bytes of this process's part, its peak of memory)."""
    import torch

    params, held = 0, 0
    for parameter in {id(p): p for p in module.parameters()}.values():
        params += parameter.numel()
        local = getattr(parameter, "to_local", None)
        part = local() if local is not None else parameter
        held += part.numel() * part.element_size()
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return params, held, peak


def _versions() -> dict[str, str]:
    import torch
    import transformers

    found = {"torch": torch.__version__, "transformers": transformers.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
