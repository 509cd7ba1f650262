"""Which Python has an engine, and in which version, asked without importing the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec


@lru_cache(maxsize=8)
def python_of(package: str, variable: str) -> str | None:
    """The Python that has `package`: of the environment variable, else the agent's own."""
    given = os.environ.get(variable)
    if given:
        return given if package_version(given, package) else None
    return sys.executable if find_spec(package) is not None else None


@lru_cache(maxsize=64)
def package_version(python: str | None, package: str) -> str | None:
    """Version of `package`, or of its build for the CPU, in that Python; None where it has none."""
    if python is None:
        return None
    question = (
        "import sys\nfrom importlib import metadata\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(metadata.version(name)); break\n"
        "    except metadata.PackageNotFoundError: pass\n"
    )
    try:
        done = subprocess.run(
            [python, "-I", "-c", question, package, f"{package}-cpu"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
