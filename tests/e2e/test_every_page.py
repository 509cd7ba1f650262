"""Every page, in both colour schemes and on a phone: no violation, no overflow, keyboard first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import DESKTOP, PHONE, Site, Watch, keep_picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="make test-e2e installs it")
axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
expect = sync_api.expect

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500), pytest.mark.xdist_group("e2e")]

PAGES = {
    "studies": "/studies/",
    "study-new": "/studies/new/",
    "study": "STUDY",
    "report": "STUDYreport.html",
    "what-if": "STUDYwhat-if/?t0-metric=ttft_s&t0-statistic=p50&t0-limit=40000",
    "shared-report": "SHARE",
    "shared-ended": "/r/nothing/",
    "trial-timing": "TRIAL?tab=timing",
    "diagnose-memory": "STUDYdiagnose/memory/",
    "diagnose-throughput": "STUDYdiagnose/throughput/",
    "trial-memory": "TRIAL?tab=memory",
    "trial-kernels": "TRIAL?tab=kernels",
    "trial-settings": "TRIAL?tab=settings",
    "trial-telemetry": "TRIAL?tab=telemetry",
    "trial-environment": "TRIAL?tab=environment",
    "trial-log": "TRIAL?tab=log",
    "model": "/model/",
    "traces": "/traces/",
    "imports": "/imports/",
    "compare": "/compare/",
    "agents": "/agents/",
    "agent": "/agents/local/",
    "rules": "/rules/",
    "rule": "RULE",
    "organisation": "/organisation/",
    "account": "/account/",
    "password": "/account/password/change/",
    "not-found": "/nowhere/",
}
"""Name of the picture -> address; a word in capitals stands for what `addresses` finds."""
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


@pytest.fixture(scope="module")
def addresses(
    chromium: Browser, site: Site, session_state: dict[str, Any], finished_study: str
) -> dict[str, str]:
    """What the words in PAGES stand for."""
    context = chromium.new_context(base_url=site.url, storage_state=session_state)
    page = context.new_page()
    page.goto(finished_study)
    trial = page.get_by_role("region", name="Trials").get_by_role("link").first
    rule = page.locator("article.finding").first.get_by_role("link", name="Rule:")
    found = {
        "STUDY": finished_study,
        "TRIAL": str(trial.get_attribute("href")),
        "RULE": str(rule.get_attribute("href")),
    }
    page.get_by_role("button", name="Create link").click()
    found["SHARE"] = page.locator("#share-url").inner_text()
    context.close()
    return found


def address(name: str, addresses: dict[str, str]) -> str:
    for word, value in addresses.items():
        name = name.replace(word, value, 1) if name.startswith(word) else name
    return name


def violations(page: Page) -> list[str]:
    """What axe-core finds against WCAG 2.2 A and AA, one line per element."""
    found = axe.run(page, options=WCAG).response["violations"]
    return [f"{v['id']}: {node['html'][:160]}" for v in found for node in v["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(
    chromium: Browser,
    site: Site,
    session_state: dict[str, Any],
    addresses: dict[str, str],
    watch: Watch,
    scheme: Any,
) -> None:
    context = chromium.new_context(
        base_url=site.url, storage_state=session_state, viewport=DESKTOP, color_scheme=scheme
    )
    found = {}
    watch.expected.add(404)
    page = watch.follow(context.new_page())
    for name, where in PAGES.items():
        page.goto(address(where, addresses))
        page.wait_for_load_state("networkidle")
        keep_picture(page, name, scheme)
        if complaints := violations(page):
            found[name] = complaints
    context.close()
    assert not found


def px_too_wide(page: Page) -> int:
    """Pixels by which the page is wider than its window: more than 0 scrolls sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def test_no_page_scrolls_sideways_on_a_phone(
    chromium: Browser,
    site: Site,
    session_state: dict[str, Any],
    addresses: dict[str, str],
    watch: Watch,
) -> None:
    context = chromium.new_context(
        base_url=site.url, storage_state=session_state, viewport=PHONE, has_touch=True
    )
    wide = {}
    watch.expected.add(404)
    page = watch.follow(context.new_page())
    for name, where in PAGES.items():
        page.set_viewport_size({**PHONE, "width": 390})
        page.goto(address(where, addresses))
        page.wait_for_load_state("networkidle")
        keep_picture(page, name, "390")
        page.set_viewport_size(PHONE)
        if (over := px_too_wide(page)) > 0:
            wide[name] = over
    context.close()
    assert not wide


IN_CHINESE = ("studies", "study-new", "study", "report", "trial-timing", "model", "agent", "rule")


def test_the_pages_in_chinese(
    chromium: Browser,
    site: Site,
    session_state: dict[str, Any],
    addresses: dict[str, str],
    watch: Watch,
) -> None:
    """Other words have other widths: accessible, and no wider than a phone."""
    context = chromium.new_context(
        base_url=site.url, storage_state=session_state, viewport=DESKTOP, locale="zh-CN"
    )
    found = {}
    page = watch.follow(context.new_page())
    for name in IN_CHINESE:
        page.set_viewport_size(DESKTOP)
        page.goto(address(PAGES[name], addresses))
        page.wait_for_load_state("networkidle")
        assert page.locator("html").get_attribute("lang") == "zh-hans"
        keep_picture(page, name, "zh")
        complaints = violations(page)
        page.set_viewport_size(PHONE)
        if (over := px_too_wide(page)) > 0:
            complaints.append(f"{over} px wider than a phone")
        if complaints:
            found[name] = complaints
    context.close()
    assert not found


def test_the_language_is_switched_by_keyboard_and_without_scripts(
    chromium: Browser, site: Site, session_state: dict[str, Any], watch: Watch
) -> None:
    context = chromium.new_context(
        base_url=site.url, storage_state=session_state, java_script_enabled=False
    )
    page = watch.follow(context.new_page())
    page.goto("/rules/?of=here")
    page.get_by_role("button", name="简体中文").focus()
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    assert page.url.endswith("/rules/?of=here")
    page.goto("/studies/")
    expect(page.get_by_role("button", name="English")).to_be_visible()
    context.close()


def test_the_keyboard_reaches_the_content_and_shows_where_it_is(page: Page) -> None:
    page.goto("/studies/new/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("radio", name="Folder on the agent")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="config.json")).to_be_checked()
    expect(page.get_by_label("Or paste it")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Name of the model")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_a_token_is_shown_once_and_the_api_reference_opens(page: Page) -> None:
    page.goto("/organisation/")
    page.get_by_label("Name", exact=True).fill("CI gate")
    page.get_by_role("button", name=re.compile("Create.*token")).click()
    expect(page.locator("#secret")).to_contain_text(re.compile("^ta_"))
    page.goto("/organisation/")
    expect(page.locator("#secret")).to_have_count(0)
    page.get_by_role("contentinfo").get_by_role("link", name="API reference").click()
    expect(page.get_by_role("heading", name="LLM Tuning Advisor").first).to_be_visible()


def test_an_address_that_is_wrong_says_so(page: Page, watch: Watch) -> None:
    watch.expected.add(404)
    page.goto("/studies/00000000-0000-0000-0000-000000000000/")
    expect(page.get_by_role("heading", name="Nothing is here")).to_be_visible()
