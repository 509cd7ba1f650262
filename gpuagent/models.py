"""From a `ModelRef` to files that an engine may load, and the inventory of the agent's model roots.

A name or an id is data: it is looked up in the inventory or asked of the hub, never joined to a
path unchecked. No torch here: the daemon scans its roots with this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuagent.errors import AgentError
from gpuagent.modelfiles import FolderFacts, config_danger, read_folder
from gpuagent.wire import (
    ConfigModel,
    FailureReason,
    HubModel,
    InventoryModel,
    LocalModel,
    ModelRef,
)

MAX_INVENTORY = 500
# What a hub download may bring: weights without code, and the text files around them.
HUB_PATTERNS = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that passed the safety checks: either a folder, or a bare config."""

    label: str
    folder: Path | None = None
    config: dict[str, Any] | None = None
    gguf_file: str | None = None
    weight_bytes: int | None = None
    revision: str | None = None

    @property
    def random_weights(self) -> bool:
        return self.folder is None


def scan_models(roots: Sequence[Path]) -> tuple[InventoryModel, ...]:
    """Every model folder one or two levels below the roots, usable or with its `problem`.

    Reads directory listings and small JSON files only, so it can run with every poll. A name that
    appears below two roots is the first root's.
    """
    found: dict[str, InventoryModel] = {}
    for root in roots:
        for name, folder in _model_folders(Path(root).expanduser()):
            if name in found or len(found) >= MAX_INVENTORY:
                continue
            facts = read_folder(folder, root=Path(root).expanduser())
            found[name] = InventoryModel(
                name=name,
                config=facts.config,
                weights=facts.weights,
                weight_bytes=facts.weight_bytes,
                problem=facts.unsafe or facts.problem,
            )
    return tuple(found[name] for name in sorted(found))


def resolve(ref: ModelRef, roots: Sequence[Path], *, offline: bool = False) -> ResolvedModel:
    """Files for `ref`; downloads a hub model.

    Raises AgentError: model_not_found, model_unsafe, model_broken.
    """
    if isinstance(ref, ConfigModel):
        if danger := config_danger(ref.config):
            raise AgentError(FailureReason.MODEL_UNSAFE, f"{ref.label}: {danger}")
        return ResolvedModel(label=ref.label, config=ref.config)
    if isinstance(ref, LocalModel):
        return _resolve_local(ref, roots)
    return _resolve_hub(ref, offline=offline)


def from_folder(label: str, facts: FolderFacts, folder: Path) -> ResolvedModel:
    """The folder as a model, or AgentError with why it is refused."""
    if facts.unsafe:
        raise AgentError(FailureReason.MODEL_UNSAFE, f"{label}: {facts.unsafe}")
    if facts.problem:
        raise AgentError(FailureReason.MODEL_BROKEN, f"{label}: {facts.problem}")
    return ResolvedModel(
        label=label,
        folder=folder,
        config=facts.config,
        gguf_file=facts.gguf_file,
        weight_bytes=facts.weight_bytes,
    )


def _resolve_local(ref: LocalModel, roots: Sequence[Path]) -> ResolvedModel:
    for root in roots:
        base = Path(root).expanduser()
        for name, folder in _model_folders(base):
            if name == ref.name:
                return from_folder(ref.label, read_folder(folder, root=base), folder)
    where = ", ".join(str(root) for root in roots) or "no model root is set"
    raise AgentError(
        FailureReason.MODEL_NOT_FOUND,
        f"{ref.name}: no such folder below this agent's model roots ({where})",
    )


def _resolve_hub(ref: HubModel, *, offline: bool) -> ResolvedModel:
    # Imported here: it costs half a second and only hub models need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RevisionNotFoundError,
    )

    def fetch(patterns: Sequence[str]) -> Path:
        return Path(
            snapshot_download(
                ref.id,
                revision=ref.revision,
                allow_patterns=list(patterns),
                local_files_only=offline,
            )
        )

    try:
        # The small files first: a model that is refused must not cost a download of its weights.
        folder = fetch(("*.json",))
        facts = read_folder(folder)
        if facts.unsafe and facts.weights != "pickle":
            raise AgentError(FailureReason.MODEL_UNSAFE, f"{ref.id}: {facts.unsafe}")
        folder = fetch(HUB_PATTERNS)
        facts = read_folder(folder)
        if facts.weights is None:
            folder = fetch(("*.json", "*.gguf"))
            facts = read_folder(folder)
    except RevisionNotFoundError as error:
        message = f"{ref.id}: the hub has no revision {ref.revision}"
        raise AgentError(FailureReason.MODEL_NOT_FOUND, message) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        detail = f"{type(error).__name__}: {error}"
        message = f"{ref.id}: the hub has no such model, or this agent cannot reach the hub"
        raise AgentError(FailureReason.MODEL_NOT_FOUND, message, detail=detail) from error
    if facts.weights is None and facts.unsafe is None and facts.problem is not None:
        message = f"{ref.id}: the repository holds no safetensors or GGUF weights"
        raise AgentError(FailureReason.MODEL_UNSAFE, message)
    model = from_folder(ref.id, facts, folder)
    return ResolvedModel(
        label=model.label,
        folder=model.folder,
        config=model.config,
        gguf_file=model.gguf_file,
        weight_bytes=model.weight_bytes,
        # The hub names a snapshot folder by its commit.
        revision=ref.revision or folder.name,
    )


def _model_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """(name, folder) of every candidate: has a config.json or weights. Names use `/`.

    A folder with neither, nor below it, is a candidate too: whoever made it is told what it lacks.
    """
    for folder in _subfolders(root):
        inner = [] if _looks_like_model(folder) else _subfolders(folder)
        models = [path for path in inner if _looks_like_model(path)]
        if not models:
            yield folder.name, folder
        for path in models:
            yield f"{folder.name}/{path.name}", path


def _subfolders(folder: Path) -> list[Path]:
    try:
        found = [p for p in folder.iterdir() if not p.name.startswith(".") and p.is_dir()]
    except OSError:
        # A root that is not there yet, or is not ours to read, holds no models.
        return []
    return sorted(found)


def _looks_like_model(folder: Path) -> bool:
    suffixes = {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".pkl", ".ckpt"}
    try:
        return any(
            path.name == "config.json" or path.suffix in suffixes for path in folder.iterdir()
        )
    except OSError:
        return False
