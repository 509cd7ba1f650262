"""Implementations of the KV cache, reuse of a prefix, and whether memory comes back."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gpuagent.engines.base import InProcessEngine, Tick
from gpuagent.experiments.quality import Score
from gpuagent.lab.clock import synchronise
from gpuagent.lab.kernels import FAILURES
from gpuagent.wire import Quantity, Samples
from gpuagent.wire.inside import CacheDetails, CacheDtype, CacheForm, PrefixReuse
from gpuagent.wire.loaded import Perplexity

Quality = Callable[[Score], tuple[Perplexity | None, str | None]]
"""A perplexity with the given score of a window, or why there is none."""

# Rounds of prefill and release; a leak of one cache a round shows clearly after these.
ROUNDS = 8
_SHARED_FRAC = 0.75
# Stored types of the sweep; the model's own is left out, since that is the first form, "dynamic".
DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn")
# Tokens of a text that go through the model at once while a cache is judged: all before them are
# read back from the cache, as a chunked prefill does it.
QUALITY_CHUNK = 64


def measure(
    engine: InProcessEngine,
    prompt: Sequence[int],
    *,
    steps: int,
    repeats: int,
    tick: Tick,
    quality: Quality,
) -> CacheDetails:
    """At the length of `prompt`, which grows by `steps` in each of `repeats` + 1 rounds.

    The first round warms up. What does not run carries its reason.
    """
    module = engine.module
    bench = _Bench(engine, prompt, steps, repeats, tick, quality)
    limit = len(prompt) + steps * (repeats + 1)
    makers: tuple[tuple[Any, Callable[[], Any]], ...] = (
        ("dynamic", lambda: _dynamic(module)),
        ("static", lambda: _static(module, limit)),
        ("quantised", lambda: _quantised(module)),
    )
    with torch.inference_mode():
        forms = tuple(bench.form(form, make) for form, make in makers)
        own = str(module.dtype).removeprefix("torch.")
        dtypes = tuple(bench.dtype(name) for name in DTYPES if name != own)
        prefix = bench.prefix() if len(prompt) >= 4 else None
    held, reason = _held(engine, prompt, tick)
    return CacheDetails(
        context_tokens=len(prompt),
        forms=forms,
        prefix=prefix,
        held_bytes=Samples(values=held),
        held_reason=reason,
        dtypes=dtypes,
    )


def _dynamic(module: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=module.config)


def _static(module: Any, limit: int) -> Any:
    from transformers import StaticCache

    return StaticCache(config=module.config, max_cache_len=limit)


def _quantised(module: Any) -> Any:
    from transformers import QuantizedCache

    return QuantizedCache("quanto", config=module.config)


def cast(module: Any, dtype: torch.dtype) -> Any:
    """A growing cache that stores `dtype`. Raises ValueError for layers that do not simply grow."""
    from transformers.cache_utils import DynamicLayer

    class CastLayer(DynamicLayer):  # type: ignore[misc]
        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            keys, values = super().update(
                key_states.to(dtype), value_states.to(dtype), *args, **kwargs
            )
            return keys.to(key_states.dtype), values.to(value_states.dtype)

    cache = _dynamic(module)
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        raise ValueError("some layers keep a window or a state, not a growing cache")
    cache.layers = [CastLayer() for _ in cache.layers]
    return cache


class _Bench:
    def __init__(
        self,
        engine: InProcessEngine,
        prompt: Sequence[int],
        steps: int,
        repeats: int,
        tick: Tick,
        quality: Quality,
    ) -> None:
        self._module, self._name, self._device = engine.module, engine.cache_argument, engine.device
        self._quality = quality
        self._ids = torch.tensor([list(prompt)], device=engine.device)  # [1, S]
        self._steps, self._repeats, self._tick = steps, repeats, tick

    def form(self, form: Any, make: Callable[[], Any]) -> CacheForm:
        seconds, size, reason = self._steps_of(make)
        value: Perplexity | None = None
        missing: str | None = "it holds the same numbers as the growing cache"
        if reason is not None:
            missing = "it did not run"
        elif form != "static":
            value, missing = self._perplexity(make)
        return CacheForm(
            form=form,
            seconds=seconds,
            cache_bytes=size,
            reason=reason,
            perplexity=value,
            perplexity_reason=missing,
        )

    def dtype(self, name: str) -> CacheDtype:
        stored: torch.dtype = getattr(torch, name)
        seconds, size, reason = self._steps_of(lambda: cast(self._module, stored))
        value: Perplexity | None = None
        missing: str | None = "it did not run"
        if reason is None:
            value, missing = self._perplexity(lambda: cast(self._module, stored))
        return CacheDtype(
            dtype=name,
            seconds=seconds,
            cache_bytes=size,
            reason=reason,
            perplexity=value,
            perplexity_reason=missing,
        )

    def _perplexity(self, make: Callable[[], Any]) -> tuple[Perplexity | None, str | None]:
        try:
            return self._quality(lambda window: self.negative_log_likelihood(window, make()))
        except FAILURES as error:
            return None, _first_line(error)

    def negative_log_likelihood(self, window: Sequence[int], cache: Any) -> float:
        """Of all tokens of `window` but the first, QUALITY_CHUNK at a time through `cache`."""
        ids = torch.tensor([list(window)], device=self._device)  # [1, S]
        total = 0.0
        # The last token is only predicted.
        for start in range(0, ids.shape[1] - 1, QUALITY_CHUNK):
            self._tick()
            stop = min(start + QUALITY_CHUNK, ids.shape[1] - 1)
            output = self._module(
                **{"input_ids": ids[:, start:stop], self._name: cache, "use_cache": True}
            )
            total += float(
                torch.nn.functional.cross_entropy(
                    output.logits[0].float(), ids[0, start + 1 : stop + 1], reduction="sum"
                )
            )
        return total

    def _steps_of(self, make: Callable[[], Any]) -> tuple[Samples, Quantity, str | None]:
        """Decode steps after one prefill of a cache of `make`, its bytes, or why it did not run."""
        seconds: list[float] = []
        try:
            self._tick()
            cache = make()
            self._run(self._ids, cache)
            for _ in range(self._repeats + 1):
                self._tick()
                seconds += [self._run(self._ids[:, -1:], cache) for _ in range(self._steps)]
            size = _bytes(cache)
        except FAILURES as error:
            return Samples(values=()), Quantity(reason="it did not run"), _first_line(error)
        # The first round warms up.
        return Samples(values=tuple(seconds[self._steps :])), Quantity(value=float(size)), None

    def prefix(self) -> PrefixReuse:
        shared = max(1, int(self._ids.shape[1] * _SHARED_FRAC))
        kept = _dynamic(self._module)
        self._run(self._ids[:, :shared], kept)
        full, reused = [], []
        for repeat in range(self._repeats + 1):
            self._tick()
            whole = self._run(self._ids, _dynamic(self._module))
            # An engine with paged blocks shares them; the copy is not part of the time.
            part = self._run(self._ids[:, shared:], copy.deepcopy(kept))
            if repeat:
                full.append(whole)
                reused.append(part)
        return PrefixReuse(
            context_tokens=int(self._ids.shape[1]),
            shared_tokens=shared,
            full_s=Samples(values=tuple(full)),
            reused_s=Samples(values=tuple(reused)),
        )

    def _run(self, ids: torch.Tensor, cache: Any) -> float:
        synchronise(self._device)
        began = time.perf_counter()
        self._module(**{"input_ids": ids, self._name: cache, "use_cache": True})
        synchronise(self._device)
        return time.perf_counter() - began


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def _held(
    engine: InProcessEngine, prompt: Sequence[int], tick: Tick
) -> tuple[tuple[float, ...], str | None]:
    """Memory above the level after one warm round, after each of ROUNDS; or why not."""
    levels: list[float] = []
    for _ in range(ROUNDS + 1):
        tick()
        batch = engine.prefill([prompt], use_cache=True)
        engine.release(batch)
        level = engine.memory_bytes()
        if level is None:
            return (), "this platform reports no memory counter"
        levels.append(float(level))
    return tuple(level - levels[0] for level in levels[1:]), None


def _bytes(cache: Any) -> int:
    """Keys and values of all layers as allocated."""
    tensors = (t for layer in cache.layers for t in vars(layer).values())
    return sum(_allocated(t) for t in tensors if isinstance(t, torch.Tensor))


def _allocated(tensor: torch.Tensor) -> int:
    """Bytes of a tensor. A quantised one claims the dtype it stands for, and holds packed parts."""
    parts = getattr(tensor, "__tensor_flatten__", None)
    if parts is None or type(tensor) is torch.Tensor:
        return tensor.numel() * tensor.element_size()
    return sum(_allocated(getattr(tensor, name)) for name in parts()[0])
