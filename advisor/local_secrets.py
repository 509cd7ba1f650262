"""A secret for machines without a configured one, kept in the data folder, readable by its owner.

Public servers set ADVISOR_SECRET_KEY instead (`advisor.E001` says so).
"""

import os
import secrets
from pathlib import Path


def read_or_create_secret(path: Path) -> str:
    """Return the secret in `path`; make one if there is none. Safe when two processes start."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    secret = secrets.token_urlsafe(64)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secret)
    return secret
