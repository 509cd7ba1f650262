"""A new study from an earlier one: the form is filled in, and nothing starts by itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from advisor.accounts.models import Org
from advisor.fleet.models import Agent
from advisor.pages.forms.again import cut_elsewhere, typed
from advisor.pages.forms.study import StudyForm
from advisor.studies.models import Study
from gpuagent.wire import (
    ConfigModel,
    EngineSettings,
    HubModel,
    LengthSpec,
    LocalModel,
    SimulatedModel,
    SlaTarget,
    StudySpec,
)
from tests import factories
from tests.builders import SMOLLM2_CONFIG, make_study_spec, make_workload

pytestmark = pytest.mark.django_db
FOLDER = LocalModel(name="SmolLM2-135M-Instruct")
SERVER = EngineSettings(
    dtype="bfloat16", max_running=48, max_batched_tokens=3072, chunked_prefill=False,
    memory_share_frac=0.87, kv_dtype="fp8", cuda_graphs=True, prefix_cache=False,
    max_context=4096, tensor_parallel=2, pipeline_parallel=2, data_parallel=3,
    expert_parallel=True,
)  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "threads": {
        "current": EngineSettings(dtype="float32", kv_cache=False, attention="eager", threads=3),
        "goal": "diagnose",
        "budget_s": 750.0,
    },
    "profile": {"profile": True, "targets": ()},
    "no agent": {"agent": None, "model": HubModel(id="org/model", revision="a" * 40)},
    "config": {"model": ConfigModel(name="bare", config=SMOLLM2_CONFIG)},
    "lognormal": {
        "workload": make_workload(
            input_tokens=LengthSpec(kind="lognormal", mean=100, p95=250, maximum=500),
            output_tokens=LengthSpec(mean=33),
            request_rate_per_s=0.3,
            requests=77,
        ),
        "targets": (
            SlaTarget(metric="ttft_s", statistic="p99", limit=0.125),
            SlaTarget(metric="memory_bytes", statistic="peak", limit=1.5 * 1024**3),
            SlaTarget(metric="output_tok_s", statistic="mean", limit=41.5),
        ),
    },
    "vllm": {
        "engine": "vllm", "current": SERVER, "boundary": True, "robustness": False,
        "workload": make_workload(shared_prefix_frac=0.35), "day_req_s": (0.5, 2.25, 8.0),
    },
    "sglang": {"engine": "sglang", "current": SERVER, "robustness": True},
    "transformers_serve": {
        "engine": "transformers_serve",
        "current": EngineSettings(memory_share_frac=0.07, max_batched_tokens=512),
    },
    "openai": {"engine": "openai", "endpoint": "prod", "current": EngineSettings()},
    "simulated": {
        "engine": "simulated", "model": SimulatedModel(name="gpt-oss-120b-h200"),
        "current": EngineSettings(max_running=4, cuda_graphs=False), "boundary": True,
    },
}  # fmt: skip


@pytest.fixture
def able(agent: Agent) -> Agent:
    """An agent that offers every engine and an endpoint."""
    engines = ("transformers", "vllm", "sglang", "transformers_serve", "openai", "simulated")
    agent.hello = agent.hello.model_copy(update={"engines": engines, "endpoints": ("prod",)})
    agent.save()
    return agent


@pytest.mark.parametrize("wanted", SPECS.values(), ids=SPECS)
def test_a_spec_comes_back_from_the_form_as_it_was(able: Agent, wanted: dict[str, Any]) -> None:
    spec = make_study_spec(**{"model": FOLDER, "agent": able.slug, **wanted})
    form = StudyForm(typed(spec), agents=[able])
    assert form.spec() == spec, form.messages()


def test_only_where_a_length_is_cut_is_not_kept() -> None:
    assert not cut_elsewhere(LengthSpec(mean=10))
    assert not cut_elsewhere(LengthSpec(kind="lognormal", mean=10, p95=20, maximum=40))
    assert cut_elsewhere(LengthSpec(kind="lognormal", mean=10, p95=20, maximum=30))


def test_the_page_is_filled_in_and_starts_nothing(browser: Client, org: Org, agent: Agent) -> None:
    study = factories.create_study(org, agent=agent)
    before = Study.objects.count()
    answer = browser.get(reverse("study-new"), {"from": str(study.pk)})
    text = answer.content.decode()
    assert answer.status_code == 200
    assert f"Filled in from study {study.number}, {study.name}." in text
    assert f'value="{study.spec.workload.requests}"' in text
    assert Study.objects.count() == before
    page = browser.get(reverse("study", args=[study.pk])).content.decode()
    assert ("?from=" in page) == study.is_terminal


def test_recommended_settings_become_the_current_ones(
    browser: Client, org: Org, agent: Agent
) -> None:
    study = factories.create_finished_study(org, agent=agent)
    page = browser.get(reverse("study", args=[study.pk])).content.decode()
    for link in (f"?from={study.pk}", f"?from={study.pk}&amp;settings=recommended"):
        assert f'"{reverse("study-new")}{link}"' in page
    sought = {"from": str(study.pk), "settings": "recommended"}
    text = browser.get(reverse("study-new"), sought).content.decode()
    assert "with the settings that it recommends as the current ones." in text
    assert '<option value="float32" selected>' in text


@pytest.mark.parametrize("wrong", ["", "nonsense", "00000000-0000-4000-8000-000000000000"])
def test_a_study_that_is_not_there_is_not_found(browser: Client, org: Org, wrong: str) -> None:
    assert browser.get(reverse("study-new"), {"from": wrong}).status_code == 404


def test_results_of_another_tool_cannot_run_again(
    browser: Client, org: Org, monkeypatch: pytest.MonkeyPatch, agent: Agent
) -> None:
    study = factories.create_study(org, agent=agent)
    imported = StudySpec.model_construct(**{**dict(study.spec), "engine": "imported"})
    monkeypatch.setattr(Study, "spec", imported)
    answer = browser.get(reverse("study-new"), {"from": str(study.pk)})
    assert answer.status_code == 404
