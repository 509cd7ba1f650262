"""What can go wrong while a trace is read, as one exception with a stable code."""

from __future__ import annotations


class TraceError(Exception):
    """A file that cannot be analysed; the message names the problem and the fix."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def truncated(detail: str) -> TraceError:
    """The file ends before its data does."""
    return TraceError(
        "truncated",
        f"The file ends early ({detail}). Copy it again, or let the profiler finish writing it.",
    )


def malformed(detail: str) -> TraceError:
    """The file breaks its own format."""
    return TraceError("malformed", f"The file cannot be read: {detail}.")


def over_limit(what: str, limit: str) -> TraceError:
    """The file is larger, deeper or denser than this reader accepts."""
    return TraceError(
        "too_large", f"The file has {what}; the limit is {limit}. Record a shorter window."
    )
