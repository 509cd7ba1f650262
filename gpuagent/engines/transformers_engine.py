"""The transformers engine: a Hugging Face model in this process, on CUDA or on the CPU.

Greedy decoding by hand instead of `generate()`: the first token and every later one get their own
time, the cache can be left out, and a cancel is seen between two steps.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

_IMPORT_BEGAN = time.perf_counter()

import torch  # noqa: E402  the time of these imports is part of the cold start
import transformers  # noqa: E402

from gpuagent.engines import hf_loading  # noqa: E402
from gpuagent.engines.bandwidth import read_bandwidth_bytes_s  # noqa: E402
from gpuagent.engines.base import Batch, Capabilities, LoadReport, MemoryKind, Tick  # noqa: E402
from gpuagent.engines.classify import as_agent_error  # noqa: E402
from gpuagent.engines.memory import (  # noqa: E402
    host_peak_bytes,
    host_rss_bytes,
    reset_host_peak,
    return_free_blocks,
)
from gpuagent.errors import AgentError  # noqa: E402
from gpuagent.models import ResolvedModel  # noqa: E402
from gpuagent.wire import EngineSettings, FailureReason  # noqa: E402
from gpuagent.wire.trial import LoadedModel  # noqa: E402

_IMPORT_S = time.perf_counter() - _IMPORT_BEGAN

# Names of the cache in forward() and in its output, newest first: transformers 5.24 renamed
# past_key_values to cache; Mamba-like models of older versions say cache_params.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params")
# The largest slice of logits held in float32 at once while a text is scored.
_SCORE_TOKENS = 256


@dataclass(slots=True)
class TorchBatch:
    """ids: [B, S] of all tokens so far. cache: the model's own object, or None."""

    ids: torch.Tensor
    cache: Any | None

    @property
    def size(self) -> int:
        return int(self.ids.shape[0])

    @property
    def length(self) -> int:
        return int(self.ids.shape[1])


class TransformersEngine:
    """See `gpuagent.engines.base.Engine`."""

    name = "transformers"
    capabilities = Capabilities(kv_cache_toggle=True, perplexity=True)

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self.memory_kind: MemoryKind = (
            "cuda_reserved" if self.device.type == "cuda" else "process_rss"
        )
        self._model: Any = None
        self._tokenizer: Any = None
        self._threads = torch.get_num_threads()
        self._cache_name = _CACHE_NAMES[0]
        self._keeps_logits = False

    # --- loading -------------------------------------------------------------------------------

    def load(
        self, model: ResolvedModel, settings: EngineSettings, *, seed: int, tick: Tick
    ) -> LoadReport:
        began = time.perf_counter()
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._threads = settings.threads or torch.get_num_threads()
        torch.set_num_threads(self._threads)
        loaded = hf_loading.load(model, settings, device=self.device, seed=seed, tick=tick)
        self._model, self._tokenizer = loaded.model, loaded.tokenizer
        parameters = inspect.signature(self._model.forward).parameters
        self._cache_name = next((n for n in _CACHE_NAMES if n in parameters), "past_key_values")
        self._keeps_logits = "logits_to_keep" in parameters
        self._synchronise()
        load_s = time.perf_counter() - began
        return self._report(model, load_s, loaded.weights_reason)

    def _report(self, model: ResolvedModel, load_s: float, reason: str | None) -> LoadReport:
        global _IMPORT_S
        import_s, _IMPORT_S = _IMPORT_S, 0.0
        config = self._model.config
        text_config = config.get_text_config()
        params, stored_bytes = hf_loading.stored_bytes(self._model)
        name = torch.cuda.get_device_name(self.device) if self._on_cuda else "cpu"
        return LoadReport(
            model=LoadedModel(
                architecture=type(self._model).__name__,
                dtype=str(self._model.dtype).removeprefix("torch."),
                attention=str(getattr(config, "_attn_implementation", None) or "none"),
                device=f"cuda:{self.device.index} {name}" if self._on_cuda else name,
                params=params,
                stored_weight_bytes=stored_bytes,
                random_weights=model.random_weights,
            ),
            import_s=import_s,
            load_s=load_s,
            vocab_size=int(self._model.get_input_embeddings().weight.shape[0]),
            max_context=_max_context(text_config),
            has_tokenizer=self._tokenizer is not None,
            threads=self._threads,
            weights_reason=reason,
        )

    @property
    def module(self) -> Any:
        """The loaded model; experiments may replace its parts, since they own this engine."""
        return self._model

    def replace_module(self, module: Any) -> None:
        self._model = module

    @property
    def cache_argument(self) -> str:
        return self._cache_name

    # --- text ----------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int] | None:
        if self._tokenizer is None:
            return None
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [int(token) for token in ids]

    def decode(self, tokens: Sequence[int]) -> str | None:
        """Text of `tokens`, or None where there is no tokenizer."""
        return None if self._tokenizer is None else str(self._tokenizer.decode(list(tokens)))

    # --- steps ---------------------------------------------------------------------------------

    def prefill(self, prompts: Sequence[Sequence[int]], *, use_cache: bool) -> TorchBatch:
        with self._computing("prefill"):
            ids = torch.tensor(prompts, dtype=torch.long, device=self.device)  # [B, S]
            output = self._forward(ids, use_cache=use_cache, cache=None)
            cache = output.get(self._cache_name) if use_cache else None
            if use_cache and cache is None:
                message = "the architecture keeps no cache, so it does not generate text"
                raise AgentError(FailureReason.MODEL_UNSUPPORTED, message)
            return TorchBatch(ids=self._append(ids, output), cache=cache)

    def step(self, batch: Batch) -> None:
        own = _own(batch)
        with self._computing("decode step"):
            if own.cache is None:
                output = self._forward(own.ids, use_cache=False, cache=None)
            else:
                output = self._forward(own.ids[:, -1:], use_cache=True, cache=own.cache)
            own.ids = self._append(own.ids, output)

    def _forward(self, ids: torch.Tensor, *, use_cache: bool, cache: Any | None) -> Any:
        arguments: dict[str, Any] = {"input_ids": ids, "use_cache": use_cache}
        if cache is not None:
            arguments[self._cache_name] = cache
        if self._keeps_logits:
            # Only the last position is needed; [B, S, vocabulary] would dominate a long prefill.
            arguments["logits_to_keep"] = 1
        return self._model(**arguments)

    def _append(self, ids: torch.Tensor, output: Any) -> torch.Tensor:
        newest = output.logits[:, -1].argmax(dim=-1, keepdim=True)  # [B, 1]
        ids = torch.cat((ids, newest), dim=1)
        # A token has arrived when the host has it, as a client would see it.
        newest.tolist()
        return ids

    def cache_bytes(self, batch: Batch) -> int:
        cache = _own(batch).cache
        return 0 if cache is None else _tensor_bytes(cache)

    def release(self, batch: Batch) -> None:
        _own(batch).cache = None

    def tokens(self, batch: Batch) -> list[list[int]]:
        """All tokens of every sequence so far."""
        rows: list[list[int]] = _own(batch).ids.tolist()
        return rows

    @contextmanager
    def layer_ranges(self, mark: Callable[[str], AbstractContextManager[Any]]) -> Iterator[None]:
        """Hooks on the decoder layers: their longest list in the model is taken for them."""
        lists = [m for m in self._model.modules() if isinstance(m, torch.nn.ModuleList)]
        layers = max(lists, key=len, default=())
        with ExitStack() as hooks:
            for index, layer in enumerate(layers):
                _mark_layer(hooks, layer, f"layer_{index}", mark)
            yield

    def negative_log_likelihood(self, tokens: Sequence[int]) -> float:
        with self._computing("scoring the text"):
            ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.device)
            logits = self._model(input_ids=ids, use_cache=False).logits[0, :-1]  # [S - 1, V]
            targets = ids[0, 1:]
            total = 0.0
            for start in range(0, logits.shape[0], _SCORE_TOKENS):
                piece = slice(start, start + _SCORE_TOKENS)
                total += float(
                    torch.nn.functional.cross_entropy(
                        logits[piece].float(), targets[piece], reduction="sum"
                    )
                )
            return total

    # --- memory and device ---------------------------------------------------------------------

    @property
    def _on_cuda(self) -> bool:
        return self.device.type == "cuda"

    def memory_bytes(self) -> int | None:
        return_free_blocks()
        if not self._on_cuda:
            return host_rss_bytes()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_reserved(self.device))

    def reset_peak_memory(self) -> None:
        if self._on_cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            reset_host_peak()

    def peak_memory_bytes(self) -> int | None:
        if self._on_cuda:
            return int(torch.cuda.max_memory_reserved(self.device))
        return host_peak_bytes()

    def read_bandwidth_bytes_s(self, tick: Tick) -> float:
        with self._computing("reading memory"):
            return read_bandwidth_bytes_s(self.device, tick)

    def versions(self) -> dict[str, str]:
        found = {"torch": torch.__version__, "transformers": transformers.__version__}
        if self._on_cuda and torch.version.cuda:
            found["cuda"] = torch.version.cuda
        return found

    def close(self) -> None:
        self._model = None
        self._tokenizer = None
        return_free_blocks()
        if self._on_cuda:
            torch.cuda.empty_cache()

    def _synchronise(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize(self.device)

    @contextmanager
    def _computing(self, doing: str) -> Iterator[None]:
        """No autograd, own thread count, device idle at both ends, errors with a reason."""
        if torch.get_num_threads() != self._threads:
            # The thread count belongs to the process; two engines may want different ones.
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                self._synchronise()
                yield
                self._synchronise()
        except (RuntimeError, ValueError, TypeError, IndexError, MemoryError) as error:
            raise as_agent_error(error, doing=doing) from error


def _mark_layer(
    hooks: ExitStack,
    layer: torch.nn.Module,
    name: str,
    mark: Callable[[str], AbstractContextManager[Any]],
) -> None:
    """Open a range before the layer's forward and close it after, also when it raises."""
    opened: list[AbstractContextManager[Any]] = []

    def before(*_: object) -> None:
        opened.append(mark(name))
        opened[-1].__enter__()

    def after(*_: object) -> None:
        if opened:
            opened.pop().__exit__(None, None, None)

    hooks.callback(layer.register_forward_pre_hook(before).remove)
    hooks.callback(layer.register_forward_hook(after, always_call=True).remove)


def _own(batch: Batch) -> TorchBatch:
    if not isinstance(batch, TorchBatch):
        raise TypeError(f"a batch of another engine: {type(batch).__name__}")
    return batch


def _max_context(text_config: Any) -> int | None:
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"):
        value = getattr(text_config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _tensor_bytes(cache: Any) -> int:
    """Bytes of all tensors below a cache object, each storage counted once.

    Walks the object instead of naming attributes, because sliding-window, linear-attention and
    quantised layers hold theirs under different names.
    """
    storages: dict[int, int] = {}
    seen: set[int] = set()
    todo: list[Any] = [cache]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            storages[item.data_ptr()] = item.numel() * item.element_size()
        elif isinstance(item, list | tuple):
            todo.extend(item)
        elif isinstance(item, dict):
            todo.extend(item.values())
        elif type(item).__module__.startswith("transformers."):
            todo.extend(vars(item).values())
    return sum(size for pointer, size in storages.items() if pointer)
