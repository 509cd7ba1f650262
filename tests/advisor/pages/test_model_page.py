"""The Model page and the price form: answers, errors beside fields, no markup from users."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import GpuPrice, Org
from advisor.fleet.models import Agent
from tests.advisor.pages.conftest import MARKUP
from tests.builders import SMOLLM2_CONFIG

pytestmark = pytest.mark.django_db
URL = "/model/"


def typed(**changes: Any) -> dict[str, Any]:
    return {
        "model": "Qwen/Qwen3-32B",
        "device": "gpu:H100 SXM",
        "engine": "vllm",
        "tp": "2",
        "isl": "1024",
        "osl": "512",
        "concurrency": "16",
        **changes,
    }


def text_of(answer: Any) -> str:
    return unescape(answer.content.decode()).replace("\xa0", " ")


def test_the_page_answers_before_anything_is_typed(viewer: Client, org: Org) -> None:
    text = text_of(viewer.get(URL))
    assert "Qwen3-32B fits on 1 × H100 SXM" in text
    assert "90 % intervals" in text


def test_an_agents_own_folder_on_its_own_hardware_comes_first(viewer: Client, agent: Agent) -> None:
    text = text_of(viewer.get(URL))
    assert "SmolLM2-135M-Instruct fits on CPU host, 2 cores" in text
    assert "from the roofline alone" in text


def test_a_question_gives_memory_latency_cost_and_other_gpus(viewer: Client, org: Org) -> None:
    answer = viewer.get(URL, typed(peak_rate="20"))
    page = answer.context["page"]
    assert page.title.startswith("Qwen/Qwen3-32B fits on 2")
    assert sum(piece.width for piece in page.slices) == pytest.approx(100, abs=0.1)
    assert [group[0].id for group in page.charts] == ["predicted-tpot", "predicted-ttft"]
    assert all(group[0].figure for group in page.charts)
    assert any(row.chosen for row in page.options)
    assert [row.kind for row in page.day] == ["fixed", "autoscaled", "spot"]
    assert {"On-demand", "Spot"} <= {row.market for row in page.costs}
    text = text_of(answer)
    assert "replicas for 20" in text
    assert "fitted on" in text


def test_the_link_leads_to_the_same_answer(viewer: Client, org: Org) -> None:
    posted = viewer.post(URL, typed(tp="4"))
    again = viewer.get(posted.context["link"])
    assert again.context["page"] == posted.context["page"]


def test_what_does_not_fit_says_so_and_shows_no_times(viewer: Client, org: Org) -> None:
    answer = viewer.get(URL, typed(model="meta-llama/Llama-3.1-70B", tp="1"))
    page = answer.context["page"]
    assert answer.status_code == 200
    assert page.status[0] == "bad"
    assert page.charts == ()
    assert page.costs == ()
    assert any("smallest tensor-parallel size" in note for note in page.notes)
    assert sum(piece.width for piece in page.slices) == pytest.approx(100, abs=0.1)


def test_a_pasted_config_is_computed_and_kept_in_the_form(viewer: Client, org: Org) -> None:
    answer = viewer.post(URL, typed(tp="1", config_text=json.dumps(SMOLLM2_CONFIG)))
    assert "135 M" in text_of(answer)
    assert answer.context["link"] is None
    assert "num_hidden_layers" in text_of(answer)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": "nobody/nothing"}, "model"),
        ({"model": ""}, None),
        ({"device": "gpu:H1000"}, "device"),
        ({"device": "agent:elsewhere"}, "device"),
        ({"device": ""}, None),
        ({"tp": "two"}, "tp"),
        ({"tp": "0"}, "tp"),
        ({"isl": "1e40"}, "isl"),
        ({"engine": "mystery"}, "engine"),
        ({"quant": "magic"}, "quant"),
        ({"peak_rate": "much"}, "day_req_s"),
        ({"day_req_s": "1, 2, x"}, "day_req_s"),
        ({"config_text": "not json"}, "config_text"),
        ({"config_text": '{"model_type": "bert"}'}, "config_text"),
    ],
)
def test_what_cannot_be_is_told_beside_its_field(
    viewer: Client, org: Org, changes: dict[str, Any], field: str | None
) -> None:
    answer = viewer.post(URL, typed(**changes))
    assert answer.status_code == 400
    errors = answer.context["form"].errors
    assert (field or "__all__") in errors
    assert "No estimate yet" in text_of(answer)


def test_names_are_shown_as_text(viewer: Client, org: Org) -> None:
    answer = viewer.post(URL, typed(model=MARKUP, engine_version=MARKUP[:30]))
    assert answer.status_code == 400
    assert MARKUP not in answer.content.decode()


PRICES = "/organisation/prices/"


def test_an_own_price_is_set_shown_used_and_taken_back(
    browser: Client, viewer: Client, org: Org
) -> None:
    form = {"gpu": "H100 SXM", "usd_per_gpu_hour": "1.25", "reason": "Reserved, 12 months"}
    assert browser.post(PRICES, form).status_code == 302
    assert "Reserved, 12 months" in text_of(viewer.get("/organisation/"))
    (row,) = viewer.get(URL, typed()).context["page"].costs
    assert (row.market, row.per_hour) == ("Own price", "$2.50")
    browser.post(PRICES, {"gpu": "H100 SXM", "usd_per_gpu_hour": ""})
    assert not GpuPrice.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"usd_per_gpu_hour": "much"}, "usd_per_gpu_hour"),
        ({"usd_per_gpu_hour": "-1"}, "usd_per_gpu_hour"),
        ({"usd_per_gpu_hour": "nan"}, "usd_per_gpu_hour"),
        ({"gpu": "H1000"}, "gpu"),
        ({"reason": "x" * 200}, "reason"),
    ],
)
def test_a_price_that_cannot_be_is_told_beside_its_field(
    browser: Client, org: Org, changes: dict[str, Any], field: str
) -> None:
    answer = browser.post(PRICES, {"gpu": "L4", "usd_per_gpu_hour": "1", **changes})
    assert answer.status_code == 400
    assert field in answer.context["price_form"].errors
    assert not GpuPrice.objects.exists()
