"""Why a trial ended without a result. One table: reason -> text, retry rule, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuagent.wire.base import WireModel
from gpuagent.wire.units import Text


class FailureReason(StrEnum):
    """Stable codes; they are stored, exported and matched by rules."""

    MODEL_NOT_FOUND = "model_not_found"
    MODEL_UNSUPPORTED = "model_unsupported"
    MODEL_UNSAFE = "model_unsafe"
    MODEL_BROKEN = "model_broken"
    OUT_OF_MEMORY = "out_of_memory"
    CONFIG_ERROR = "config_error"
    ENGINE_ERROR = "engine_error"
    DISK_FULL = "disk_full"
    TIMED_OUT = "timed_out"
    CHILD_KILLED = "child_killed"
    AGENT_LOST = "agent_lost"
    AGENT_ERROR = "agent_error"


@dataclass(frozen=True, slots=True)
class FailureKind:
    """What a reason means to the dispatcher and to the user.

    retryable: another attempt may end differently. A deterministic failure is a result.
    """

    text: str
    fix: str
    retryable: bool


FAILURES: dict[FailureReason, FailureKind] = {
    FailureReason.MODEL_NOT_FOUND: FailureKind(
        "The model was not found",
        "Check the id or the folder, and that the agent reaches the hub or holds the files.",
        False,
    ),
    FailureReason.MODEL_UNSUPPORTED: FailureKind(
        "The engine does not support this architecture",
        "Use an engine version that lists the architecture, or another model.",
        False,
    ),
    FailureReason.MODEL_UNSAFE: FailureKind(
        "The model was refused: it would run code",
        "Provide safetensors or GGUF weights and a config without auto_map.",
        False,
    ),
    FailureReason.MODEL_BROKEN: FailureKind(
        "The model failed to load",
        "Compare the weights with config.json; the log names the first mismatch.",
        False,
    ),
    FailureReason.OUT_OF_MEMORY: FailureKind(
        "The model and its cache do not fit in memory",
        "Lower batch, context or precision, or use a larger device.",
        False,
    ),
    FailureReason.CONFIG_ERROR: FailureKind(
        "The engine refused the settings",
        "The log names the setting; change it in the study.",
        False,
    ),
    FailureReason.ENGINE_ERROR: FailureKind(
        "The engine failed while running",
        "The log holds the engine's own message.",
        True,
    ),
    FailureReason.DISK_FULL: FailureKind(
        "The agent's disk is full", "Free space on the agent's host; trials wait until then.", True
    ),
    FailureReason.TIMED_OUT: FailureKind(
        "The trial ran past its time limit",
        "Raise the study's time budget or shorten the workload.",
        False,
    ),
    FailureReason.CHILD_KILLED: FailureKind(
        "The trial's process was killed",
        "Usually the host ran out of memory: check its kernel log.",
        True,
    ),
    FailureReason.AGENT_LOST: FailureKind(
        "The agent stopped answering", "Check the agent's host and restart the agent.", True
    ),
    FailureReason.AGENT_ERROR: FailureKind(
        "The agent could not run the trial", "Run `python -m gpuagent doctor` on its host.", True
    ),
}


class Failure(WireModel):
    """A reason with what was seen: one line for people, details for the log."""

    reason: FailureReason
    message: Text
    detail: str | None = None

    @property
    def kind(self) -> FailureKind:
        return FAILURES[self.reason]
