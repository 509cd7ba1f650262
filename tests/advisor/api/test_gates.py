from __future__ import annotations

import uuid
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.test import Client

from advisor.accounts.models import Org
from advisor.studies.models import Study
from tests import factories

STUDIES = "/api/v1/studies"


def ask(client: Client, study: Study, body: Any = None, query: str = "") -> Any:
    url = f"{STUDIES}/{study.pk}/gate{query}"
    return client.post(url, body or {}, content_type="application/json")


def test_a_viewer_may_ask_and_gets_checks_and_exit_code(reader: Client, org: Org) -> None:
    study, before = factories.create_finished_study(org), factories.create_finished_study(org)
    response = ask(reader, study, {"baseline": str(before.pk)})
    assert response.status_code == 200, response.content
    answer = response.json()
    # bfloat16 misses the ITL target of the factory's study.
    assert (answer["status"], answer["exit_code"]) == ("failed", 1)
    assert answer["baseline_number"] == before.number
    assert {c["group"] for c in answer["checks"]} == {"run", "sla", "regression"}


def test_an_empty_body_judges_by_the_targets(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    response = reader.post(f"{STUDIES}/{study.pk}/gate", b"", content_type="application/json")
    assert response.status_code == 200, response.content
    assert response.json()["baseline_id"] is None


def test_junit_and_markdown_come_by_format(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    xml = ask(reader, study, query="?format=junit")
    assert xml["Content-Type"] == "application/xml"
    assert ET.fromstring(xml.content).tag == "testsuites"
    text = ask(reader, study, query="?format=markdown")
    assert text.content.decode().startswith("### Failed")
    assert list(ask(reader, study, query="?format=odt").json()["fields"]) == ["format"]


def test_an_unfinished_study_is_a_conflict(reader: Client, org: Org) -> None:
    response = ask(reader, factories.create_study(org))
    assert response.status_code == 409
    assert response.json()["code"] == "conflict"


@pytest.mark.parametrize("baseline", ["nonsense", "unknown", 7, "own"])
def test_a_bad_baseline_names_the_field(reader: Client, org: Org, baseline: Any) -> None:
    study = factories.create_finished_study(org)
    body = {
        "baseline": {"own": str(study.pk), "unknown": str(uuid.uuid4())}.get(baseline, baseline)
    }
    response = ask(reader, study, body)
    assert response.status_code == 400
    assert list(response.json()["fields"]) == ["baseline"]


def test_another_organisations_baseline_does_not_exist(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    foreign = factories.create_finished_study(factories.create_org("Elsewhere"))
    known = ask(reader, study, {"baseline": str(foreign.pk)})
    unknown = ask(reader, study, {"baseline": str(uuid.uuid4())})
    assert known.status_code == unknown.status_code == 400
    assert known.json() == unknown.json()
