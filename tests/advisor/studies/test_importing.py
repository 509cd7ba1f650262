"""Results of other tools as studies: what the file has is judged, what it lacks is never made up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from pydantic import ValidationError

from advisor.accounts.models import AuditEvent, Org
from advisor.comparable import UNKNOWN_HARDWARE
from advisor.errors import InvalidInput
from advisor.imports import ImportRefused, read_import
from advisor.imports.convert import ImportedStudy, convert
from advisor.studies import intake
from advisor.studies.models import Study
from advisor.targets import target_statuses
from gpuagent.wire import LengthSpec, SlaTarget, StudySpec
from gpuagent.wire.trial import ImportedResult
from tests.advisor.imports import samples
from tests.advisor.pages.conftest import MARKUP
from tests.builders import make_evidence, make_study_spec, make_trial, make_workload
from tests.factories import create_org

TTFT = SlaTarget(metric="ttft_s", statistic="p95", limit=0.1)
RATE = SlaTarget(metric="output_tok_s", statistic="mean", limit=2)
E2E = SlaTarget(metric="e2e_s", statistic="p95", limit=1)


def made(document: Any, *targets: SlaTarget, **more: Any) -> ImportedStudy:
    content = document if isinstance(document, str) else json.dumps(document)
    trial = read_import(content.encode())[0]
    return convert(trial, sha256="0" * 64, benchmark=0, targets=targets, imported_at_s=1.0, **more)


def result_of(one: ImportedStudy) -> ImportedResult:
    assert isinstance(one.result.measurements, ImportedResult)
    return one.result.measurements


def evidence_of(one: ImportedStudy) -> Any:
    trial = make_trial(
        one.result.measurements,
        config=one.config,
        workload=one.spec.workload,
        environment=one.result.environment,
        validity=one.result.validity,
    )
    return make_evidence(trial, spec=one.spec, shape=None, device=None)


# --- conversion --------------------------------------------------------------------------------


def test_single_requests_are_taken_over_and_prove_targets() -> None:
    one = made(samples.vllm(), TTFT, RATE, hardware="H100 SXM")
    found = result_of(one)
    assert len(found.requests) == found.sent == 200
    assert found.arrivals == "poisson"
    assert one.spec.workload.request_rate_per_s == 1.0
    assert one.spec.workload.input_tokens == LengthSpec(kind="measured", mean=32)
    assert one.result.environment.host is None
    assert one.result.environment.device == "H100 SXM"
    statuses = target_statuses(evidence_of(one).current, one.spec)
    assert [s.verdict for s in statuses] == ["met", "met"]
    assert {s.basis for s in statuses} == {"imported"}


@pytest.mark.parametrize(
    ("document", "sent"),
    [(samples.guidellm(), 100), (samples.aiperf(), 503), (samples.LOCUST, 1000)],
    ids=["guidellm", "aiperf", "locust"],
)
def test_sums_stay_sums(document: Any, sent: int) -> None:
    one = made(document, TTFT, E2E)
    found = result_of(one)
    assert found.requests == ()
    assert found.sent == sent
    ttft, e2e = target_statuses(evidence_of(one).current, one.spec)
    assert e2e.verdict == "not_proven"
    assert e2e.value is not None
    assert "nothing is proven" in e2e.reason
    if document is samples.LOCUST:
        assert ttft.verdict == "not_measured"
        assert "only percentiles" in ttft.reason
        assert one.spec.workload.input_tokens.kind == "unknown"
    assert one.result.validity.verdict == "warn"
    assert one.result.environment.device == UNKNOWN_HARDWARE


def test_a_burst_or_a_closed_loop_is_no_rate() -> None:
    burst = made(samples.vllm(request_rate="inf"))
    assert burst.spec.workload.request_rate_per_s is None
    assert result_of(burst).arrivals == "closed_loop"
    held = made(samples.vllm(max_concurrency=4))
    assert held.spec.workload.request_rate_per_s is None


def test_chunks_that_hide_tokens_make_no_throughput() -> None:
    one = made(samples.vllm(output_throughput=40.0), RATE)
    assert result_of(one).hidden_tokens
    (status,) = target_statuses(evidence_of(one).current, one.spec)
    assert (status.verdict, status.value) == ("not_proven", 40.0)
    assert "hide single tokens" in status.reason


def test_what_cannot_be_a_study_is_refused() -> None:
    with pytest.raises(ImportRefused, match="twice"):
        made(samples.vllm(), TTFT, TTFT)
    workload = make_workload(input_tokens=LengthSpec(kind="unknown", mean=1))
    with pytest.raises(ValidationError, match="fixed or lognormal"):
        make_study_spec(workload=workload)
    with pytest.raises(ValidationError, match="go together"):
        make_study_spec(engine="imported")


# --- kept --------------------------------------------------------------------------------------


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
