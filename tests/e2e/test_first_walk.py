"""From no account to a gate: sign-up, token, agent, study, report, gate."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from advisor.ops.stack import REPO_DIR
from tests.e2e.conftest import DESKTOP, PASSWORD, Site, Watch, fill_workload, keep_picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="make test-e2e installs it")
expect = sync_api.expect

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500), pytest.mark.xdist_group("e2e")]


def test_from_sign_up_to_the_gate(
    chromium: Browser, site: Site, watch: Watch, tmp_path: Path
) -> None:
    context = chromium.new_context(base_url=site.url, viewport=DESKTOP)
    page = watch.follow(context.new_page())
    page.set_default_timeout(20_000)
    page.goto("/account/login/")
    keep_picture(page, "sign-in", "light")
    sign_up(page)

    token = page.locator("#secret").inner_text()
    environ = {**os.environ, "GPUAGENT_STATE_DIR": str(tmp_path), "GPUAGENT_MODEL_DIRS": ""}
    gpuagent = [sys.executable, "-m", "gpuagent"]
    register = ["register", "--server", site.url, "--token", token, "--name", "walker"]
    subprocess.run(
        [*gpuagent, *register, "--no-calibrate"], env=environ, cwd=REPO_DIR, check=True, timeout=90
    )
    agent = subprocess.Popen([*gpuagent, "run"], env=environ, cwd=REPO_DIR)
    try:
        study = run_simulated_study(page)
        with page.expect_download() as download:
            page.locator("summary").filter(has_text="Download").click()
            page.get_by_role("link", name="Download the report as Markdown").click()
        text = Path(download.value.path()).read_text()
        assert "Simulated" in text
        gate_says(site, study, create_token(page))
    finally:
        agent.terminate()
        agent.wait(30)
    context.close()


def sign_up(page: Page) -> None:
    """A new account, its empty first page, and a registration token."""
    page.get_by_role("link", name=re.compile("account")).first.click()
    page.get_by_label("Email").fill("walker@example.org")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password (again)").fill(PASSWORD)
    keep_picture(page, "sign-up", "light")
    page.get_by_role("button", name="Create account").click()
    page.get_by_role("heading", name="No study yet").wait_for()
    keep_picture(page, "studies-empty", "light")
    page.get_by_role("button", name="Create token").click()


def run_simulated_study(page: Page) -> str:
    """The id of a finished study, started in the browser."""
    page.goto("/studies/new/")
    page.get_by_role("radio", name="Simulated").check()
    fill_workload(page, requests=30, input_mean=256, output_mean=16)
    page.get_by_label("Time budget").fill("0.4")
    page.get_by_label("Name of the study").fill("first walk")
    page.get_by_role("button", name="Start study").last.click()
    page.wait_for_url(re.compile(r"/studies/[0-9a-f-]{36}/$"))
    keep_picture(page, "study-running", "light")
    page.locator("[data-live]").wait_for(state="detached", timeout=240_000)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Simulated")
    return page.url.rstrip("/").rpartition("/")[2]


def create_token(page: Page) -> str:
    page.goto("/organisation/")
    page.get_by_label("Name", exact=True).fill("gate")
    page.get_by_role("button", name=re.compile("Create.*token")).click()
    return page.locator("#secret").inner_text()


def gate_says(site: Site, study: str, token: str) -> None:
    """The command line judges the study: any verdict but an error."""
    environ = {**os.environ, "TUNING_ADVISOR_URL": site.url, "TUNING_ADVISOR_TOKEN": token}
    command = [sys.executable, "-m", "advisor.cli.main", "study", "gate", study, "--json"]
    answer = subprocess.run(
        command, env=environ, cwd=REPO_DIR, capture_output=True, text=True, timeout=60, check=False
    )
    assert answer.returncode in (0, 1, 3), answer.stderr
    assert '"exit_code"' in answer.stdout
