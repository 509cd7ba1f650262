"""Exports: one configuration of a study as a command, a container service or data. Pure.

A new format is one file `as_<format>.py`, one line in EXPORTS and one test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from advisor.exports.as_command import to_command
from advisor.exports.as_compose import to_compose
from advisor.exports.as_json import to_json
from advisor.exports.as_kubernetes import to_kubernetes
from advisor.exports.document import (
    EXPORT_VERSION,
    ExportDocument,
    ExportError,
    export_document,
)


@dataclass(frozen=True, slots=True)
class Export:
    """One format. engine: the only one it is for, None where the caller chooses."""

    name: str
    suffix: str
    media_type: str
    render: Callable[[ExportDocument], bytes]
    engine: str | None = None

    def filename(self, document: ExportDocument) -> str:
        """ASCII without anything a header or a shell would read."""
        return f"study-{document.study.number}-{document.engine}.{self.suffix}"


EXPORTS: dict[str, Export] = {
    "vllm": Export("vLLM command", "sh", "text/x-shellscript", to_command, engine="vllm"),
    "sglang": Export("SGLang command", "sh", "text/x-shellscript", to_command, engine="sglang"),
    "compose": Export("docker compose", "compose.yaml", "application/yaml", to_compose),
    "kubernetes": Export("Kubernetes", "kubernetes.yaml", "application/yaml", to_kubernetes),
    "json": Export("JSON", "json", "application/json", to_json),
}

__all__ = [
    "EXPORTS",
    "EXPORT_VERSION",
    "Export",
    "ExportDocument",
    "ExportError",
    "export_document",
]
