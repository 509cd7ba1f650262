"""What can go wrong on an agent, with a stable reason; texts and fixes are in wire.FAILURES."""

from __future__ import annotations

from gpuagent.wire import Failure, FailureReason

MAX_MESSAGE = 1000
MAX_DETAIL = 16_000


class AgentError(Exception):
    """A trial cannot go on. `reason` decides whether another attempt makes sense."""

    def __init__(self, reason: FailureReason, message: str, *, detail: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.detail = detail

    def to_failure(self) -> Failure:
        """The wire value, cut to what the server stores."""
        detail = self.detail[-MAX_DETAIL:] if self.detail else None
        return Failure(reason=self.reason, message=self.message[:MAX_MESSAGE], detail=detail)


class CancelledByServer(Exception):
    """The trial was asked to stop; not a failure and not an error."""


class ConfigError(Exception):
    """The agent's own settings are missing or wrong: one sentence with what to run or set."""
