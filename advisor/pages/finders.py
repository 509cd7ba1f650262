"""Serves plotly.js from the installed plotly package, as `vendor/plotly.min.js`.

The script's version then always matches the figures, and no 5 MB file lives in the repository.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.checks import CheckMessage, Warning
from django.core.files.storage import FileSystemStorage

NAME = "plotly.min.js"
PREFIX = "vendor"


def plotly_folder() -> Path | None:
    """`plotly/package_data`, found without importing plotly (which takes a second)."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "package_data"
    return folder if (folder / NAME).is_file() else None


class PlotlyFinder(BaseFinder):
    """Finds one file. Without plotly every chart shows its table, and a check says so."""

    def check(self, **kwargs: object) -> list[CheckMessage]:
        if plotly_folder() is not None:
            return []
        return [
            Warning(
                "plotly is not installed: charts show their tables only.",
                hint="Install the web extra: pip install '.[web]'",
                id="advisor.W010",
            )
        ]

    def find(self, path: str, find_all: bool = False, **kwargs: object) -> str | list[str]:
        folder = plotly_folder()
        found = [str(folder / NAME)] if folder and path == f"{PREFIX}/{NAME}" else []
        return found if find_all else (found[0] if found else [])

    def list(
        self, ignore_patterns: Iterable[str] | None
    ) -> Iterable[tuple[str, FileSystemStorage]]:
        folder = plotly_folder()
        if folder is None or matches_patterns(NAME, list(ignore_patterns or ())):
            return
        storage = FileSystemStorage(location=str(folder))
        storage.prefix = PREFIX  # type: ignore[attr-defined]
        yield NAME, storage
