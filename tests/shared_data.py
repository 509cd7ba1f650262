"""Where the shared reference data lies, and the marker for tests that read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_CANDIDATES = (
    os.environ.get("ADVISOR_SHARED_DIR", ""),
    str(Path(__file__).resolve().parents[2] / "shared"),
)

SHARED: Path | None = next((Path(c) for c in _CANDIDATES if c and Path(c).is_dir()), None)

needs_shared = pytest.mark.skipif(SHARED is None, reason="../shared is not beside the checkout")
