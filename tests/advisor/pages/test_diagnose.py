from __future__ import annotations

from typing import Any

from django.test import Client
from django.urls import reverse

from advisor.accounts.models import Org
from tests import factories


def address(study: Any, complaint: str) -> str:
    return reverse("study-diagnose", kwargs={"study_id": study.pk, "complaint": complaint})


def test_a_walk_shows_its_steps_and_the_study_page_leads_there(viewer: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    page = viewer.get(address(study, "memory")).content.decode()
    assert "Do the weights take what the config says?" in page
    text = viewer.get(reverse("study", kwargs={"study_id": study.pk})).content.decode()
    assert address(study, "throughput") in text
    exports = {"study_id": study.pk, "fmt": "kubernetes"}
    assert reverse("study-export", kwargs=exports) in text
    assert "attention dropout" in text


def test_a_bad_trial_says_so_and_an_unknown_complaint_is_not_found(
    viewer: Client, org: Org
) -> None:
    study = factories.create_finished_study(org)
    refused = viewer.get(address(study, "throughput"), {"trial": "99"})
    assert refused.status_code == 400
    assert "Trial 99 measured no other settings" in refused.content.decode()
    assert viewer.get(address(study, "latency")).status_code == 404
    export = reverse("study-export", kwargs={"study_id": study.pk, "fmt": "helm"})
    assert viewer.get(export).status_code == 404
