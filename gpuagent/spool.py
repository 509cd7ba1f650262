"""Outcomes that the server has not accepted yet, on disk, so that neither an outage of the server
nor a restart of the agent loses a finished trial.

One file per attempt, written whole, sent in the order of finishing. An entry leaves the spool when
the server accepted it, when its lease is over (kept aside for 72 hours), or when it is refused for
good.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from pydantic import ValidationError

from gpuagent.client import AdvisorClient, LeaseLost, Refused, Unreachable
from gpuagent.wire import TrialOutcome
from gpuagent.wire.protocol import Lease, ResultRequest

log = logging.getLogger(__name__)

KEEP_REJECTED_S = 72 * 3600


class Spool:
    """A folder of unsent outcomes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rejected = folder / "rejected"
        self._rejected.mkdir(parents=True, exist_ok=True)

    def put(self, lease: Lease, outcome: TrialOutcome) -> Path:
        """Store durably before anything is sent. Raises OSError where the disk is full."""
        name = f"{time.time_ns():020d}-{lease.trial_id}-{lease.epoch}.json"
        part = self._folder / f".{name}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(ResultRequest(lease=lease, outcome=outcome).model_dump_json())
            out.flush()
            os.fsync(out.fileno())
        target = self._folder / name
        part.replace(target)
        return target

    def pending(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.json"))

    def replay(self, client: AdvisorClient) -> int:
        """Send what waits, oldest first; stop at the first that cannot be delivered now.

        Returns how many were accepted. Raises nothing but programming errors.
        """
        accepted = 0
        for path in self.pending():
            try:
                request = ResultRequest.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):
                log.exception("unreadable outcome %s set aside", path.name)
                self._set_aside(path)
                continue
            try:
                client.result(request.lease, request.outcome)
            except Unreachable as error:
                log.warning("outcome of %s waits: %s", request.lease.trial_id, error)
                break
            except (LeaseLost, Refused) as error:
                log.warning("outcome of %s refused: %s", request.lease.trial_id, error)
                self._set_aside(path)
                continue
            path.unlink()
            accepted += 1
        self._forget_old()
        return accepted

    def _set_aside(self, path: Path) -> None:
        path.replace(self._rejected / path.name)

    def _forget_old(self) -> None:
        oldest = time.time() - KEEP_REJECTED_S
        for path in self._rejected.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
