"""Loads a transformers model the way it will be measured, or refuses with the reason.

transformers only warns when a checkpoint lacks tensors and fills them with random numbers; a speed
or quality measured on those would be of another model, so that is an error here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, initialization

from gpuagent.engines.base import Tick
from gpuagent.engines.classify import as_agent_error
from gpuagent.engines.memory import host_available_bytes
from gpuagent.errors import AgentError
from gpuagent.models import ResolvedModel
from gpuagent.wire import EngineSettings, FailureReason

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Random weights come from one block that is repeated: as fast as memory, and the arithmetic is the
# same as with distinct numbers. 0.02 is the usual initializer_range.
_BLOCK = 1 << 20
_STD = 0.02
# Loading needs room beside the weights: the embedding in float32 for a moment, buffers, logits.
_HEADROOM_BYTES = 256 * 2**20
_HEADROOM_FRAC = 0.05


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on its device in eval mode, and its tokenizer where it has one."""

    model: Any
    tokenizer: Any | None
    weights_reason: str | None


def load(
    resolved: ResolvedModel,
    settings: EngineSettings,
    *,
    device: torch.device,
    seed: int,
    tick: Tick,
) -> Loaded:
    """Load a folder, or build a bare config with random weights.

    Raises AgentError: model_unsupported, model_broken, model_unsafe, out_of_memory, config_error.
    """
    config = _guarded("reading config.json", lambda: read_config(resolved))
    tick()
    dtype = _dtype(settings, config)
    _refuse_if_too_large(resolved, config, dtype, device)
    tick()
    if resolved.random_weights:
        model = _guarded(
            "building the model", lambda: _build_random(config, settings, dtype, device, seed)
        )
        tokenizer, reason = None, "random weights: the model was built from a bare config"
    else:
        model = _guarded(
            "loading the model", lambda: _load_folder(resolved, settings, dtype, device)
        )
        tick()
        tokenizer, reason = _load_tokenizer(resolved)
    model.eval()
    model.requires_grad_(False)
    return Loaded(model=model, tokenizer=tokenizer, weights_reason=reason)


def stored_bytes(model: Any) -> tuple[int, int]:
    """(parameters, bytes) over distinct parameter tensors; a tied head counts once."""
    distinct = {p.data_ptr(): p for p in model.parameters() if p.numel() > 0}
    params = sum(p.numel() for p in distinct.values())
    return params, sum(p.numel() * p.element_size() for p in distinct.values())


def count_on_meta(resolved: ResolvedModel) -> tuple[str, int]:
    """(class, parameters) from the transformers class on the meta device: no weights, no memory.

    Parameters that are tied count once. Knows every architecture that this transformers version
    knows. Raises AgentError for others, and for code of the model's own.
    """
    config = _guarded(f"reading the config of {resolved.label}", lambda: read_config(resolved))
    with torch.device("meta"):
        skeleton = _guarded(
            f"building {resolved.label}",
            lambda: AutoModelForCausalLM.from_config(config, trust_remote_code=False),
        )
    return type(skeleton).__name__, _distinct_params(skeleton)


def _distinct_params(skeleton: Any) -> int:
    """Parameters of a model on the meta device, where tensors have no address to tell them by."""
    return sum({id(p): p.numel() for p in skeleton.parameters()}.values())


def _guarded(doing: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        raise as_agent_error(error, doing=doing, loading=True) from error


def read_config(resolved: ResolvedModel) -> Any:
    """The transformers config of a folder or of bare fields. Runs no code of the model's own."""
    if resolved.folder is not None:
        arguments: dict[str, Any] = {"trust_remote_code": False}
        if resolved.gguf_file:
            arguments["gguf_file"] = resolved.gguf_file
        return AutoConfig.from_pretrained(resolved.folder, **arguments)
    fields = dict(resolved.config or {})
    model_type = fields.pop("model_type", None)
    if not isinstance(model_type, str):
        message = f"{resolved.label}: the config has no model_type, so the architecture is unknown"
        raise AgentError(FailureReason.MODEL_UNSUPPORTED, message)
    try:
        return AutoConfig.for_model(model_type, **fields)
    except ValueError as error:
        if "Unrecognized model identifier" not in str(error):
            raise
        message = f"{resolved.label}: this transformers version does not know {model_type[:80]}"
        raise AgentError(FailureReason.MODEL_UNSUPPORTED, message) from error


def _dtype(settings: EngineSettings, config: Any) -> torch.dtype:
    """`auto` is the checkpoint's own, float32 where the config names none (as transformers)."""
    if settings.dtype != "auto":
        return DTYPES[settings.dtype]
    text_config = config.get_text_config()
    named = getattr(config, "dtype", None) or getattr(text_config, "dtype", None)
    if isinstance(named, str):
        named = getattr(torch, named.removeprefix("torch."), None)
    return named if isinstance(named, torch.dtype) else torch.float32


def _attention(settings: EngineSettings) -> dict[str, str]:
    return {} if settings.attention == "auto" else {"attn_implementation": settings.attention}


def _refuse_if_too_large(
    resolved: ResolvedModel, config: Any, dtype: torch.dtype, device: torch.device
) -> None:
    """Say what is needed and what is free before anything is allocated."""
    needed = _weight_bytes(resolved, config, dtype)
    free = _free_bytes(device)
    if needed is None or free is None:
        return
    wanted = int(needed * (1 + _HEADROOM_FRAC)) + _HEADROOM_BYTES
    if wanted > free:
        raise AgentError(
            FailureReason.OUT_OF_MEMORY,
            f"{resolved.label}: the weights need {needed / 2**30:.1f} GiB in "
            f"{str(dtype).removeprefix('torch.')}, {free / 2**30:.1f} GiB are free on {device}",
        )


def _weight_bytes(resolved: ResolvedModel, config: Any, dtype: torch.dtype) -> int | None:
    """Bytes of the weights as they will be held. None where the config alone cannot tell."""
    if getattr(config, "quantization_config", None) is not None:
        return resolved.weight_bytes
    try:
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except (ValueError, ImportError, RuntimeError, NotImplementedError, TypeError):
        # The real load reports what is wrong with the config, with a better message.
        return resolved.weight_bytes
    return _distinct_params(skeleton) * dtype.itemsize


def _free_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return host_available_bytes()


def _build_random(
    config: Any,
    settings: EngineSettings,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
) -> Any:
    with torch.device(device), initialization.no_init_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, trust_remote_code=False, **_attention(settings)
        )
    model.tie_weights()
    generator = torch.Generator(device="cpu").manual_seed(seed)
    block = torch.randn(_BLOCK, generator=generator).mul_(_STD).to(device=device, dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                # Norm scales are 1 and biases 0, so that activations stay finite over many layers.
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            flat = parameter.data.view(-1)
            for start in range(0, flat.numel(), _BLOCK):
                piece = flat[start : start + _BLOCK]
                piece.copy_(block[: piece.numel()])
    return model


def _load_folder(
    resolved: ResolvedModel, settings: EngineSettings, dtype: torch.dtype, device: torch.device
) -> Any:
    arguments: dict[str, Any] = {
        "dtype": dtype,
        "trust_remote_code": False,
        "output_loading_info": True,
        "local_files_only": True,
        **_attention(settings),
    }
    if resolved.gguf_file:
        arguments["gguf_file"] = resolved.gguf_file
    else:
        arguments["use_safetensors"] = True
    if device.type == "cuda":
        # Straight to the device, without a copy of the whole model in host memory.
        arguments["device_map"] = {"": device.index or 0}
    model, info = AutoModelForCausalLM.from_pretrained(resolved.folder, **arguments)
    _refuse_incomplete(resolved.label, model, info)
    return model if device.type == "cuda" else model.to(device)


def _refuse_incomplete(label: str, model: Any, info: dict[str, Any]) -> None:
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    missing = sorted(str(key) for key in info.get("missing_keys", ()) if key not in tied)
    mismatched = sorted(str(key) for key in info.get("mismatched_keys", ()))
    errors = [str(text) for text in info.get("error_msgs", ())]
    for kind, names in (("are missing", missing), ("have another shape", mismatched)):
        if names:
            raise AgentError(
                FailureReason.MODEL_BROKEN,
                f"{label}: {len(names)} tensors that config.json asks for {kind}, "
                f"first {names[0][:200]}",
                detail="\n".join(names[:200]),
            )
    if errors:
        message = f"{label}: {errors[0].splitlines()[0][:400]}"
        raise AgentError(FailureReason.MODEL_BROKEN, message, detail="\n".join(errors))


def _load_tokenizer(resolved: ResolvedModel) -> tuple[Any | None, str | None]:
    """The tokenizer, or None with the reason: speed is measurable without one, quality is not."""
    folder = resolved.folder
    if folder is None or not _has_tokenizer(folder, resolved.gguf_file):
        return None, "the model folder holds no tokenizer"
    arguments: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    if resolved.gguf_file:
        arguments["gguf_file"] = resolved.gguf_file
    try:
        return AutoTokenizer.from_pretrained(folder, **arguments), None
    except (ValueError, OSError, ImportError, KeyError, TypeError, AttributeError) as error:
        return None, f"the tokenizer does not load ({type(error).__name__}: {error})"[:400]


def _has_tokenizer(folder: Path, gguf_file: str | None) -> bool:
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    return gguf_file is not None or any((folder / name).is_file() for name in names)
