"""A clock that moves only when told to, and an engine that takes as long as it is told to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuagent.engines.base import Batch, Capabilities, LoadReport, MemoryKind, Tick
from gpuagent.experiments.base import Facts, LoadedEngine, RunContext
from gpuagent.models import ResolvedModel
from gpuagent.telemetry.energy import EnergyMeter, NoEnergy
from gpuagent.text import Passage
from gpuagent.wire import ConfigModel, EngineSettings, LengthSpec, TrialSpec, Workload
from gpuagent.wire.trial import BaselineConfig, LoadedModel

TRIAL_ID = "00000000-0000-4000-8000-000000000001"
TINY_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "dtype": "float32",
}


def tiny_spec(**changes: Any) -> TrialSpec:
    """A baseline of a two-layer Llama with random weights; `changes` replace fields."""
    fields: dict[str, Any] = {
        "trial_id": TRIAL_ID,
        "model": ConfigModel(name="tiny", config=TINY_CONFIG),
        "settings": EngineSettings(threads=1),
        "workload": Workload(
            preset="chat",
            input_tokens=LengthSpec(mean=12),
            output_tokens=LengthSpec(mean=5),
            requests=8,
        ),
        "config": BaselineConfig(batch_sizes=(1, 2), input_tokens=(8, 16), decode_steps=4),
        "timeout_s": 120,
    }
    return TrialSpec(**{**fields, **changes})


class FakeClock:
    """Monotonic seconds that pass only in `advance` and `sleep_until`."""

    def __init__(self, start: float = 100.0) -> None:
        self.time = start

    def now(self) -> float:
        return self.time

    def sleep_until(self, at: float) -> None:
        self.time = max(self.time, at)

    def advance(self, seconds: float) -> None:
        self.time += seconds


@dataclass(slots=True)
class FakeBatch:
    size: int
    length: int
    cached: bool


class FakeEngine:
    """Takes `prefill_s_per_token` and `step_s`; without a cache a step costs the whole context."""

    name = "fake"
    capabilities = Capabilities(kv_cache_toggle=True, perplexity=True)
    memory_kind: MemoryKind = "process_rss"

    def __init__(
        self,
        clock: FakeClock,
        *,
        prefill_s_per_token: float = 0.001,
        step_s: float = 0.01,
        nll_per_token: float = 2.0,
        tokenizer: bool = True,
        jitter: Callable[[], float] | None = None,
        bytes_per_token: int = 1000,
    ) -> None:
        self.clock = clock
        self.prefill_s_per_token = prefill_s_per_token
        self.step_s = step_s
        self.nll_per_token = nll_per_token
        self.tokenizer = tokenizer
        self.jitter = jitter or (lambda: 1.0)
        self.bytes_per_token = bytes_per_token
        self.held_bytes = 1_000_000
        self.peak = 1_000_000
        self.closed = False
        self.prompts: list[tuple[int, ...]] = []

    def load(
        self, model: ResolvedModel, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> LoadReport:
        return fake_report()

    def encode(self, text: str) -> list[int] | None:
        return [ord(letter) % 256 for letter in text] if self.tokenizer else None

    def prefill(self, prompts: Sequence[Sequence[int]], *, use_cache: bool) -> Batch:
        self.prompts.extend(tuple(prompt) for prompt in prompts)
        length = len(prompts[0])
        self.clock.advance(self.prefill_s_per_token * length * len(prompts) * self.jitter())
        if use_cache:
            self.held_bytes += self.bytes_per_token * length * len(prompts)
            self.peak = max(self.peak, self.held_bytes)
        return FakeBatch(len(prompts), length + 1, use_cache)

    def step(self, batch: Batch) -> None:
        own = _own(batch)
        cost = self.step_s if own.cached else self.prefill_s_per_token * own.length
        self.clock.advance(cost * self.jitter())
        own.length += 1

    def cache_bytes(self, batch: Batch) -> int:
        own = _own(batch)
        return self.bytes_per_token * (own.length - 1) * own.size if own.cached else 0

    def release(self, batch: Batch) -> None:
        self.held_bytes = 1_000_000

    def layer_ranges(
        self, mark: Callable[[str], AbstractContextManager[Any]]
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float:
        return self.nll_per_token * (len(tokens) - 1)

    def memory_bytes(self) -> int | None:
        return self.held_bytes

    def reset_peak_memory(self) -> None:
        self.peak = self.held_bytes

    def peak_memory_bytes(self) -> int | None:
        return self.peak

    def read_bandwidth_bytes_s(self, tick: Tick) -> float:
        tick()
        return 20e9

    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def close(self) -> None:
        self.closed = True


def _own(batch: Batch) -> FakeBatch:
    assert isinstance(batch, FakeBatch)
    return batch


def fake_report(*, random_weights: bool = False, max_context: int | None = 512) -> LoadReport:
    return LoadReport(
        model=LoadedModel(
            architecture="FakeForCausalLM",
            dtype="float32",
            attention="sdpa",
            device="cpu",
            params=1000,
            stored_weight_bytes=4000,
            random_weights=random_weights,
        ),
        import_s=1.0,
        load_s=2.0,
        vocab_size=256,
        max_context=max_context,
        has_tokenizer=True,
    )


def fake_context(
    spec: TrialSpec,
    *,
    clock: FakeClock,
    engine: FakeEngine | None = None,
    engines: dict[str, FakeEngine] | None = None,
    energy: EnergyMeter | None = None,
    tick: Tick = lambda: None,
    report: LoadReport | None = None,
    events: list[tuple[Any, ...]] | None = None,
) -> RunContext:
    """A context whose engine is `engine`, or the one of `engines` for a dtype."""
    facts = Facts(latest_load=report or fake_report())

    def open_engine(settings: EngineSettings) -> LoadedEngine:
        chosen = engines[settings.dtype] if engines else engine or FakeEngine(clock)
        return LoadedEngine(chosen, report or fake_report())

    def emit(*event: Any, **_: Any) -> None:
        if events is not None:
            events.append(event)

    return RunContext(
        spec=spec,
        open_engine=open_engine,
        emit=emit,
        tick=tick,
        clock=clock,
        energy=energy or NoEnergy("no counter in a test"),
        load_text=lambda path: Passage(name="a test's text", text=" ".join(map(str, range(2000)))),
        begin_measuring=lambda: None,
        deadline=clock.now() + spec.timeout_s,
        facts=facts,
    )


def seeded_jitter(seed: int, spread: float = 0.01) -> Callable[[], float]:
    rng = random.Random(seed)
    return lambda: 1.0 + rng.uniform(-spread, spread)


def write_tiny_folder(folder: Path, **config: Any) -> Path:
    """A folder with a real safetensors checkpoint of the tiny Llama, without a tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {**TINY_CONFIG, **config}
    model_type = fields.pop("model_type")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **fields))
    model.save_pretrained(folder)
    return folder
