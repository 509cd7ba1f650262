"""Rough time estimates of trials, from shape and device alone. Pure.

Good to a factor of two or so, and labelled "about" wherever they are shown; after the first trial
of a study the planner goes by measured times instead. Sources: transformers 5 eager decode of
SmolLM2-135M on two server cores (fp32 and bf16) and of 0.1-8 B models on data-centre GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.evidence import DeviceFacts
from advisor.measures import DTYPE_BYTES, resolved_dtype
from advisor.shapes import ModelShape
from gpuagent.wire import EngineSettings, Workload
from gpuagent.wire.trial import BaselineConfig, KvCacheConfig, ProfileConfig, VerifyConfig

DEFAULT_PARAMS = 1_000_000_000
DEFAULT_LAYERS = 24
START_S = 12.0
UNCACHED_STEPS = 2
UNCACHED_MAX_S = 30.0
# Of a kv_cache trial: forms and dtypes of the cache that run without further packages,
# generations of its check for leaks, and prefills of one prompt with and without a cached prefix.
_CACHE_FORMS = 5
_CACHE_ROUNDS = 9
_PREFIX_PREFILLS = 1.25


@dataclass(frozen=True, slots=True)
class Speed:
    """What one device does for one dtype: sustained, not peak."""

    bandwidth_bytes_s: float
    flops_s: float
    layer_overhead_s: float
    load_bytes_s: float


def speed_of(device: DeviceFacts, dtype: str) -> Speed:
    if device.kind == "gpu":
        return Speed(1.0e12, 2e13 if dtype == "float32" else 1.5e14, 0.8e-3, 1e9)
    # 16-bit weights are converted on the fly by processors without matrix instructions for them;
    # between those and the others (2.5 and 7 GB/s, 135 M parameters on two cores).
    if dtype == "float32":
        return Speed(9e9, 1.1e11, 0.25e-3, 4e8)
    return Speed(4.5e9, 8e10, 0.25e-3, 4e8)


@dataclass(frozen=True, slots=True)
class Timing:
    """Estimates for one configuration on one device."""

    shape: ModelShape | None
    device: DeviceFacts
    settings: EngineSettings

    @property
    def dtype(self) -> str:
        return resolved_dtype(self.settings, self.shape)

    @property
    def speed(self) -> Speed:
        return speed_of(self.device, self.dtype)

    @property
    def weight_bytes(self) -> int:
        if self.shape is None:
            return DEFAULT_PARAMS * DTYPE_BYTES[self.dtype]
        return self.shape.weight_bytes(self.dtype)

    @property
    def params_active(self) -> int:
        return self.shape.params_active if self.shape is not None else DEFAULT_PARAMS

    @property
    def load_s(self) -> float:
        return START_S + self.weight_bytes / self.speed.load_bytes_s

    def _pass_s(self) -> float:
        """Reading the weights once, and launching every layer."""
        layers = self.shape.layers if self.shape is not None else DEFAULT_LAYERS
        read = self.params_active * DTYPE_BYTES[self.dtype] / self.speed.bandwidth_bytes_s
        return float(read + layers * self.speed.layer_overhead_s)

    def prefill_s(self, tokens: float) -> float:
        """One forward over `tokens` tokens (batch times length)."""
        return self._pass_s() + 2.0 * self.params_active * tokens / self.speed.flops_s

    def step_s(self, context: float, *, kv_cache: bool | None = None) -> float:
        """One decode step at batch 1; without the cache it is a prefill of the context."""
        cached = self.settings.kv_cache if kv_cache is None else kv_cache
        return self._pass_s() if cached else self.prefill_s(context)

    def request_s(self, workload: Workload) -> float:
        prompt, answer = workload.input_tokens.mean, workload.output_tokens.mean
        return self.prefill_s(prompt) + answer * self.step_s(prompt + answer / 2)

    def requests_s(self, workload: Workload) -> float:
        serial = workload.requests * self.request_s(workload)
        if workload.request_rate_per_s is None:
            return serial
        return max(workload.requests / workload.request_rate_per_s, self.request_s(workload))

    def baseline_s(self, config: BaselineConfig, workload: Workload) -> float:
        return (
            self.load_s
            + self.grid_s(config)
            + self.requests_s(workload)
            + self.prefill_s(config.perplexity_tokens)
        )

    def grid_s(self, config: BaselineConfig) -> float:
        total = 0.0
        for batch in config.batch_sizes:
            for tokens in config.input_tokens:
                steps = config.decode_steps * self.step_s(tokens) * (1 + 0.1 * (batch - 1))
                # One warm-up pass beside the repeats.
                total += (config.repeats + 1) * (self.prefill_s(batch * tokens) + steps)
        return total

    def kv_cache_s(self, config: KvCacheConfig) -> float:
        """Few uncached steps a repeat, and at most half a minute of them per context; then forms.

        Forms and dtypes of the cache run at the longest context, and so does the reuse of a prefix.
        The text is read once for each form but the static one.
        """
        longest = max(config.context_tokens)
        rounds = config.repeats + 1
        steps_s = rounds * config.decode_steps * self.step_s(longest, kv_cache=True)
        total = self.load_s + self.prefill_s(longest) * (_CACHE_ROUNDS + _PREFIX_PREFILLS * rounds)
        total += _CACHE_FORMS * (self.prefill_s(longest) + steps_s)
        total += (_CACHE_FORMS - 1) * self.prefill_s(config.perplexity_tokens)
        for tokens in config.context_tokens:
            cached = (config.repeats + 1) * (
                self.prefill_s(tokens) + config.decode_steps * self.step_s(tokens, kv_cache=True)
            )
            uncached = config.repeats * UNCACHED_STEPS * self.step_s(tokens, kv_cache=False)
            total += cached + min(uncached, UNCACHED_MAX_S)
        return total

    def profile_s(self, config: ProfileConfig) -> float:
        """Every step plain `repeats` times and once under a profiler that may triple it.

        On a GPU a second load under nsys is counted too; it is left out where nsys is missing.
        """
        steps = config.decode_steps * self.step_s(config.input_tokens) * config.batch
        once_s = config.prefill_steps * (self.prefill_s(config.batch * config.input_tokens) + steps)
        loads = 3 if self.device.kind == "gpu" else 1
        return loads * self.load_s + (config.repeats + 3) * once_s + 10.0


def verify_s(a: Timing, b: Timing, config: VerifyConfig, workload: Workload) -> float:
    """Both models loaded, then pairs of runs; one warm-up request a side."""
    runs = config.pairs * config.requests_per_run + 1
    requests = runs * (a.request_s(workload) + b.request_s(workload))
    quality = a.prefill_s(config.perplexity_tokens) + b.prefill_s(config.perplexity_tokens)
    return a.load_s + b.load_s + requests + quality


def about(seconds: float) -> str:
    """ "about 4 min": estimates are not given to the second."""
    unit: Literal["s", "min", "h"]
    if seconds < 90:
        value, unit = max(10.0, round(seconds / 10) * 10.0), "s"
    elif seconds < 5400:
        value, unit = float(round(seconds / 60)), "min"
    else:
        value, unit = round(seconds / 3600, 1), "h"
    return f"about {value:g}\u00a0{unit}"
