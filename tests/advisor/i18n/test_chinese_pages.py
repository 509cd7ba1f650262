"""The pages of a finished study in Chinese: no English sentence is left in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import Org, User
from advisor.fleet.models import Agent
from advisor.i18n import say as language_say
from advisor.pages import language
from advisor.studies.models import Study
from gpuagent.wire import LocalModel
from tests import builders, factories
from tests.advisor.i18n.english import english_left

# Names in texts, which stay as they are: the sample study's own, tools, GPUs, sources.
NAMES = (
    "Sample (simulated): chat on 2 × H100",
    "vllm bench serve",
    "attention, baseline, batching, calibrate, kernels, kv_cache, profile, quantisation, serve",
    "Jetson AGX Orin",
    "The folder holds pickled weights only.",  # said by the agent of the factories
)
CHINESE = {"HTTP_ACCEPT_LANGUAGE": "zh-CN,zh;q=0.9,en;q=0.5"}


@pytest.fixture
def browser(alice: User, org: Org, signed_in: Callable[[User], Client]) -> Client:
    client = signed_in(alice)
    client.defaults.update(CHINESE)
    return client


def check(browser: Client, addresses: tuple[str, ...]) -> None:
    left = {}
    for address in addresses:
        page = browser.get(address).content.decode()
        assert '<html lang="zh-hans">' in page, address
        if found := english_left(page, NAMES):
            left[address] = found
    assert not left


def test_no_english_sentence_is_left(browser: Client, agent: Agent) -> None:
    check(
        browser,
        (
            "/studies/",
            "/studies/new/",
            "/rules/",
            "/rules/kv-cache-ineffective/",
            "/model/?model=Qwen/Qwen3-32B&device=gpu:H100 SXM&isl=1000&osl=256",
            "/agents/",
            f"/agents/{agent.slug}/",
            "/traces/",
            "/imports/",
            "/organisation/",
            "/account/",
            "/nowhere/",
            "/offline/",
        ),
    )


NUMBER = re.compile(r"\d[\d,.]*\d|\d")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Every text that a page says, with its translation."""
    found: dict[str, str] = {}

    def recording(text: str, *args: Any) -> str:
        found[text] = language_say(text, *args)
        return found[text]

    monkeypatch.setattr(language, "say", recording)
    return found


@pytest.mark.services
def test_a_finished_study_has_no_english_and_the_same_numbers(
    browser: Client, agent: Agent, said: dict[str, str]
) -> None:
    browser.post("/studies/sample/")
    study = Study.objects.get()
    trials = [str(trial.pk) for trial in study.trials.order_by("ordinal")]
    check(
        browser,
        (
            f"/studies/{study.pk}/",
            f"/studies/{study.pk}/report.html",
            f"/studies/{study.pk}/diagnose/throughput/",
            f"/studies/{study.pk}/diagnose/memory/",
            f"/studies/{study.pk}/what-if/?t0-metric=ttft_s&t0-statistic=p50&t0-limit=40",
            *(f"/trials/{trials[3]}/?tab={tab}" for tab in ("timing", "rate", "server", "log")),
            *(f"/trials/{trials[3]}/?tab={tab}" for tab in ("memory", "settings")),
            f"/compare/?trials={trials[0]}&trials={trials[1]}",
            f"/rules/{study.findings.first().rule_id}/",
        ),
    )
    changed = {
        text: translated
        for text, translated in said.items()
        if Counter(NUMBER.findall(text)) != Counter(NUMBER.findall(translated))
    }
    assert len(said) > 500
    assert not changed


def test_data_stays_english(browser: Client, org: Org, agent: Agent) -> None:
    spec = builders.make_study_spec(model=LocalModel(name="Baseline"))
    study = factories.create_study(org, agent=agent, name="Running", spec=spec)
    page = browser.get(f"/studies/{study.pk}/").content.decode()
    # A study that is called as a word of the product keeps its name; so does its model.
    assert "<title>Running ·" in page
    assert "<dd>Baseline</dd>" in page
    answer = browser.get(f"/api/v1/studies/{study.pk}")
    assert "Content-Language" not in answer.headers
    assert answer.json()["name"] == "Running"
    assert "verdict" not in browser.get("/api/v1/studies/nothing").json().get("message", "")


@pytest.fixture
def agent(org: Org) -> Agent:
    return factories.create_agent(org, "bench-1")


@pytest.mark.parametrize("accepted", ["zh", "zh-CN", "zh-Hans", "zh-Hans-CN", "fr, zh;q=0.4"])
@pytest.mark.django_db
def test_every_name_of_chinese_is_understood(client: Client, accepted: str) -> None:
    response = client.get("/account/login/", headers={"accept-language": accepted})
    assert response.headers["Content-Language"] == "zh-hans"
    assert {"Accept-Language", "Cookie"} <= {v.strip() for v in response.headers["Vary"].split(",")}


@pytest.mark.django_db
def test_the_switch_is_kept_and_leads_back(client: Client) -> None:
    page = client.get("/account/login/?next=/rules/").content.decode()
    assert '<html lang="en-gb">' in page
    assert 'value="zh-hans" lang="zh-hans">简体中文<' in page
    answer = client.post(
        "/language/", {"language": "zh-hans", "next": "/account/login/?next=/rules/"}
    )
    assert answer.headers["Location"] == "/account/login/?next=/rules/"
    cookie = answer.cookies["django_language"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    # The choice counts more than the browser.
    again = client.get("/account/login/", headers={"accept-language": "en"})
    assert again.headers["Content-Language"] == "zh-hans"
    assert 'value="en-gb" lang="en-gb">English<' in again.content.decode()


@pytest.mark.django_db
def test_the_switch_leads_nowhere_else(client: Client) -> None:
    answer = client.post("/language/", {"language": "tlh", "next": "https://evil.example/"})
    assert answer.headers["Location"] == "/"
    assert "django_language" not in answer.cookies
