"""Results of other tools, kept: every page, report and answer of such a study works."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import AuditEvent, Org
from advisor.errors import InvalidInput
from advisor.studies import intake
from advisor.studies.models import Study
from gpuagent.wire import StudySpec
from tests.advisor.imports import samples
from tests.advisor.imports.test_convert import TTFT, made
from tests.advisor.pages.conftest import MARKUP
from tests.factories import create_org


def keep(client: Client, document: Any, **more: Any) -> Any:
    content = document if isinstance(document, str) else json.dumps(document)
    body = {"content": content, "targets": [TTFT.model_dump()], "keep": True, **more}
    return client.post("/api/v1/imports", json.dumps(body), content_type="application/json")


@pytest.mark.django_db
def test_a_kept_file_is_a_study_that_is_shown_everywhere_and_kept_once(
    browser: Client, org: Org
) -> None:
    reply = keep(browser, samples.vllm(label=MARKUP), hardware="H100 SXM", name="Nightly")
    assert reply.status_code == 200, reply.content
    (told,) = reply.json()["studies"]
    study = Study.objects.get(org=org, pk=told["id"])
    assert (study.state, study.name, study.spec.engine) == ("finished", "Nightly", "imported")
    assert study.verdict_json["sentence"].startswith("The imported result meets the target")
    event = AuditEvent.objects.get(org=org, action="import.keep")
    assert event.detail["tool"] == "vllm bench serve"
    again = keep(browser, samples.vllm(label=MARKUP), hardware="H100 SXM", name="Other")
    assert [one["id"] for one in again.json()["studies"]] == [told["id"]]
    assert Study.objects.filter(org=org).count() == 1
    trial = study.trials.get()
    for address in (
        f"/studies/{study.pk}/",
        f"/trials/{trial.pk}/",
        *(f"/trials/{trial.pk}/?tab={tab}" for tab in ("memory", "environment", "settings")),
        f"/studies/{study.pk}/report.html",
        f"/studies/{study.pk}/report.md",
        f"/studies/{study.pk}/report.json",
        f"/studies/{study.pk}/report.csv",
        f"/studies/{study.pk}/diagnose/throughput/",
        f"/studies/{study.pk}/diagnose/memory/",
        "/studies/",
    ):
        page = browser.get(address)
        assert page.status_code == 200, address
        if page.headers["Content-Type"].startswith("text/html"):
            assert MARKUP not in page.content.decode(), address
    assert "imported: vllm bench serve" in browser.get(f"/trials/{trial.pk}/").content.decode()
    gate = browser.post(f"/api/v1/studies/{study.pk}/gate", "{}", content_type="application/json")
    assert gate.json()["outcome"] == "pass", gate.content
    export = browser.get(f"/api/v1/studies/{study.pk}/export?format=vllm")
    assert export.status_code in (404, 409)


@pytest.mark.django_db
def test_a_sweep_is_a_study_for_each_benchmark_and_sums_say_so(browser: Client, org: Org) -> None:
    reply = keep(browser, samples.guidellm())
    assert len(reply.json()["studies"]) == 2
    studies = list(Study.objects.filter(org=org).order_by("number"))
    page = browser.get(f"/studies/{studies[0].pk}/").content.decode()
    assert "the file has only percentiles" in page
    ids = ",".join(str(study.trials.get().pk) for study in studies)
    compared = browser.get(f"/compare/?trials={ids}")
    assert compared.status_code == 200
    assert "name it when keeping" in compared.content.decode()


@pytest.mark.django_db
def test_two_imports_on_hardware_of_one_name_are_compared(browser: Client, org: Org) -> None:
    first = keep(browser, samples.vllm(), hardware="H100 SXM").json()["studies"][0]["id"]
    slow = samples.vllm(ttfts=[0.09 + 0.0001 * (i % 7) for i in range(200)])
    second = keep(browser, slow, hardware="H100 SXM").json()["studies"][0]["id"]
    ids = ",".join(str(Study.objects.get(pk=pk).trials.get().pk) for pk in (first, second))
    found = browser.get(f"/api/v1/compare?trials={ids}")
    assert found.status_code == 200, found.content
    (pair,) = found.json()["pairs"]
    ttft = next(d for d in pair["metrics"] if d["metric"] == "ttft_s")
    assert ttft["verdict"] == "worse", pair


@pytest.mark.django_db
def test_who_may_not_write_keeps_nothing_and_others_see_nothing(
    viewer: Client, browser: Client, org: Org
) -> None:
    assert keep(viewer, samples.vllm()).status_code == 403
    assert viewer.post("/imports/", {"action": "keep"}).status_code == 403
    assert not Study.objects.filter(org=org).exists()
    keep(browser, samples.vllm())
    other = create_org("Other")
    assert not Study.objects.filter(org=other).exists()


@pytest.mark.django_db
def test_nobody_submits_an_imported_study(org: Org) -> None:
    spec = StudySpec.model_validate(
        made(samples.vllm()).spec.model_dump(mode="json") | {"agent": None}
    )
    with pytest.raises(InvalidInput) as refused:
        intake.check(org=org, spec=spec)
    assert "engine" in refused.value.fields
