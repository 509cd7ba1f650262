from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from advisor.accounts.models import Org
from advisor.fleet.models import Agent
from advisor.pages.forms.study import StudyForm
from advisor.studies.models import Study
from gpuagent.wire import ConfigModel, EngineSettings, LocalModel, SimulatedModel
from tests import factories
from tests.advisor.pages.conftest import MARKUP
from tests.builders import SMOLLM2_CONFIG

pytestmark = pytest.mark.django_db
URL = "/studies/new/"


def typed(**changes: Any) -> dict[str, Any]:
    """A complete form as a browser sends it."""
    return {
        "name": "Evening load",
        "model_kind": "local",
        "local_model": "SmolLM2-135M-Instruct",
        "preset": "chat",
        "input_mean": "64",
        "input_p95": "128",
        "output_mean": "20",
        "output_p95": "",
        "request_rate": "",
        "requests": "60",
        "t0-metric": "ttft_s",
        "t0-statistic": "p95",
        "t0-limit": "500",
        "t1-metric": "memory_bytes",
        "t1-statistic": "peak",
        "t1-limit": "1.5",
        "dtype": "bfloat16",
        "kv_cache": "true",
        "attention": "auto",
        "threads": "",
        "agent": "bench-1",
        "budget_min": "30",
        "action": "start",
        **changes,
    }


def config_form(text: str, **changes: Any) -> dict[str, Any]:
    return typed(**{"model_kind": "config", "config_name": "bare", "config_text": text, **changes})


def test_a_complete_form_starts_a_study(browser: Client, org: Org, agent: Agent) -> None:
    answer = browser.post(URL, typed())
    study = Study.objects.get()
    assert answer.status_code == 302
    assert answer.url == reverse("study", args=[study.pk])
    assert study.org == org
    spec = study.spec
    assert spec.name == "Evening load"
    assert spec.model == LocalModel(name="SmolLM2-135M-Instruct")
    assert (spec.targets[0].limit, spec.targets[1].limit) == (0.5, 1.5 * 1024**3)
    assert spec.workload.input_tokens.kind == "lognormal"
    assert spec.workload.input_tokens.maximum == 256
    assert spec.workload.output_tokens.kind == "fixed"
    assert spec.workload.request_rate_per_s is None
    assert spec.current.dtype == "bfloat16"
    assert spec.budget_s == 1800
    assert study.trials.count() >= 1


def test_the_first_visit_fills_in_what_fits_the_agent(browser: Client, agent: Agent) -> None:
    page = browser.get(URL).content.decode()
    assert 'value="bench-1" checked' in page
    assert "SmolLM2-135M-Instruct (bench-1)" in page
    assert "pickled (bench-1: not usable)" in page
    assert 'name="t0-limit" value="500"' in page


def test_it_works_without_any_agent(browser: Client, org: Org) -> None:
    page = browser.get(URL).content.decode()
    assert "No agent offers a folder yet" in page
    answer = browser.post(URL, config_form(json.dumps(SMOLLM2_CONFIG), agent=""))
    assert answer.status_code == 302
    assert Study.objects.get().state == "waiting"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"t0-limit": "0"}, "t0-limit", "above 0"),
        ({"t0-limit": "nan"}, "t0-limit", "number"),
        ({"t0-limit": "fast"}, "t0-limit", "Enter a number."),
        ({"t0-limit": ""}, "t0-limit", "Enter a number."),
        ({"request_rate": "-3"}, "id_request_rate", "above 0"),
        ({"request_rate": "inf"}, "id_request_rate", "number"),
        ({"requests": "1.5"}, "id_requests", "whole number"),
        ({"input_mean": "0"}, "id_input_mean", "at least 1"),
        ({"input_p95": "3"}, "id_input_p95", "between 1 and 3.8"),
        ({"budget_min": "0"}, "id_budget_min", "above 0"),
        ({"budget_min": ""}, "id_budget_min", "number"),
        ({"threads": "0"}, "id_threads", "at least 1"),
        ({"model_kind": "hub", "hub_id": "no slash"}, "id_hub_id", "owner/name"),
        ({"model_kind": "hub", "hub_id": ""}, "id_hub_id", "owner/name"),
        ({"model_kind": "hub", "hub_id": "a/b", "hub_revision": "main"}, "id_hub_revision", "40"),
        ({"local_model": "pickled"}, "id_local_model", "pickled weights"),
        ({"agent": ""}, "agent", "needs the agent"),
    ],
)
def test_a_wrong_value_is_an_error_beside_its_field(
    browser: Client, agent: Agent, changes: dict[str, str], field: str, words: str
) -> None:
    answer = browser.post(URL, typed(**changes))
    page = answer.content.decode()
    assert answer.status_code == 400
    assert not Study.objects.exists()
    start = page.index(f'id="{field}_error"')
    assert words in page[start : start + 600]


def test_nothing_typed_is_lost(browser: Client, agent: Agent) -> None:
    page = browser.post(URL, typed(**{"t0-limit": "zero", "name": "Kept & safe"})).content.decode()
    assert 'value="zero"' in page
    assert 'value="Kept &amp; safe"' in page
    assert '<option value="bfloat16" selected' in page
    assert 'value="1.5"' in page


def test_two_equal_targets_are_told_in_words(browser: Client, agent: Agent) -> None:
    same = {"t1-metric": "ttft_s", "t1-statistic": "p95", "t1-limit": "1"}
    page = browser.post(URL, typed(**same)).content.decode()
    assert "Two targets for TTFT p95: keep one of them." in page


def test_an_agent_of_another_organisation_is_no_choice(
    browser: Client, agent: Agent, charlie: Any
) -> None:
    other = factories.create_agent(charlie.memberships.get().org, "their-gpu")
    assert other.slug not in browser.get(URL).content.decode()
    answer = browser.post(URL, typed(agent=other.slug))
    assert answer.status_code == 400
    assert not Study.objects.exists()


def test_an_empty_name_becomes_model_and_preset(browser: Client, agent: Agent) -> None:
    browser.post(URL, typed(name=""))
    assert Study.objects.get().name == "SmolLM2-135M-Instruct chat"


# --- config.json -------------------------------------------------------------------------------


def upload(raw: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("config.json", raw, content_type="application/json")


def test_an_uploaded_config_becomes_the_model(browser: Client, agent: Agent) -> None:
    form = config_form("", config_file=upload(json.dumps(SMOLLM2_CONFIG).encode()))
    assert browser.post(URL, form).status_code == 302
    assert Study.objects.get().spec.model == ConfigModel(name="bare", config=SMOLLM2_CONFIG)


def test_a_config_without_a_name_takes_its_architecture(browser: Client, agent: Agent) -> None:
    browser.post(URL, config_form(json.dumps(SMOLLM2_CONFIG), config_name="", name=""))
    study = Study.objects.get()
    assert study.spec.model.label == "LlamaForCausalLM"
    assert study.name == "LlamaForCausalLM chat"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Upload a config.json or paste its text."),
        ("{'single': 1}", "not valid JSON"),
        ("[1, 2]", "must be a JSON object"),
        ("[" * 5000, "deep"),
        ('{"hidden_size": NaN}', "Replace NaN and Infinity"),
        ('{"hidden_size": "many", "model_type": "llama"}', "cannot be used"),
        (json.dumps({**SMOLLM2_CONFIG, "auto_map": {"AutoModel": "x.Y"}}), "auto_map"),
        (json.dumps({**SMOLLM2_CONFIG, "model_type": "nonesuch"}), "architecture"),
    ],
)
def test_a_config_that_cannot_be_used_says_why(
    browser: Client, agent: Agent, text: str, words: str
) -> None:
    answer = browser.post(URL, config_form(text))
    page = answer.content.decode()
    assert answer.status_code == 400
    assert not Study.objects.exists()
    start = page.index('id="id_config_text_error"')
    assert words in page[start : start + 900]


def test_a_ten_megabyte_config_is_refused_by_size(browser: Client, agent: Agent) -> None:
    form = config_form("", config_file=upload(b" " * 10_000_000))
    answer = browser.post(URL, form)
    page = answer.content.decode()
    assert answer.status_code == 400
    start = page.index('id="id_config_file_error"')
    assert "9.54\u00a0MiB" in page[start : start + 600]
    assert "without weights" in page[start : start + 600]


def test_ten_megabytes_of_pasted_text_are_a_400_that_says_so(browser: Client, agent: Agent) -> None:
    answer = browser.post(URL, config_form("x" * 10_000_000, name="Kept"))
    page = answer.content.decode()
    assert answer.status_code == 400
    start = page.index('id="id_config_text_error"')
    assert "9.54\u00a0MiB" in page[start : start + 600]
    assert 'value="Kept"' in page


def test_a_form_beyond_all_measure_says_so_and_how_to_get_back(
    browser: Client, agent: Agent
) -> None:
    answer = browser.post(URL, config_form("x" * 13_000_000))
    assert answer.status_code == 400
    assert "too large" in answer.content.decode()
    assert "Go back" in answer.content.decode()


def test_a_binary_file_is_refused(browser: Client, agent: Agent) -> None:
    answer = browser.post(URL, config_form("", config_file=upload(b"\x80\x02}q\x00.")))
    assert "UTF-8" in answer.content.decode()


def test_an_uploaded_config_is_kept_as_text_when_another_field_is_wrong(
    browser: Client, agent: Agent
) -> None:
    form = config_form("", config_file=upload(b'{"model_type": "llama"}'), budget_min="0")
    page = browser.post(URL, form).content.decode()
    assert "{&quot;model_type&quot;: &quot;llama&quot;}" in page


# --- rows, preview, rights ---------------------------------------------------------------------


def test_rows_are_added_and_removed_without_a_script(browser: Client, agent: Agent) -> None:
    page = browser.post(URL, typed(action="add_target")).content.decode()
    assert 'name="t2-metric"' in page
    assert not Study.objects.exists()
    page = browser.post(URL, typed(action="remove_target:0")).content.decode()
    assert 'name="t1-metric"' not in page
    assert 'name="t0-limit" value="1.5"' in page


def test_the_plan_says_what_runs_and_why(browser: Client, agent: Agent) -> None:
    answer = browser.post("/studies/new/plan/", typed())
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "Current settings" in text
    assert "Recognised" in text
    assert "about" in text
    assert not Study.objects.exists()


def test_the_plan_of_an_unfinished_form_says_what_is_missing(browser: Client, agent: Agent) -> None:
    text = browser.post("/studies/new/plan/", typed(**{"t0-limit": "", "input_mean": "x"}))
    assert "Input, mean: Enter a whole number." in text.content.decode()
    assert "Target 1: Enter a number." in text.content.decode()


def test_the_plan_can_be_shown_without_a_script(browser: Client, agent: Agent) -> None:
    page = browser.post(URL, typed(action="preview"))
    assert page.status_code == 200
    assert "Recognised" in page.content.decode()
    assert not Study.objects.exists()


def test_markup_in_a_name_is_text(browser: Client, agent: Agent) -> None:
    answer = browser.post(URL, typed(name=MARKUP), follow=True)
    assert MARKUP not in answer.content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.content.decode()


def test_a_viewer_may_not_open_the_form(viewer: Client, agent: Agent) -> None:
    assert viewer.get(URL).status_code == 403
    answer = viewer.post(URL, typed())
    assert answer.status_code == 403
    assert "Your role is viewer" in answer.content.decode()
    assert not Study.objects.exists()


def test_a_member_may_start_a_study(member: Client, agent: Agent) -> None:
    assert member.post(URL, typed()).status_code == 302


def test_the_form_asks_for_the_agents_once(
    browser: Client, agent: Agent, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(12):
        browser.get(URL)


def test_the_form_is_complete_without_data(agent: Agent) -> None:
    form = StudyForm(agents=[agent])
    assert form["requests"].value() == "40"
    assert [row.payload()["metric"] for row in form.rows] == ["ttft_s", "itl_s"]


def test_the_goal_diagnose_is_chosen_in_the_form(browser: Client, agent: Agent) -> None:
    response = browser.post(URL, typed(goal="diagnose", agent=agent.slug))
    assert response.status_code == 302, response.content.decode()[-2000:]
    study = Study.objects.get()
    assert study.spec.goal == "diagnose"
    assert study.trials.filter(spec_json__config__experiment="attention").exists()
    assert "Goal" in browser.get(URL).content.decode()


def simulated(**changes: Any) -> dict[str, Any]:
    fields = {
        "model_kind": "simulated",
        "machine": "qwen3-32b-2xh100",
        "request_rate": "4",
        "max_running": "8",
        "memory_share": "70",
        "cuda_graphs": "false",
        "t1-metric": "itl_s",
        "t1-statistic": "p90",
        "t1-limit": "100",
    }
    return typed(**{**fields, **changes})


def test_a_simulated_study_has_the_knobs_of_a_serving_engine(browser: Client, agent: Agent) -> None:
    answer = browser.post(URL, simulated(boundary="true"))
    assert answer.status_code == 302, answer.context["form"].messages()
    spec = Study.objects.get().spec
    assert spec.engine == "simulated"
    assert spec.boundary
    assert spec.model == SimulatedModel(name="qwen3-32b-2xh100")
    assert spec.current == EngineSettings(
        max_running=8, memory_share_frac=0.7, cuda_graphs=False
    ), "precision and threads belong to the engine in process"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"max_running": "none"}, "max_running"),
        ({"max_batched_tokens": "0"}, "max_batched_tokens"),
        ({"memory_share": "170"}, "memory_share"),
        ({"memory_share": "much"}, "memory_share"),
        ({"machine": "abacus"}, "machine"),
    ],
)
def test_bad_knobs_are_refused_beside_their_field(
    browser: Client, agent: Agent, changes: dict[str, str], field: str
) -> None:
    answer = browser.post(URL, simulated(**changes))
    assert answer.status_code == 400
    assert answer.context["form"].errors[field]
    assert not Study.objects.exists()


def test_the_plan_of_a_simulated_study_says_that_it_is_one(browser: Client, agent: Agent) -> None:
    page = browser.post(reverse("study-preview"), simulated(action="preview")).content.decode()
    assert "simulator" in page


@pytest.fixture
def eight_gpus(org: Org) -> Agent:
    gpus = tuple({"index": i, "uuid": f"GPU-{i}", "name": "NVIDIA H200"} for i in range(8))
    hello = factories.make_hello(engines=("transformers", "vllm"), gpus=gpus)
    return factories.create_agent(org, "bench-8", hello=hello)


def served(agent: Agent, **changes: Any) -> StudyForm:
    """The form of a vLLM study, as it was sent."""
    data = QueryDict(mutable=True)
    data.update(typed(agent=agent.slug, **{"engine": "vllm", **changes}))
    return StudyForm(data, agents=[agent])


def test_a_server_on_several_gpus_has_its_degrees_and_its_day(eight_gpus: Agent) -> None:
    degrees = {"tensor_parallel": "2", "pipeline_parallel": "2", "data_parallel": "2"}
    day = {"day_req_s": "0.5, 2;4  1"}
    spec = served(eight_gpus, **degrees, expert_parallel="true", **day).spec()
    assert spec is not None
    assert spec.current.gpus == 8
    assert spec.current.expert_parallel is True
    assert spec.day_req_s == (0.5, 2.0, 4.0, 1.0)


@pytest.mark.parametrize(
    ("field", "text"),
    [("day_req_s", "5, many"), ("day_req_s", "5"), ("day_req_s", "-1, 5"), ("data_parallel", "0")],
)
def test_a_wrong_degree_or_day_is_an_error_beside_its_field(
    eight_gpus: Agent, field: str, text: str
) -> None:
    form = served(eight_gpus, **{field: text})
    assert form.spec() is None
    assert field in form.errors


def test_a_day_that_the_form_does_not_show_is_left_out(eight_gpus: Agent) -> None:
    spec = served(eight_gpus, engine="transformers", day_req_s="5, 6").spec()
    assert spec is not None
    assert spec.day_req_s is None
