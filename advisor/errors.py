"""Errors that a user may see: a stable code, a sentence with the fix, an HTTP status.

Raised by services; pages show `message` and `fields` in the form, the API answers
`{code, message, fields}`. Anything else is a bug and becomes a 500 without details.
"""

from __future__ import annotations


class AdvisorError(Exception):
    """Base of all expected errors."""

    code = "error"
    status = 400

    def __init__(self, message: str, fields: dict[str, list[str]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields or {}


class InvalidInput(AdvisorError):
    """Something the user sent; `fields` says what to change where."""

    code = "invalid"
    status = 400


class NotFound(AdvisorError):
    code = "not_found"
    status = 404


class Forbidden(AdvisorError):
    code = "forbidden"
    status = 403


class Conflict(AdvisorError):
    """The object is in a state that does not allow this."""

    code = "conflict"
    status = 409


class StaleLease(Conflict):
    """The lease is no longer the newest: another attempt, a cancel or the sweeper ended it."""

    code = "stale_lease"


class WireVersionRefused(AdvisorError):
    code = "wire_version"
    status = 426


class IdempotencyMismatch(AdvisorError):
    """The same Idempotency-Key came with another body."""

    code = "idempotency_mismatch"
    status = 422


class TooLarge(AdvisorError):
    code = "too_large"
    status = 413


class StorageFull(AdvisorError):
    code = "storage_full"
    status = 507
