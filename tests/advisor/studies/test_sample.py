"""The sample study: one for each organisation, simulated, labelled, and opened without an agent."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from advisor.accounts.models import Org, User
from advisor.studies import sample, served
from advisor.studies.models import Study
from tests import factories


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer requests and trials than the real sample, which takes seconds."""
    workload = {**sample._SPEC["workload"], "requests": 40}
    monkeypatch.setitem(sample._SPEC, "workload", workload)
    monkeypatch.setattr(sample, "_MAX_TRIALS", 2)
    monkeypatch.setattr(served, "SIMULATED_POINT_S", 5.0)
    monkeypatch.setattr(served, "SIMULATED_BOUNDARY_POINTS", 3)
    sample._simulated.cache_clear()
    yield
    sample._simulated.cache_clear()


@pytest.mark.usefixtures("short")
def test_a_new_account_opens_the_sample_and_keeps_its_first_steps(
    org: Org, alice: User, signed_in: Any
) -> None:
    browser = signed_in(alice)
    empty = browser.get(reverse("studies")).content.decode()
    assert reverse("study-sample") in empty
    page = browser.post(reverse("study-sample"), follow=True)
    text = page.content.decode()
    study = Study.objects.get()
    assert study.is_terminal
    assert study.agent is None
    assert "No device was measured" in text
    assert "Simulated: " in text
    assert "Cancel study" not in text
    assert 'data-chart="highest-rate"' in text
    browser.post(reverse("study-sample"))
    assert Study.objects.count() == 1
    assert "No study yet" in browser.get(reverse("studies")).content.decode()
    org.refresh_from_db()
    factories.create_study(org)
    assert sample.NAME in browser.get(reverse("studies")).content.decode()
    assert org.audit_events.get().action == "sample.create"
    report = browser.get(reverse("study-report", args=[study.pk, "md"])).content.decode()
    assert "simulated" in report
