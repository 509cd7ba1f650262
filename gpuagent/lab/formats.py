"""Weights in fewer bits: replaces the linear layers of a loaded model, or says why it cannot.

int8 and, on processors, int4 are torch's own kernels; int4 on GPUs and float8 come from torchao.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

INT8_LEVELS = 127.0
INT4_GROUP = 32


class FormatUnavailableError(Exception):
    """The format cannot be used here; the message is the reason a user reads."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A module in another format. kernel: what multiplies. weight_bytes: over distinct tensors."""

    module: Any
    kernel: str
    weight_bytes: int


class Int8Linear(torch.nn.Module):
    """y = x · (scale · w)ᵀ with w in int8, one scale per output row, by torch's packed kernel."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.float().abs().amax(dim=1).clamp_min(1e-8) / INT8_LEVELS  # [n]
        rounded = (weight.float() / scale[:, None]).round().clamp(-INT8_LEVELS, INT8_LEVELS)
        self.register_buffer("quantised", rounded.to(torch.int8).contiguous())
        self.register_buffer("scale", scale.to(weight.dtype))
        self.bias = linear.bias
        self.out_features, self.in_features = weight.shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, self.in_features).contiguous()
        out = torch._weight_int8pack_mm(flat, self.quantised, self.scale)
        if self.bias is not None:
            out = out + self.bias
        return out.view(*x.shape[:-1], self.out_features)


class Int4Linear(torch.nn.Module):
    """y = x · wᵀ with w in 4 bits, scale and zero point per INT4_GROUP inputs, on a processor.

    w = (q - 8) · scale + zero with q in 0..15. Needs bfloat16 and inputs that the group divides.
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        groups = weight.view(weight.shape[0], -1, INT4_GROUP)  # [n, k / group, group]
        low, high = groups.amin(dim=-1), groups.amax(dim=-1)
        scale = ((high - low) / 15).clamp_min(1e-8)
        q = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15)
        packed = torch._convert_weight_to_int4pack_for_cpu(q.to(torch.int32).view_as(weight), 1)
        pairs = torch.stack((scale, low + 8 * scale), dim=-1).transpose(0, 1)
        self.register_buffer("quantised", packed)
        self.register_buffer("scales", pairs.contiguous().to(linear.weight.dtype))
        self.bias = linear.bias
        self.out_features, self.in_features = weight.shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, self.in_features).contiguous()
        out = torch._weight_int4pack_mm_for_cpu(flat, self.quantised, INT4_GROUP, self.scales)
        if self.bias is not None:
            out = out + self.bias
        return out.view(*x.shape[:-1], self.out_features)


def base_dtype(method: str, device: torch.device) -> str:
    """The dtype a method starts from."""
    if method in {"float32", "bfloat16", "float16"}:
        return method
    if method == "as_stored":
        return "auto"
    # torch's dynamic int8 takes float32 activations; the packed kernel is fast in bfloat16 only.
    return "float32" if method == "int8_dynamic" else "bfloat16"


def prepare(module: Any, method: str) -> Prepared:
    """`module` in `method`; a fresh module that shares nothing that is changed.

    Raises FormatUnavailableError.
    """
    device = next(module.parameters()).device
    if method in {"float32", "bfloat16", "float16", "as_stored"}:
        kernel = "torch linear"
        config = getattr(module.config, "quantization_config", None)
        if method == "as_stored":
            if config is None:
                raise FormatUnavailableError("the checkpoint is not quantised")
            kernel = str(getattr(config, "quant_method", "of the checkpoint"))
        return Prepared(module, kernel, _bytes(module))
    if method == "int8_weight_only":
        return _replaced(module, Int8Linear, "torch _weight_int8pack_mm, one scale per row")
    if method == "int4_weight_only" and device.type == "cpu":
        kernel = f"torch _weight_int4pack_mm_for_cpu, groups of {INT4_GROUP}"
        return _replaced(module, Int4Linear, kernel)
    if method == "int8_dynamic":
        return _int8_dynamic(module, device)
    return _torchao(module, method, device)


def _replaced(module: Any, kind: type[Int8Linear] | type[Int4Linear], kernel: str) -> Prepared:
    changed = _own_copy(module)
    linears = [
        (name, child)
        for name, child in changed.named_modules()
        if isinstance(child, torch.nn.Linear)
    ]
    if not linears:
        raise FormatUnavailableError("the model has no linear layers")
    try:
        for name, child in linears:
            parent, _, last = name.rpartition(".")
            setattr(changed.get_submodule(parent), last, kind(child))
        with torch.inference_mode():
            # Some layouts only fail when they multiply.
            changed(input_ids=torch.ones(1, 2, dtype=torch.long, device=_device(changed)))
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        raise FormatUnavailableError(_first_line(error)) from error
    return Prepared(changed, kernel, _bytes(changed))


def _int8_dynamic(module: Any, device: torch.device) -> Prepared:
    if device.type != "cpu":
        raise FormatUnavailableError("torch's dynamic int8 runs on processors only")
    from torch.ao.quantization import quantize_dynamic

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            changed = quantize_dynamic(_own_copy(module), {torch.nn.Linear}, dtype=torch.qint8)
    except (RuntimeError, NotImplementedError) as error:
        raise FormatUnavailableError(_first_line(error)) from error
    engine = torch.backends.quantized.engine
    return Prepared(changed, f"torch dynamic quantisation ({engine})", _bytes(changed))


def _torchao(module: Any, method: str, device: torch.device) -> Prepared:
    if find_spec("torchao") is None:
        raise FormatUnavailableError("torchao is not installed: pip install torchao")
    if method == "float8" and (
        device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9)
    ):
        raise FormatUnavailableError("float8 needs an NVIDIA GPU of Ada, Hopper or newer")
    try:
        from torchao import quantization as ao

        changed = _own_copy(module)
        ao.quantize_(changed, _torchao_config(ao, method, device))
        # Some layouts only fail when they multiply.
        with torch.inference_mode():
            changed(input_ids=torch.ones(1, 2, dtype=torch.long, device=device))
    except Exception as error:
        # torchao raises anything, ImportError of a missing kernel package included.
        raise FormatUnavailableError(f"torchao: {_first_line(error)}") from error
    return Prepared(changed, f"torchao {method}", _bytes(changed))


def _torchao_config(ao: Any, method: str, device: torch.device) -> Any:
    if method == "float8":
        return ao.Float8DynamicActivationFloat8WeightConfig()
    return ao.Int4WeightOnlyConfig(group_size=INT4_GROUP)


def _own_copy(module: Any) -> Any:
    """A deep copy whose parameters are shared: they are replaced, never written."""
    memo = {id(p): p for p in module.parameters()}
    memo |= {id(b): b for b in module.buffers()}
    return copy.deepcopy(module, memo)


def _bytes(module: Any) -> int:
    """Parameters, buffers and packed weights, each storage once."""
    found: dict[int, int] = {}
    packed = 0
    for child in module.modules():
        own = [*child.parameters(recurse=False), *child.buffers(recurse=False)]
        for tensor in own:
            try:
                key = tensor.data_ptr()
            except RuntimeError:
                # A tensor subclass without storage of its own: count its parts.
                key = id(tensor)
            found[key] = _tensor_bytes(tensor)
        weight = getattr(child, "weight", None)
        if callable(weight):
            # Packed dynamic layers give their weight by a method, one byte each.
            quantised = weight()
            packed += quantised.numel() * quantised.element_size()
    return sum(found.values()) + packed


def _tensor_bytes(tensor: torch.Tensor) -> int:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return tensor.numel() * tensor.element_size()
    names, _ = flatten()
    return sum(_tensor_bytes(getattr(tensor, name)) for name in names)


def _device(module: Any) -> torch.device:
    found: torch.device = next(module.parameters()).device
    return found


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
