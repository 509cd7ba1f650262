"""The demo model, once for all engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent.demo_model import prepare


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    prepare(root)
    return root
