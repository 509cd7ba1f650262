"""Prints a page with a headless Chromium: found, run in a profile of its own, killed if it hangs.

The page is ours; its policy allows neither script nor network, and the browser resolves no name.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Final

from advisor.errors import AdvisorError

VARIABLE: Final = "ADVISOR_CHROMIUM"
"""Environment: path of the browser; where it is set, nothing else is looked for."""
FLAGS_VARIABLE: Final = "ADVISOR_CHROMIUM_FLAGS"
PRINT_S: Final = 20.0
WAIT_S: Final = 5.0
_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
    "microsoft-edge",
)
_INSTALLED = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_PLAYWRIGHT = ("chromium-*/chrome-linux*/chrome", "chromium_headless_shell-*/*/*headless*shell")
_OFFLINE = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--no-pdf-header-footer",
)
# A browser takes a few hundred MiB: one at a time in each process of the server.
_one = threading.Lock()


class PdfUnavailable(AdvisorError):
    """No browser, or it did not print; the message says which, and what to do."""

    code = "pdf_unavailable"
    status = 503


def find_browser() -> str | None:
    """Path of a Chromium or Chrome: ADVISOR_CHROMIUM, PATH, the usual places, Playwright's."""
    named = os.environ.get(VARIABLE)
    if named:
        return shutil.which(named)
    if found := next(filter(None, map(shutil.which, _NAMES)), None):
        return found
    cache = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    folder = Path(cache) if cache not in ("", "0") else Path.home() / ".cache/ms-playwright"
    candidates = [Path(path) for path in _INSTALLED]
    for pattern in _PLAYWRIGHT:
        candidates += sorted(folder.glob(pattern), reverse=True)
    return next((str(path) for path in candidates if os.access(path, os.X_OK)), None)


def print_pdf(html: bytes, *, timeout_s: float = PRINT_S) -> bytes:
    """The page as PDF. Raises PdfUnavailable."""
    browser = find_browser()
    if browser is None:
        raise PdfUnavailable(
            "PDF needs Chromium or Chrome on the server, and none was found. Install it, or set"
            f" {VARIABLE} to its path. The HTML report prints to the same PDF from any browser."
        )
    if not _one.acquire(timeout=WAIT_S):
        raise PdfUnavailable("Another PDF is being printed. Try again in a few seconds.")
    try:
        with tempfile.TemporaryDirectory(prefix="advisor-pdf-", ignore_cleanup_errors=True) as name:
            return _print(browser, html, Path(name), timeout_s)
    finally:
        _one.release()


def _print(browser: str, html: bytes, folder: Path, timeout_s: float) -> bytes:
    page, target = folder / "report.html", folder / "report.pdf"
    page.write_bytes(html)
    command = [
        browser,
        *_OFFLINE,
        *_flags(),
        f"--user-data-dir={folder / 'profile'}",
        f"--print-to-pdf={target}",
        page.as_uri(),
    ]
    # A group of its own, so that a browser that hangs is killed with all of its processes.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
        # Whatever it writes beside its profile stays in the folder too.
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")},
    )
    try:
        _, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise PdfUnavailable(
            f"The browser did not print within {timeout_s:.0f} s. Try again, or take the HTML."
        ) from None
    finally:
        _end(process)
    if not target.exists():
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1][:300] if lines else f"it exited with {process.returncode}"
        raise PdfUnavailable(f"The browser did not print: {why}")
    return target.read_bytes()


def _flags() -> list[str]:
    # Chromium refuses to start its sandbox as root.
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*root, *os.environ.get(FLAGS_VARIABLE, "").split()]


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone already
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
