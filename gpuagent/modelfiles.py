"""Reads what a model folder is, without loading anything from it, and refuses what would run code.

A folder, its config and its weights are data from somebody else. Only safetensors and GGUF weights
are accepted; pickled weights and `auto_map` (own Python code) are refused before any library sees
them. Knows neither engines nor the wire's trial types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_CONFIG_BYTES = 1_000_000
# tokenizer.json is large and holds no code; this limit is for the files that are parsed here.
MAX_INDEX_BYTES = 32_000_000
MAX_DEPTH = 40
PICKLED_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".msgpack", ".h5"})
# Pickles that hold no weights and that nothing here opens.
IGNORED_PICKLES = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"})


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """What lies in a folder. `problem` and `unsafe` are sentences, or None.

    unsafe: the folder would run code. problem: it cannot be used for another reason.
    weight_bytes: sum of the weight files of the kind that would be loaded.
    """

    config: dict[str, Any] | None = None
    weights: str | None = None
    weight_files: tuple[Path, ...] = ()
    weight_bytes: int | None = None
    problem: str | None = None
    unsafe: str | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def gguf_file(self) -> str | None:
        """Name of the GGUF file to load, where the weights are GGUF."""
        return self.weight_files[0].name if self.weights == "gguf" else None


def read_folder(folder: Path, *, root: Path | None = None) -> FolderFacts:
    """Facts about `folder`. Never raises for what the folder holds.

    root: no file may lie outside it once symlinks are followed. A folder that is itself a symlink
    directly in the root was put there on purpose by who owns the root, so its target counts as
    inside.
    """
    try:
        return _read_folder(folder, root)
    except OSError as error:
        return FolderFacts(problem=f"cannot be read: {error.strerror or error}")


def _read_folder(folder: Path, root: Path | None) -> FolderFacts:
    allowed = _allowed_roots(folder, root)
    if allowed is not None and not _inside(folder.resolve(), allowed):
        return FolderFacts(problem="is a symlink that leaves the model root")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    escaping = [p.name for p in files if allowed and not _inside(p.resolve(), allowed)]
    if escaping:
        return FolderFacts(problem=f"{escaping[0]} is a symlink that leaves the model root")

    weights, weight_files = _weights_of(files)
    weight_bytes = sum(path.stat().st_size for path in weight_files) or None
    config, problem = _config_of(folder, weights)
    unsafe = _unsafe(folder, files, config, weights)
    if problem is None and weights is None and unsafe is None:
        problem = "holds no weights (safetensors or GGUF)"
    if problem is None and (folder / "adapter_config.json").is_file():
        problem = "is a LoRA adapter, not a model; merge it into its base model first"
    if problem is None:
        problem = _index_problem(folder)
    return FolderFacts(
        config=config,
        weights=weights,
        weight_files=tuple(weight_files),
        weight_bytes=weight_bytes,
        problem=problem,
        unsafe=unsafe,
    )


def config_danger(config: dict[str, Any]) -> str | None:
    """Why a config would run code, or None: `auto_map` or a kernel on the hub, at any depth."""
    for key, value in _walk(config):
        if key == "auto_map" and value:
            return "config.json has auto_map: the model brings its own Python code"
        # transformers downloads and runs a kernel when an implementation is given as "owner/name".
        if "implementation" in key and isinstance(value, str) and "/" in value:
            return f"config.json names a downloadable kernel in {key}"
        if key == "custom_pipelines" and value:
            return "config.json has custom_pipelines: the model brings its own Python code"
    return None


def parse_json(
    path: Path, limit: int = MAX_CONFIG_BYTES
) -> tuple[dict[str, Any] | None, str | None]:
    """(object, None) or (None, what is wrong with the file)."""
    size = path.stat().st_size
    if size > limit:
        return None, f"{path.name} has {size:,} bytes, more than {limit:,}"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None, f"{path.name} is not JSON"
    if not isinstance(value, dict):
        return None, f"{path.name} is not a JSON object"
    if not _is_plain(value):
        return None, f"{path.name} is nested too deeply or holds a number that is not finite"
    return value, None


def _allowed_roots(folder: Path, root: Path | None) -> tuple[Path, ...] | None:
    if root is None:
        return None
    allowed = [root.resolve()]
    # Chosen by who owns the root: a link right below it, or the link's own children.
    for link in (folder, folder.parent):
        if link.is_symlink() and link.parent == root:
            allowed.append(link.resolve())
    return tuple(allowed)


def _inside(path: Path, allowed: tuple[Path, ...]) -> bool:
    return any(path == root or root in path.parents for root in allowed)


def _weights_of(files: list[Path]) -> tuple[str | None, list[Path]]:
    safetensors = [p for p in files if p.suffix == ".safetensors" and p.name[:8] != "adapter_"]
    if safetensors:
        return "safetensors", safetensors
    gguf = [p for p in files if p.suffix == ".gguf"]
    if gguf:
        return "gguf", gguf[:1]
    pickled = [p for p in files if p.suffix in PICKLED_SUFFIXES and p.name not in IGNORED_PICKLES]
    return ("pickle", pickled) if pickled else (None, [])


def _config_of(folder: Path, weights: str | None) -> tuple[dict[str, Any] | None, str | None]:
    path = folder / "config.json"
    if not path.is_file():
        # A GGUF file carries its own config.
        return None, None if weights == "gguf" else "holds no config.json"
    return parse_json(path)


def _unsafe(
    folder: Path, files: list[Path], config: dict[str, Any] | None, weights: str | None
) -> str | None:
    if config is not None and (danger := config_danger(config)):
        return danger
    tokenizer = folder / "tokenizer_config.json"
    if tokenizer in files:
        parsed, problem = parse_json(tokenizer, MAX_INDEX_BYTES)
        if problem is None and parsed and parsed.get("auto_map"):
            return "tokenizer_config.json has auto_map: the tokenizer brings its own Python code"
    if weights == "pickle":
        return "only pickled weights (.bin, .pt, .pkl): loading them would run code"
    return None


def _index_problem(folder: Path) -> str | None:
    path = folder / "model.safetensors.index.json"
    if not path.is_file():
        return None
    index, problem = parse_json(path, MAX_INDEX_BYTES)
    if index is None:
        return problem
    shards = index.get("weight_map")
    if not isinstance(shards, dict):
        return f"{path.name} has no weight_map"
    for shard in sorted({str(name) for name in shards.values()}):
        if "/" in shard or "\\" in shard:
            return f"{path.name} names a shard outside the folder"
        if not (folder / shard).is_file():
            return f"{shard} is missing; {path.name} names it"
    return None


def _walk(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key), inner
            yield from _walk(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, depth + 1)


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a parsed value can be shown and sent: bounded depth, finite numbers."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(_is_plain(inner, depth + 1) for inner in value.values())
    if isinstance(value, list):
        return all(_is_plain(inner, depth + 1) for inner in value)
    return not isinstance(value, float) or math.isfinite(value)
