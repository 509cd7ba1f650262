"""Who watches a sequence of steps: torch.profiler, or marks for a profiler outside.

Both set the same ranges (step, prefill, decode, layer), so that either trace splits into phases.
Imports torch, so import it late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch


class Recorder(Protocol):
    """Use as a context around the steps; `step` after each, `mark` around its parts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...

    def step(self) -> None: ...

    def mark(self, name: str) -> AbstractContextManager[Any]: ...


class TorchRecorder:
    """torch.profiler with a schedule: `warmup` steps thrown away, `active` ones kept.

    Writes gzip'd Chrome JSON to `target`. Shapes are recorded; stacks and memory are not, since
    they slow the host and would be read as its fault.
    """

    def __init__(self, target: Path, *, warmup: int, active: int) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=warmup, active=active, repeat=1),
            on_trace_ready=lambda profile: profile.export_chrome_trace(str(target)),
            record_shapes=True,
            with_stack=False,
            profile_memory=False,
        )

    def __enter__(self) -> Self:
        self._profile.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._profile.__exit__(kind, error, trace)

    def step(self) -> None:
        self._profile.step()

    def mark(self, name: str) -> AbstractContextManager[Any]:
        return torch.profiler.record_function(name)


class MarkRecorder:
    """NVTX ranges and the CUDA profiler's start and stop, for `nsys --capture-range`.

    The capture begins after `warmup` steps. Without CUDA nothing can be marked, and nothing is.
    """

    def __init__(self, *, warmup: int) -> None:
        self._warmup = warmup
        self._steps = 0
        self._cuda = torch.cuda.is_available()
        self._open = False

    def __enter__(self) -> Self:
        self._begin_step()
        return self

    def __exit__(self, *error: Any) -> None:
        self._end_step()
        if self._cuda and self._steps >= self._warmup:
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()

    def step(self) -> None:
        self._end_step()
        self._steps += 1
        self._begin_step()

    @contextlib.contextmanager
    def mark(self, name: str) -> Iterator[None]:
        if not self._cuda:
            yield
            return
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()

    def _begin_step(self) -> None:
        if not self._cuda:
            return
        if self._steps == self._warmup:
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
        torch.cuda.nvtx.range_push(f"ProfilerStep#{self._steps}")
        self._open = True

    def _end_step(self) -> None:
        if self._open:
            torch.cuda.nvtx.range_pop()
            self._open = False


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """The same place in the code without a recorder."""
    yield
