"""What a person does in the browser, from the study's verdict to the downloaded report."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import DEMO_MODEL, PASSWORD, Site, Watch, choose_config, fill_workload

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="make test-e2e installs it")
expect = sync_api.expect

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500), pytest.mark.xdist_group("e2e")]


# --- the way in --------------------------------------------------------------------------------


def test_the_link_sets_a_password_once(
    chromium: Browser, site: Site, session_state: object, watch: Watch
) -> None:
    context = chromium.new_context(base_url=site.url)
    page = watch.follow(context.new_page())
    page.goto(site.password_link)
    expect(page.get_by_role("heading", name="This link was used or is too old")).to_be_visible()
    context.close()


def test_a_wrong_password_says_so_and_a_right_one_leads_on(
    chromium: Browser, site: Site, session_state: object, watch: Watch
) -> None:
    context = chromium.new_context(base_url=site.url)
    page = watch.follow(context.new_page())
    page.goto("/agents/")
    page.get_by_label("Email").fill("owner@localhost")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not correct")
    expect(page.get_by_label("Email")).to_have_value("owner@localhost")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Agents", exact=True)).to_be_visible()
    context.close()


# --- a finished study --------------------------------------------------------------------------


def test_the_verdict_comes_first_then_targets_with_intervals(
    page: Page, finished_study: str
) -> None:
    page.goto(finished_study)
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("ITL")
    headings = page.get_by_role("heading").all_inner_texts()
    assert headings[0] == heading.inner_text()
    cells = page.locator(".target")
    expect(cells).to_have_count(3)
    expect(cells.nth(0)).to_contain_text("Met")
    expect(cells.nth(1)).to_contain_text("Missed")
    expect(cells.nth(2)).to_contain_text("Not proven")
    for index in (0, 1):
        interval = cells.nth(index).locator(".target__range").inner_text()
        assert re.search(r"\d.*(–| to ).*\d.*n\s=\s\d+", interval), interval
        assert re.search(
            r"\d\s*(ms|µs|s)$", cells.nth(index).locator(".target__value").inner_text()
        )


def test_findings_carry_evidence_and_lead_to_their_trial_and_rule(
    page: Page, finished_study: str
) -> None:
    page.goto(finished_study)
    card = page.locator("article.finding").first
    expect(card.locator(".evidence li").first).to_contain_text(re.compile(r"\d"))
    card.get_by_role("link", name=re.compile(r"trial \d")).first.click()
    expect(page.get_by_role("navigation", name="Trial sections")).to_be_visible()
    page.go_back()
    page.locator("article.finding").first.get_by_role("link", name="Rule:").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert "/rules/" in page.url


def test_the_latency_chart_is_drawn_by_plotly_and_its_data_is_a_table(
    page: Page, finished_study: str
) -> None:
    page.goto(finished_study)
    chart = page.locator("figure.chart[data-drawn]").first
    expect(chart.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    axes = chart.locator(".xtitle, .ytitle").all_text_contents()
    assert re.search(r"TTFT p50 \((ms|s|µs)\)", " ".join(axes)), axes
    assert chart.locator(".js-plotly-plot .trace path, .js-plotly-plot .point").count() > 0
    chart.get_by_text("Show data").first.click()
    assert chart.locator("table tbody tr").count() > 0
    dark = page.evaluate("getComputedStyle(document.body).color")
    page.get_by_role("button", name="Switch colour theme").click(click_count=2, delay=50)
    assert page.evaluate("getComputedStyle(document.body).color") != dark
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_settings_and_trials_are_on_the_page(page: Page, finished_study: str) -> None:
    page.goto(finished_study)
    expect(page.get_by_role("heading", name="Recommended settings")).to_be_visible()
    expect(page.locator("#launch .new")).to_contain_text(re.compile("cache"))
    expect(page.locator(".command__note").first).to_contain_text(re.compile(r"KV cache: off → on"))
    trials = page.get_by_role("region", name="Trials").get_by_role("row")
    assert trials.count() >= 3
    trials.nth(1).get_by_role("link").click()
    for name in ("Settings", "Telemetry", "Environment", "Log", "Timing"):
        page.get_by_role("navigation", name="Trial sections").get_by_role("link", name=name).click()
        expect(page.locator(".tab-body")).not_to_be_empty()


def test_without_a_script_the_page_has_its_charts_and_its_data(
    chromium: Browser, site: Site, session_state: dict, finished_study: str
) -> None:
    context = chromium.new_context(
        base_url=site.url, storage_state=session_state, java_script_enabled=False
    )
    page = context.new_page()
    page.goto(finished_study)
    expect(page.locator("figure.chart svg").first).to_be_visible()
    page.goto("/studies/new/")
    page.get_by_role("button", name="Add target").click()
    expect(page.get_by_label("Limit")).to_have_count(3)
    context.close()


def test_reports_are_downloaded_and_the_html_opens_without_a_network(
    page: Page, chromium: Browser, watch: Watch, finished_study: str, tmp_path: Path
) -> None:
    page.goto(finished_study)
    sentence = page.get_by_role("heading", level=1).inner_text()
    saved = {}
    page.locator("summary").filter(has_text="Download").click()
    for kind in ("HTML", "JSON", "PDF"):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download the report as {kind}").click()
        saved[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[kind])
    document = json.loads(saved["JSON"].read_text())
    assert sentence in json.dumps(document, ensure_ascii=False)

    assert saved["PDF"].read_bytes().startswith(b"%PDF-")

    offline = chromium.new_context(offline=True)
    asked: list[str] = []
    report = watch.follow(offline.new_page())
    report.on("request", lambda request: asked.append(request.url))
    report.goto(saved["HTML"].as_uri())
    assert asked == [saved["HTML"].as_uri()]
    expect(report.get_by_role("heading", level=1)).to_contain_text(sentence)
    drawing = report.locator("figure svg").first
    expect(drawing).to_be_visible()
    assert drawing.bounding_box()["height"] > 100
    offline.close()


def test_the_list_shows_the_study_and_its_filters_live_in_the_address(
    page: Page, finished_study: str
) -> None:
    page.goto("/studies/?status=attention")
    expect(page.get_by_role("row").filter(has_text="tiny llama")).to_contain_text("ITL p50")
    page.get_by_role("searchbox").fill("nothing of this name")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No study matches this filter.")).to_be_visible()


# --- a running study ---------------------------------------------------------------------------


def test_a_running_study_moves_without_reload_until_it_is_cancelled(
    page: Page, context: BrowserContext
) -> None:
    page.goto("/studies/new/")
    page.get_by_label("Model folder").select_option(DEMO_MODEL)
    fill_workload(page, requests=400, input_mean=64, output_mean=32)
    page.get_by_label("Name of the study").fill("to be cancelled")
    page.get_by_role("button", name="Start study").last.click()
    page.get_by_role("img", name=re.compile(r"[1-9][\d.]* % of the trial done")).wait_for(
        timeout=60_000
    )
    page.evaluate("window.mark = 1")
    before = page.locator("#live").inner_text()
    for _ in range(2):  # two different answers, not one that was late
        expect(page.locator("#live")).not_to_have_text(before, timeout=20_000)
        before = page.locator("#live").inner_text()
    assert page.evaluate("window.mark") == 1, "the page was loaded anew while its trial ran"

    agents = context.new_page()
    agents.goto("/agents/")
    card = agents.locator("article.agent").first
    expect(card).to_contain_text("to be cancelled")
    for words in (r"torch \d", r"\d+ cores", r"contact .* ago", DEMO_MODEL):
        expect(card).to_contain_text(re.compile(words))
    agents.close()

    page.bring_to_front()
    page.get_by_role("button", name="Cancel study").click()
    expect(page.get_by_role("status")).to_contain_text("Cancelling")
    page.locator("[data-live]").wait_for(state="detached", timeout=45_000)
    expect(page.get_by_role("heading", level=1)).to_contain_text("No verdict")


# --- bad input ---------------------------------------------------------------------------------


def test_bad_input_is_told_beside_its_field_and_nothing_typed_is_lost(
    page: Page, watch: Watch
) -> None:
    watch.expected.add(400)
    page.goto("/studies/new/")
    choose_config(page, b"{'single': 1}")
    page.get_by_label("Name of the model").fill("<script>alert(1)</script>")
    page.get_by_label("Request rate").fill("-1")
    page.get_by_label("Limit").first.fill("0")
    page.get_by_label("Name of the study").fill("Evening load")
    page.get_by_role("button", name="Start study").last.click()
    expect(page.get_by_role("alert").first).to_contain_text("The study did not start.")
    for label, words in (
        ("Or paste it", "not valid JSON"),
        ("Request rate", "above 0"),
    ):
        control = page.get_by_label(label)
        expect(control).to_have_attribute("aria-invalid", "true")
        expect(control).to_have_accessible_description(re.compile(words))
    expect(page.get_by_label("Limit").first).to_have_accessible_description(re.compile("above 0"))
    expect(page.get_by_label("Limit").first).to_have_value("0")
    expect(page.get_by_label("Request rate")).to_have_value("-1")
    expect(page.get_by_label("Or paste it")).to_have_value("{'single': 1}")
    expect(page.get_by_label("Name of the model")).to_have_value("<script>alert(1)</script>")
    expect(page.get_by_label("Name of the study")).to_have_value("Evening load")


def test_a_config_of_ten_megabytes_is_told_beside_its_field(page: Page, watch: Watch) -> None:
    watch.expected.add(400)
    page.goto("/studies/new/")
    page.get_by_label("Name of the study").fill("Evening load")
    choose_config(page, b" " * 10_000_000)
    page.get_by_role("button", name="Start study").last.click()
    expect(page.get_by_role("alert").first).to_contain_text("The study did not start.")
    expect(page.locator("#id_config_file_error")).to_contain_text("MiB")
    expect(page.get_by_label("Name of the study")).to_have_value("Evening load")


def test_an_upload_says_what_is_wrong_and_can_be_cancelled(
    page: Page, context: BrowserContext, watch: Watch
) -> None:
    watch.expected.add(400)
    page.goto("/traces/")
    wrong = {"name": "wrong.json", "mimeType": "application/json", "buffer": b'{"a": 1}'}
    page.locator("input[type=file]").set_input_files(wrong)
    page.get_by_role("button", name="Analyse").click()
    expect(page.locator(".field__errors")).to_contain_text("traceEvents")

    slow = context.new_cdp_session(page)
    slow.send("Network.enable")
    speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": 100_000}
    slow.send("Network.emulateNetworkConditions", {"offline": False, **speed})
    large = {**wrong, "name": "large.json", "buffer": b" " * 2_000_000}
    page.locator("input[type=file]").set_input_files(large)
    page.get_by_role("button", name="Analyse").click()
    expect(page.get_by_role("button", name=re.compile(r"\d %, about \d+ s left"))).to_be_disabled()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Analyse")).to_be_enabled()
