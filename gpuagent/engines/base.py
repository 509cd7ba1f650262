"""What an experiment may ask of an engine. Experiments import this module and no concrete engine.

One engine object holds one loaded model with one group of settings. Every call that computes
returns only after the device has finished, so that a clock around the call measures the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from gpuagent.errors import AgentError
from gpuagent.models import ResolvedModel
from gpuagent.server_metrics import ServerMetrics as ServerMetrics
from gpuagent.wire import EngineSettings
from gpuagent.wire.serving import EngineFacts
from gpuagent.wire.trial import LoadedModel

Tick = Callable[[], None]
"""Called between steps; raises CancelledByServer when the trial is to stop."""

MemoryKind = Literal["cuda_reserved", "process_rss"]
ServerMemoryKind = Literal["server_rss", "server_device", "unknown"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the engine can be asked for.

    kv_cache_toggle: decode with and without the cache. perplexity: log likelihoods of a text.
    """

    kv_cache_toggle: bool
    perplexity: bool


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was loaded and how long it took. import_s is 0 for a second load in one process."""

    model: LoadedModel
    import_s: float
    load_s: float
    vocab_size: int
    max_context: int | None
    has_tokenizer: bool
    threads: int | None = None
    weights_reason: str | None = None


class Batch(Protocol):
    """Sequences that are being decoded together. Opaque but for its size.

    length: tokens of each sequence so far, the prompt and every generated one.
    """

    @property
    def size(self) -> int: ...

    @property
    def length(self) -> int: ...


class Engine(Protocol):
    """A model that can be run step by step. All errors are AgentError or CancelledByServer."""

    name: str
    capabilities: Capabilities
    memory_kind: MemoryKind

    def load(
        self, model: ResolvedModel, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> LoadReport:
        """Load once. Refuses with a reason rather than measuring something else."""
        ...

    def encode(self, text: str) -> list[int] | None:
        """Token ids without special tokens, or None where there is no tokenizer."""
        ...

    def prefill(self, prompts: Sequence[Sequence[int]], *, use_cache: bool) -> Batch:
        """Run prompts of one common length up to their first output token."""
        ...

    def step(self, batch: Batch) -> None:
        """One more token for every sequence; without a cache everything is computed again."""
        ...

    def cache_bytes(self, batch: Batch) -> int:
        """Bytes of the batch's cache tensors over all layers, as allocated; 0 without a cache."""
        ...

    def release(self, batch: Batch) -> None:
        """Drop the batch's cache. The batch is not usable afterwards."""
        ...

    def layer_ranges(
        self, mark: Callable[[str], AbstractContextManager[Any]]
    ) -> AbstractContextManager[None]:
        """While the context is open, each layer of the model runs inside `mark("layer_N")`."""
        ...

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float:
        """Sum over tokens[1:] of -ln p(token | all before it), in nats, computed in float32."""
        ...

    def memory_bytes(self) -> int | None:
        """Held now, by `memory_kind`'s counter; freed blocks are returned first."""
        ...

    def reset_peak_memory(self) -> None: ...

    def peak_memory_bytes(self) -> int | None:
        """Highest since the last reset, or None where the platform has no counter."""
        ...

    def read_bandwidth_bytes_s(self, tick: Tick) -> float:
        """Best of a few large sequential reads on the device, bytes per second."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of what computes, for the provenance of the result."""
        ...

    def close(self) -> None:
        """Drop the model and give its memory back."""
        ...


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A server that answered a real completion.

    command: as started, without keys; () for a server that somebody else runs. ready_s: from the
    start of the process to that answer; None where nothing was started. first_request_s: that
    answer alone.
    """

    model: LoadedModel
    facts: EngineFacts
    version: str | None
    command: tuple[str, ...]
    ready_s: float | None
    first_request_s: float
    max_context: int | None
    threads: int | None = None


class ServingEngine(Protocol):
    """A server with the OpenAI API. All errors are AgentError or CancelledByServer.

    url: where it listens. key: goes into one header and is never shown. served_name: what it calls
    the model. token_prompts: whether a prompt may be given as token ids. ignores_eos: whether it
    can be told to generate all tokens.
    """

    name: str
    url: str
    key: str | None
    served_name: str
    token_prompts: bool
    ignores_eos: bool
    memory_kind: ServerMemoryKind

    def start(
        self, model: ResolvedModel | None, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> ServerReport:
        """Start it, and return once a real completion has been answered."""
        ...

    def encode(self, text: str) -> list[int] | None:
        """Token ids without special tokens, or None where there is no tokenizer."""
        ...

    def decode(self, tokens: Sequence[int]) -> str | None: ...

    def failure(self) -> AgentError | None:
        """Why the server is gone; None while it runs."""
        ...

    def metrics(self) -> ServerMetrics | None:
        """The server's own counters now, or None where it does not answer or has none."""
        ...

    def memory_bytes(self) -> int | None:
        """Held by the server now, by `memory_kind`'s counter."""
        ...

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float | None:
        """As `Engine`'s; None where the server cannot score a text."""
        ...

    def versions(self) -> dict[str, str]: ...

    def close(self) -> None:
        """Stop what was started here; nothing of it is left afterwards."""
        ...


@runtime_checkable
class InProcessEngine(Engine, Protocol):
    """An engine whose model is a torch module in this process, open to experiments on its parts.

    module: the model in eval mode without gradients. device: where it is. cache_argument: name of
    the cache in the module's forward() and output.
    """

    @property
    def module(self) -> Any: ...

    @property
    def device(self) -> Any: ...

    @property
    def cache_argument(self) -> str: ...

    def replace_module(self, module: Any) -> None:
        """Run `module`, the same architecture in another format, from now on."""
        ...

    def tokens(self, batch: Batch) -> list[list[int]]:
        """All tokens of every sequence so far."""
        ...
