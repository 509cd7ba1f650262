"""Results of other tools, kept: every page, report and answer of such a study works."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from advisor.accounts.models import AuditEvent, Org, User
from advisor.errors import InvalidInput
from advisor.studies import intake
from advisor.studies.models import Study
from gpuagent.wire import StudySpec
from tests.advisor.imports import samples
from tests.advisor.imports.test_convert import TTFT, made
from tests.advisor.pages.conftest import MARKUP

pytestmark = pytest.mark.django_db


def keep(client: Client, document: Any, **more: Any) -> Any:
    content = document if isinstance(document, str) else json.dumps(document)
    body = {"content": content, "targets": [TTFT.model_dump()], "keep": True, **more}
    return client.post("/api/v1/imports", json.dumps(body), content_type="application/json")


def text(client: Client, address: str) -> str:
    reply = client.get(address)
    assert reply.status_code == 200, address
    return reply.content.decode()


def test_a_kept_file_is_a_study_that_is_shown_everywhere_and_kept_once(
    browser: Client, org: Org
) -> None:
    file = samples.vllm(label=MARKUP)
    reply = keep(browser, file, hardware="H100 SXM", name="Nightly")
    assert reply.status_code == 200, reply.content
    (told,) = reply.json()["studies"]
    study = Study.objects.get(org=org, pk=told["id"])
    assert (study.state, study.name, study.spec.engine) == ("finished", "Nightly", "imported")
    assert study.verdict_json["sentence"].startswith("The imported result meets the target")
    event = AuditEvent.objects.get(org=org, action="import.keep")
    assert event.detail["tool"] == "vllm bench serve"
    again = keep(browser, file, hardware="H100 SXM", name="Other")
    assert [one["id"] for one in again.json()["studies"]] == [told["id"]]
    assert Study.objects.filter(org=org).count() == 1
    trial = study.trials.get()
    assert (trial.state, trial.agent, trial.agent_id) == ("succeeded", None, None)

    page = text(browser, f"/studies/{study.pk}/")
    assert "imported: vllm bench serve" in page
    for absent in ("Cancel", "Settings by name", "engine defaults", "the current configuration"):
        assert absent not in page, absent
    detail = text(browser, f"/trials/{trial.pk}/?tab=settings")
    assert "Latencies as the tool summed them up" in detail
    for absent in (
        "Send delay",
        "Run this trial again",
        "?tab=kernels",
        "?tab=log",
        "Cancel trial",
    ):
        assert absent not in detail, absent
    assert "H100 SXM" in text(browser, f"/trials/{trial.pk}/?tab=environment")
    shown = [
        page,
        detail,
        text(browser, "/studies/"),
        text(browser, f"/studies/{study.pk}/diagnose/memory/"),
    ]
    report = text(browser, f"/studies/{study.pk}/report.html")
    assert "imported: vllm bench serve" in report
    assert not any(MARKUP in html for html in (*shown, report))
    for fmt in ("md", "csv", "requests"):
        text(browser, f"/studies/{study.pk}/report.{fmt}")
    told = json.loads(text(browser, f"/studies/{study.pk}/report.json"))
    assert told["trials"][0]["settings_text"] == "not in the file"
    assert {target["best"]["basis"] for target in told["targets"]} == {"imported"}

    gate = browser.post(f"/api/v1/studies/{study.pk}/gate", "{}", content_type="application/json")
    assert gate.json()["exit_code"] == 0, gate.content
    what_if = {"targets": [{"metric": "ttft_s", "statistic": "p95", "limit": 0.01}]}
    judged = browser.post(
        f"/api/v1/studies/{study.pk}/what-if", json.dumps(what_if), content_type="application/json"
    )
    assert judged.status_code == 200, judged.content
    assert browser.get(f"/api/v1/studies/{study.pk}/export?format=vllm").status_code in (404, 409)
    assert browser.post(f"/studies/{study.pk}/cancel/").status_code in (302, 409)
    study.refresh_from_db()
    assert study.state == "finished"


def test_another_label_makes_another_study_and_the_same_one_is_told(
    browser: Client, org: Org
) -> None:
    file = samples.aiperf()
    labels = ({}, {"hardware": "H100 SXM"}, {"hardware": "H100 SXM", "preset": "chat"})
    told = [keep(browser, file, **one).json()["studies"][0] for one in labels]
    assert len({one["id"] for one in told}) == 3
    assert not any(one["existed"] for one in told)
    again = keep(browser, file, hardware=" H100 SXM", name="Other").json()["studies"]
    assert (again[0]["id"], again[0]["existed"]) == (told[1]["id"], True)
    form = {"targets": "ttft_s:p95<=0.1", "action": "keep", "hardware": "H100 SXM"}
    reply = browser.post("/imports/", {"file": upload(file), **form}, follow=True)
    assert "kept before" in reply.content.decode()
    sweep = [browser.post("/imports/", {"file": upload(samples.guidellm()), **form}) for _ in "ab"]
    assert ["kept before" in one.content.decode() for one in sweep] == [False, True]
    assert Study.objects.filter(org=org).count() == 5


def test_a_sweep_is_a_study_for_each_benchmark_and_sums_say_so(browser: Client, org: Org) -> None:
    form = {"file": upload(samples.guidellm()), "targets": "ttft_s:p95<=0.1", "action": "keep"}
    listed = browser.post("/imports/", form)
    assert listed.status_code == 200
    studies = list(Study.objects.filter(org=org).order_by("number"))
    assert [study.name for study in studies] == ["guidellm: constant 1", "guidellm: concurrent 2"]
    assert all(f"/studies/{study.pk}/" in listed.content.decode() for study in studies)
    page = text(browser, f"/studies/{studies[0].pk}/")
    assert "the file has only percentiles" in page
    assert "--save-detailed" in page
    assert "no interval: reported by the tool" in page
    assert "the file has only percentiles" in text(
        browser, f"/trials/{studies[0].trials.get().pk}/"
    )
    ids = ",".join(str(study.trials.get().pk) for study in studies)
    compared = text(browser, f"/compare/?trials={ids}")
    assert "name it when keeping" in compared
    assert "may differ from what an agent measures" in compared


def test_one_file_from_the_form_leads_to_its_study(browser: Client, org: Org) -> None:
    form = {"file": upload(samples.aiperf()), "targets": "", "action": "keep", "name": "Nightly"}
    reply = browser.post("/imports/", form)
    study = Study.objects.get(org=org)
    assert (reply.status_code, reply["Location"]) == (302, f"/studies/{study.pk}/")
    assert study.name == "Nightly"
    assert "nothing to judge it by" in study.verdict_json["sentence"]


def test_two_imports_on_hardware_of_one_name_are_compared(browser: Client, org: Org) -> None:
    first = keep(browser, samples.vllm(), hardware="H100 SXM").json()["studies"][0]["id"]
    slow = samples.vllm(ttfts=[0.09 + 0.0001 * (i % 7) for i in range(200)])
    second = keep(browser, slow, hardware="H100 SXM").json()["studies"][0]["id"]
    ids = ",".join(str(Study.objects.get(pk=pk).trials.get().pk) for pk in (first, second))
    found = browser.get(f"/api/v1/compare?trials={ids}")
    assert found.status_code == 200, found.content
    assert found.json()["settings"] == []
    (pair,) = found.json()["pairs"]
    verdicts = {delta["metric"]: delta["verdict"] for delta in pair["deltas"]}
    assert verdicts["ttft_s"] == "worse"
    # At one request a second each, throughput is the rate and says nothing.
    assert "output_tok_s" not in verdicts


def test_who_may_not_write_keeps_nothing_and_others_see_nothing(
    viewer: Client, browser: Client, stranger: Client, alice: User, org: Org, with_token: Any
) -> None:
    assert keep(viewer, samples.aiperf()).status_code == 403
    assert keep(with_token(alice, scope="read"), samples.aiperf()).status_code == 403
    assert viewer.post("/imports/", {"action": "keep"}).status_code == 403
    assert not Study.objects.exists()
    (told,) = keep(browser, samples.aiperf()).json()["studies"]
    assert stranger.get(f"/studies/{told['id']}/").status_code == 404
    # The same file is a study of its own elsewhere.
    (own,) = keep(stranger, samples.aiperf()).json()["studies"]
    assert own["id"] != told["id"]
    assert browser.get(f"/api/v1/studies/{own['id']}").status_code == 404


def test_what_is_too_large_says_so(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("advisor.api.views.imports", "advisor.pages.forms.imports"):
        monkeypatch.setattr(f"{module}.KEPT_BYTES", 100)
    reply = keep(browser, samples.aiperf())
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")
    assert "up to 20 MB are taken" in reply.json()["message"]
    page = browser.post("/imports/", {"file": upload(samples.aiperf()), "targets": ""})
    assert page.status_code == 400
    assert "up to 20 MB are taken" in page.content.decode()
    assert not Study.objects.exists()


def test_a_name_that_may_not_be_stands_beside_its_field(browser: Client) -> None:
    reply = keep(browser, samples.aiperf(), name=MARKUP)
    assert reply.status_code == 400
    assert list(reply.json()["fields"]) == ["name"]
    form = {"file": upload(samples.aiperf()), "targets": "", "action": "keep", "hardware": MARKUP}
    page = browser.post("/imports/", form)
    assert page.status_code == 400
    assert "no markup" in page.content.decode()
    assert not Study.objects.exists()


def test_nobody_submits_an_imported_study(org: Org) -> None:
    spec = StudySpec.model_validate(made(samples.vllm()).spec.model_dump(mode="json"))
    with pytest.raises(InvalidInput) as refused:
        intake.check(org=org, spec=spec)
    assert "engine" in refused.value.fields


def upload(document: Any) -> SimpleUploadedFile:
    return SimpleUploadedFile("result.json", json.dumps(document).encode())
