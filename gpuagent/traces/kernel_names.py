"""Class and tensor-core verdict of a GPU kernel from its name; rules are in kernel_rules.json.

Names are all there is inside a graph replay, where no operator explains a kernel. Tools spell the
same kernel differently, so names are made canonical before they are matched or compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

TensorCore = Literal["yes", "no", "unknown", "not_applicable"]

MATRIX_CLASSES = frozenset({"gemm", "moe", "gemv", "conv"})
GEMM_CLASSES = frozenset({"gemm", "moe"})
LIGHT_CLASSES = frozenset(
    {"elementwise", "norm", "copy_cat_index", "reduce", "rope", "quant", "triton"}
)
"""Short memory-bound work that a compiler can merge."""

CLASS_LABELS: dict[str, str] = {
    "gemm": "GEMM",
    "gemv": "Matrix-vector",
    "moe": "Mixture of experts",
    "attention": "Attention",
    "softmax": "Softmax",
    "conv": "Convolution",
    "comm": "Communication",
    "norm": "Normalisation",
    "rope": "Rotary embedding",
    "kv_cache_write": "KV-cache write",
    "sampling": "Sampling and sorting",
    "quant": "Quantise and dequantise",
    "copy_cat_index": "Copy, concat and index",
    "elementwise": "Elementwise",
    "reduce": "Reduction",
    "triton": "Triton, unnamed",
    "state_space": "State space",
    "embedding": "Embedding",
    "memcpy": "Memory copy",
    "memset": "Memory set",
    "graph": "Graph replay, not opened",
    "other": "Other",
}

_CASTS = re.compile(r"\((?:unsigned (?:int|long|char)|int|long|bool|char|short)\)")
_INSTANCE = re.compile(r"\[lambda\((.*?)\) \(instance (\d+)\)\]")
_BOOL = re.compile(r"\(bool\)([01])")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a name says: class, the rule that decided, tensor-core verdict and its rule."""

    kernel_class: str
    rule: str
    tensor_core: TensorCore
    tensor_core_rule: str


def canonical(name: str) -> str:
    """One spelling for names that Kineto and Nsight write differently (casts, lambdas, spaces)."""
    text = name
    if "(bool)" in text:
        text = _BOOL.sub(lambda found: "true" if found.group(1) == "1" else "false", text)
    if "(" in text:
        text = _CASTS.sub("", text)
    if "[lambda" in text:
        text = _INSTANCE.sub(r"{lambda(\1)#\2}", text)
    return (
        text.replace("<unnamed>", "(anonymous namespace)")
        .replace(" *", "*")
        .replace(" &", "&")
        .replace("> >", ">>")
        .replace("operator ()", "operator()")
    )


def short_name(name: str, width: int = 80) -> str:
    """The name without return type, template arguments and parameters, at most `width` long."""
    text = canonical(name).replace("(anonymous namespace)::", "")
    if text.startswith(("Memcpy", "Memset", "[")):
        return text[:width]
    if text.startswith("std::enable_if<") and "::type " in text:
        text = text.split("::type ", 1)[1]
    text = text.removeprefix("void ")
    for mark in ("<", "("):
        if mark in text[1:]:
            text = text[: text.index(mark, 1)]
    return text if len(text) <= width else text[: width - 1] + "…"


@lru_cache(maxsize=65_536)
def kernel_of(name: str) -> Kernel:
    """Class and tensor-core verdict of one kernel name, mangled or demangled."""
    text = canonical(name).lower()
    kernel_class, rule = _first(_rules().classes, text, "other")
    if kernel_class not in MATRIX_CLASSES:
        return Kernel(kernel_class, rule, "not_applicable", "")
    if kernel_class == "gemv":
        return Kernel(kernel_class, rule, "not_applicable", "matrix-vector")
    verdict, why = _first(_rules().tensor_cores, text, "unknown")
    return Kernel(kernel_class, rule, verdict, why)  # type: ignore[arg-type]


def tensor_core_of(name: str) -> tuple[str, str]:
    """Verdict and rule for a name that is known to be a matrix kernel."""
    return _first(_rules().tensor_cores, canonical(name).lower(), "unknown")


def rules_version() -> str:
    """Version of the rule table, stored beside every analysis."""
    return _rules().version


@dataclass(frozen=True, slots=True)
class _Rules:
    version: str
    classes: tuple[tuple[str, str, Callable[[str], bool]], ...]
    tensor_cores: tuple[tuple[str, str, Callable[[str], bool]], ...]


def rule_table() -> dict[str, Any]:
    """The rule file as it is stored, for tests and documentation."""
    table: dict[str, Any] = json.loads(
        (files("gpuagent.traces") / "kernel_rules.json").read_text("utf-8")
    )
    return table


@lru_cache(maxsize=1)
def _rules() -> _Rules:
    table = rule_table()
    return _Rules(
        version=table["version"],
        classes=tuple((row["class"], row["id"], _matcher(row)) for row in table["classes"]),
        tensor_cores=tuple(
            (row["verdict"], row["id"], _matcher(row)) for row in table["tensor_cores"]
        ),
    )


def _matcher(row: dict[str, Any]) -> Callable[[str], bool]:
    """A test for one rule: (starts and any, or either alone) or word or regex, unless vetoed."""
    starts, tokens = tuple(row.get("starts", ())), tuple(row.get("any", ()))
    veto = tuple(row.get("none", ()))
    patterns = [re.compile(row["regex"])] if "regex" in row else []
    if "word" in row:
        patterns.append(re.compile(rf"(?<![a-z])(?:{'|'.join(row['word'])})(?![a-z])"))

    def matches(name: str) -> bool:
        if starts:
            hit = name.startswith(starts) and (not tokens or any(t in name for t in tokens))
        else:
            hit = any(token in name for token in tokens)
        hit = hit or any(pattern.search(name) for pattern in patterns)
        return hit and not any(token in name for token in veto)

    return matches


def _first(
    rules: tuple[tuple[str, str, Callable[[str], bool]], ...], name: str, otherwise: str
) -> tuple[str, str]:
    for result, rule, matches in rules:
        if matches(name):
            return result, rule
    return otherwise, ""
