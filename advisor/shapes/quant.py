"""Quantisation formats: what a config declares, what stays at 16 bit, bits per parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.shapes.errors import ShapeError

# Parts of a model that formats treat alike; keys of ModelShape.params_by_group.
LINEAR_PARTS = ("attention", "mlp", "shared_experts", "experts")

DTYPE_BITS: dict[str, float] = {
    "fp32": 32.0,
    "float32": 32.0,
    "float": 32.0,
    "bf16": 16.0,
    "bfloat16": 16.0,
    "fp16": 16.0,
    "float16": 16.0,
    "half": 16.0,
    "none": 16.0,
}


@dataclass(frozen=True, slots=True)
class QuantScheme:
    """One weight format. `bits` holds payload and scales per quantised parameter."""

    method: str  # fp8, fp8_block, int8, awq, gptq, nvfp4, mxfp4, int4, nf4, exl2
    bits: float
    compute: str  # the arithmetic the matmul runs in: fp8, int8, fp4 or bf16 (weight only)
    parts: tuple[str, ...] = LINEAR_PARTS
    head_bits: float = 16.0
    kv_dtype: str | None = None  # cache dtype the checkpoint asks for
    loadable: bool = True  # by vLLM and SGLang


def _grouped(method: str, bits: float, group: int, scale_bits: float, compute: str) -> QuantScheme:
    return QuantScheme(method, bits + scale_bits / max(group, 1), compute)


NAMED: dict[str, QuantScheme] = {
    "fp8": QuantScheme("fp8", 8.0, "fp8"),
    "fp8_block": _grouped("fp8_block", 8.0, 128 * 128, 32.0, "fp8"),
    "int8": QuantScheme("int8", 8.0, "int8"),
    "w8a8": QuantScheme("int8", 8.0, "int8"),
    "awq": _grouped("awq", 4.0, 128, 20.0, "bf16"),  # fp16 scale and 4 bit zero per group
    "gptq": _grouped("gptq", 4.0, 128, 20.0, "bf16"),
    "int4": _grouped("int4", 4.0, 128, 16.0, "bf16"),
    "w4a16": _grouped("int4", 4.0, 128, 16.0, "bf16"),
    "nf4": _grouped("nf4", 4.0, 64, 32.0, "bf16"),  # fp32 absmax per 64
    "bitsandbytes": _grouped("nf4", 4.0, 64, 32.0, "bf16"),
    "nvfp4": _grouped("nvfp4", 4.0, 16, 8.0, "fp4"),  # fp8 scale per 16
    "fp4": _grouped("nvfp4", 4.0, 16, 8.0, "fp4"),
    "mxfp4": replace(_grouped("mxfp4", 4.0, 32, 8.0, "fp4"), parts=("experts",)),
}
QUANT_NAMES = ("none", *NAMED)


def scheme_for_dtype(dtype: str, published: QuantScheme | None, *, mla: bool) -> QuantScheme | None:
    """The scheme that a user's dtype or quantisation name means for this model.

    A name that matches the published format keeps what the checkpoint leaves unquantised.
    """
    name = dtype.lower()
    if name in DTYPE_BITS:
        return None
    if name not in NAMED:
        known = ", ".join(sorted({*DTYPE_BITS, *NAMED}))
        raise ShapeError("dtype", f"{dtype!r} is not known; use one of {known}")
    scheme = NAMED[name]
    if published is not None:
        same = published.method == scheme.method or {published.method, name} <= {"fp8", "fp8_block"}
        fp4 = published.compute == "fp4" and scheme.compute == "fp4"
        int4 = published.bits < 5 and scheme.bits < 5 and published.compute == scheme.compute
        if same or fp4 or int4:
            return published
    if scheme.method == "nvfp4" and mla:
        # Published NVFP4 checkpoints of MLA models keep attention in 16 bit.
        scheme = replace(scheme, parts=tuple(p for p in scheme.parts if p != "attention"))
    return scheme


def group_bits(scheme: QuantScheme | None, part: str, base_bits: float) -> float:
    """Bits per parameter of one part of the model under a scheme."""
    if scheme is None:
        return base_bits
    if part in scheme.parts:
        return scheme.bits
    if part == "head":
        return min(scheme.head_bits, base_bits)
    return base_bits


def read_quantisation(config: Mapping[str, Any]) -> QuantScheme | None:
    """The scheme a config declares: quantization_config, compression_config or hf_quant_config.

    None when it declares none. Raises `ShapeError` naming the key for a format that is not known.
    """
    for key in ("quantization_config", "compression_config", "hf_quant_config"):
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise ShapeError(key, "must be an object")
        if not value:
            continue
        return _read(key, value)
    return None


def _read(key: str, value: Mapping[str, Any]) -> QuantScheme | None:
    inner = value.get("quantization")
    if isinstance(inner, Mapping):  # hf_quant_config.json nests one level down
        value = {**value, **inner}
    method = str(value.get("quant_method") or "").lower()
    reader = {
        "fp8": _fp8,
        "fbgemm_fp8": _fp8,
        "awq": _packed,
        "gptq": _packed,
        "awq_marlin": _packed,
        "gptq_marlin": _packed,
        "auto-round": _packed,
        "compressed-tensors": _compressed,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
        "mxfp4": lambda _k, _v: NAMED["mxfp4"],
        "bitsandbytes": _bitsandbytes,
        "exl2": _exl2,
        "exl3": _exl2,
    }.get(method)
    if reader is None and value.get("quant_algo"):
        reader = _modelopt
    if reader is None and isinstance(value.get("config_groups"), Mapping):
        reader = _compressed
    if reader is None:
        where = f"{key}.quant_method"
        shown = method[:60] or "missing"
        raise ShapeError(
            where,
            f"{shown} is not a known weight format; known are awq, bitsandbytes, "
            "compressed-tensors, exl2, fp8, gptq, modelopt and mxfp4. "
            "Remove the key to treat the model as unquantised",
        )
    scheme = reader(key, value)
    return _apply_skips(scheme, value)


def _fp8(_key: str, value: Mapping[str, Any]) -> QuantScheme:
    return NAMED["fp8_block" if value.get("weight_block_size") else "fp8"]


def _number(key: str, name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ShapeError(f"{key}.{name}", f"must be a number between {low:g} and {high:g}")
    return float(value)


def _packed(key: str, value: Mapping[str, Any]) -> QuantScheme:
    method = str(value.get("quant_method", "")).replace("_marlin", "")
    bits = _number(key, "bits", value.get("bits", value.get("w_bit", 4)), 1, 8)
    group = value.get("group_size", value.get("q_group_size", 128))
    size = _number(key, "group_size", group, -1, 1 << 20)
    per_group = 16.0 + bits
    return QuantScheme(method, bits + (per_group / size if size > 0 else 0.0), "bf16")


def _compressed(key: str, value: Mapping[str, Any]) -> QuantScheme:
    groups = value.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise ShapeError(
            f"{key}.config_groups", "names no weight format; expected weights.num_bits"
        )
    bits = _number(key, "config_groups.weights.num_bits", weights.get("num_bits"), 1, 16)
    kind = str(weights.get("type", "int"))
    acts = isinstance(first, Mapping) and first.get("input_activations") is not None
    group = weights.get("group_size")
    scale = 8.0 if kind == "float" and bits == 4 else 16.0
    overhead = 0.0
    if isinstance(group, int) and not isinstance(group, bool) and group > 0:
        overhead = scale / group
    compute = "bf16"
    if acts:
        compute = {("float", 8.0): "fp8", ("int", 8.0): "int8", ("float", 4.0): "fp4"}.get(
            (kind, bits), "bf16"
        )
    name = {("float", 8.0): "fp8", ("int", 8.0): "int8", ("float", 4.0): "nvfp4"}.get(
        (kind, bits), f"int{bits:g}"
    )
    return QuantScheme(name, bits + overhead, compute, kv_dtype=_kv_dtype(value))


def _modelopt(key: str, value: Mapping[str, Any]) -> QuantScheme:
    algo = str(value.get("quant_algo") or "").upper()
    kv = _kv_dtype(value)
    if algo in ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PER_TENSOR"):
        return replace(NAMED["fp8"], kv_dtype=kv)
    if algo in ("FP8_PB_WO", "FP8_PB_REAL", "FP8_BLOCK"):
        return replace(NAMED["fp8_block"], kv_dtype=kv)
    if algo in ("NVFP4", "NVFP4_AWQ", "W4A8_NVFP4_FP8"):
        return replace(NAMED["nvfp4"], kv_dtype=kv)
    if algo in ("W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ"):
        return replace(NAMED["awq"], kv_dtype=kv)
    if algo in ("W8A8_SQ_PER_CHANNEL", "INT8", "W8A8"):
        return replace(NAMED["int8"], kv_dtype=kv)
    raise ShapeError(
        f"{key}.quant_algo",
        f"{algo or 'missing'} is not known; known are FP8, FP8_PB_WO, NVFP4, W4A16_AWQ and INT8",
    )


def _bitsandbytes(_key: str, value: Mapping[str, Any]) -> QuantScheme:
    if value.get("load_in_8bit") or value.get("_load_in_8bit"):
        return QuantScheme("int8", 8.0, "bf16")
    double = bool(value.get("bnb_4bit_use_double_quant"))
    # absmax: fp32 per 64 weights; double quantisation stores it in 8 bit plus fp32 per 256.
    overhead = 8 / 64 + 32 / (64 * 256) if double else 32 / 64
    return QuantScheme("nf4", 4.0 + overhead, "bf16")


def _exl2(key: str, value: Mapping[str, Any]) -> QuantScheme:
    bits = _number(key, "bits", value.get("bits"), 1, 16)
    head = _number(key, "head_bits", value.get("head_bits", 6), 1, 16)
    return QuantScheme(str(value["quant_method"]), bits, "bf16", head_bits=head, loadable=False)


def _kv_dtype(value: Mapping[str, Any]) -> str | None:
    algo = value.get("kv_cache_quant_algo") or value.get("kv_cache_scheme")
    if isinstance(algo, Mapping):
        return "fp8" if algo.get("num_bits") == 8 else None
    return "fp8" if isinstance(algo, str) and "FP8" in algo.upper() else None


def _apply_skips(scheme: QuantScheme, value: Mapping[str, Any]) -> QuantScheme:
    """Take parts out that the skip list names for the whole model."""
    names: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"):
        entries = value.get(key)
        if isinstance(entries, list):
            names += [e for e in entries if isinstance(e, str) and len(e) < 300]
    if not names:
        return scheme
    patterns = {
        "attention": re.compile(r"self_attn(\*|\.\*)?$|self_attn\.\*|attention(\*|\.\*)?$"),
        "shared_experts": re.compile(r"shared_expert"),
        "mlp": re.compile(r"mlp\\?\.\(?(gate\||up|down|gate_up|gate_proj)"),
        "experts": re.compile(r"mlp\.experts(\*|\.\*)?$"),
    }
    parts = tuple(
        part
        for part in scheme.parts
        if not any(patterns[part].search(n) for n in names if "*" in n or not re.search(r"\d", n))
    )
    return replace(scheme, parts=parts)
