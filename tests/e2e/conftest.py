"""A real installation, as `make run` starts it, and a real headless Chromium in front of it.

One installation, one account and one signed-in browser serve the whole leg: starting each costs
more than all that is looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from advisor.ops.stack import REPO_DIR, free_port
from tests.stack.conftest import DEMO_MODEL, TINY_LLAMA, demo_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response

__all__ = ["demo_model"]

PASSWORD = "a long pass phrase 7"
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
SCREENS = REPO_DIR / "build" / "screens"
"""Full-page pictures of every page, to look at; a CI run keeps them."""
CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_S = 240.0


# --- browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="make test-e2e installs it")
    path = os.environ.get("CHROME") or next(filter(None, map(shutil.which, CHROMES)), None)
    if path is None:
        pytest.skip("no Chromium on PATH (make test-e2e installs it)")
    with sync_api.sync_playwright() as playwright:
        # Root cannot use the sandbox; the pages are our own, on loopback.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Watch:
    """What the browser complained about. `expected`: statuses that a test asks for on purpose."""

    complaints: list[str] = field(default_factory=list)
    expected: set[int] = field(default_factory=set)

    def follow(self, page: Page) -> Page:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("response", self._response)
        return page

    def _console(self, message: ConsoleMessage) -> None:
        # A status is judged by `_response`, which knows the address.
        if message.type in ("error", "warning") and "the server responded with" not in message.text:
            self.complaints.append(f"{message.location.get('url')}: {message.text}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.complaints.append(f"{response.status} {response.url}")


# --- installation ------------------------------------------------------------------------------


@dataclass
class Site:
    """A running installation, with what it printed at its start."""

    url: str
    password_link: str
    process: subprocess.Popen[str]
    printed: list[str]


@pytest.fixture(scope="session")
def site(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`manage.py run_local` on an empty data folder; stopped by Ctrl-C, which leaves nothing."""
    data_dir = tmp_path_factory.mktemp("e2e")
    (data_dir / "models").mkdir()
    (data_dir / "models" / DEMO_MODEL).symlink_to(demo_model)
    quick = {
        "ADVISOR_DATA_DIR": str(data_dir),
        "ADVISOR_LEASE_RENEW_S": "1",
        "ADVISOR_AGENT_POLL_S": "2",
        "ADVISOR_SWEEP_EVERY_S": "2",
        "ADVISOR_HUB_CHECK": "0",
        "ADVISOR_OPEN_SIGNUP": "1",
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "manage.py", "run_local", "--port", str(free_port())],
        cwd=REPO_DIR,
        env={**os.environ, **quick},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    printed: list[str] = []
    reader = threading.Thread(target=lambda: printed.extend(process.stdout), daemon=True)
    reader.start()
    try:
        yield _started(process, printed)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        _, alive = psutil.wait_procs(children, timeout=10)
        assert not alive, f"Ctrl-C left {alive}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _started(process: subprocess.Popen[str], printed: list[str]) -> Site:
    deadline = time.monotonic() + START_S
    while "Ctrl-C" not in "".join(printed):
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError("the installation did not start:\n" + "".join(printed))
        time.sleep(0.1)
    text = "".join(printed)
    url = re.search(r"Dashboard: (\S+)", text)
    link = re.search(r"\S+/account/password/reset/key/\S+", text)
    assert url, text
    assert link, text
    return Site(url[1], link[0], process, printed)


def keep_picture(page: Page, name: str, look: str) -> None:
    """build/screens/<name>-<look>.png; look: light, dark or 390."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}-{look}.png", full_page=True)


# --- paint -------------------------------------------------------------------------------------

MOST_SHIFT = 0.05
"""Layout shift a page may have while it loads; 0.1 counts as good on the web at large."""
_WATCH_PAINT = """(() => {
  const seen = { shift: 0, fcp_ms: null, moved: [] };
  window.paintSeen = seen;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      seen.shift += entry.value;
      for (const { node } of entry.sources) seen.moved.push(String(node?.outerHTML).slice(0, 80));
    }
  }).observe({ type: "layout-shift", buffered: true });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.name === "first-contentful-paint") seen.fcp_ms = Math.round(entry.startTime);
    }
  }).observe({ type: "paint", buffered: true });
})();"""


def watch_paint(context: BrowserContext) -> None:
    """Every page of `context` counts what moves and when it first shows something."""
    context.add_init_script(_WATCH_PAINT)


@dataclass
class Paint:
    """shift: sum of layout shifts; fcp_ms: first contentful paint; plotly, figures: on the page."""

    shift: float
    fcp_ms: int | None
    moved: list[str]
    plotly: bool
    figures: bool

    def complaints(self) -> list[str]:
        found = []
        if self.shift > MOST_SHIFT:
            found.append(f"moves by {self.shift:.3f}: {self.moved}")
        if self.plotly != self.figures:
            found.append("loads plotly without a figure" if self.plotly else "lacks plotly")
        return found


def paint_of(page: Page) -> Paint:
    return Paint(
        **page.evaluate(
            "({...window.paintSeen, plotly: typeof Plotly !== 'undefined',"
            " figures: document.querySelector('[data-figure]') !== null})"
        )
    )


def keep_paint(look: str, paints: dict[str, Paint]) -> None:
    """build/paint-<look>.json: milliseconds of this machine, to read; nothing is asserted."""
    SCREENS.parent.mkdir(parents=True, exist_ok=True)
    lines = {name: {"fcp_ms": p.fcp_ms, "shift": round(p.shift, 4)} for name, p in paints.items()}
    (SCREENS.parent / f"paint-{look}.json").write_text(json.dumps(lines, indent=1) + "\n")


# --- signed in ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def session_state(chromium: Browser, site: Site) -> dict[str, Any]:
    """Cookies of the owner, who used the one-time link, signed out and signed in again."""
    watch = Watch()
    context = chromium.new_context(base_url=site.url, viewport=DESKTOP)
    page = watch.follow(context.new_page())
    page.goto(site.password_link)
    page.get_by_label("New Password", exact=True).fill("123")
    page.get_by_label("New Password (again)").fill("123")
    page.get_by_role("button", name="Set password").click()
    page.get_by_text("This password is too short").wait_for()
    page.get_by_label("New Password", exact=True).fill(PASSWORD)
    page.get_by_label("New Password (again)").fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()
    page.get_by_role("heading", name="No study yet").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.goto("/studies/")
    page.get_by_label("Email").fill("owner@localhost")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="No study yet").wait_for()
    state: dict[str, Any] = context.storage_state()
    context.close()
    assert not watch.complaints
    return state


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Fails the test whose pages put an error or a policy violation on the console."""
    watch = Watch()
    yield watch
    assert not watch.complaints


@pytest.fixture
def context(
    chromium: Browser, site: Site, session_state: dict[str, Any]
) -> Iterator[BrowserContext]:
    context = chromium.new_context(base_url=site.url, storage_state=session_state, viewport=DESKTOP)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, watch: Watch) -> Page:
    """A signed-in page that is watched."""
    page = context.new_page()
    page.set_default_timeout(15_000)
    return watch.follow(page)


# --- studies -----------------------------------------------------------------------------------


def fill_workload(page: Page, *, requests: int, input_mean: int, output_mean: int) -> None:
    page.get_by_label("Requests per trial").fill(str(requests))
    page.get_by_label("Input, mean").fill(str(input_mean))
    page.get_by_label("Output, mean").fill(str(output_mean))


def choose_config(page: Page, config: dict[str, Any] | bytes) -> None:
    """Take config.json as the kind of model and upload it."""
    raw = config if isinstance(config, bytes) else json.dumps(config).encode()
    page.get_by_role("radio", name="config.json").check()
    page.get_by_label("Upload config.json").set_input_files(
        {"name": "config.json", "mimeType": "application/json", "buffer": raw}
    )


@pytest.fixture(scope="session")
def finished_study(chromium: Browser, site: Site, session_state: dict[str, Any]) -> str:
    """Address of a study on a tiny model, made in the browser and watched until its verdict.

    It meets TTFT, misses ITL (a limit of one microsecond) and cannot prove p99. Its current
    settings have no KV cache, which every machine is slower without: that is to be recommended.
    """
    watch = Watch()
    context = chromium.new_context(base_url=site.url, storage_state=session_state, viewport=DESKTOP)
    page = watch.follow(context.new_page())
    page.goto("/studies/")
    page.get_by_role("link", name="New study").click()
    choose_config(page, TINY_LLAMA)
    page.get_by_label("Name of the model").fill("tiny llama")
    fill_workload(page, requests=12, input_mean=192, output_mean=16)
    page.get_by_label("KV cache", exact=True).select_option("Off")
    limits = page.get_by_label("Limit")
    statistics = page.get_by_label("Statistic")
    statistics.nth(0).select_option("p50")
    limits.nth(0).fill("30000")
    statistics.nth(1).select_option("p50")
    limits.nth(1).fill("0.001")
    page.get_by_role("button", name="Add target").click()
    page.get_by_label("Metric").nth(2).select_option("ttft_s")
    statistics.nth(2).select_option("p99")
    limits.nth(2).fill("30000")
    page.locator("#plan").get_by_text("Recognised").wait_for()
    page.get_by_role("button", name="Start study").last.click()
    page.wait_for_url(re.compile(r"/studies/[0-9a-f-]{36}/$"))
    url = page.url
    page.locator("[data-live]").wait_for(state="detached", timeout=400_000)
    page.get_by_role("heading", name="Targets").wait_for()
    context.close()
    assert not watch.complaints
    return url
