from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from advisor.accounts.models import Org
from tests import factories


def test_the_menu_offers_every_format_and_says_what_the_server_lacks(
    viewer: Client, org: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_CHROMIUM", "/nowhere/chromium")
    study = factories.create_finished_study(org)
    page = viewer.get(reverse("study", args=[study.pk])).content.decode()
    for suffix in ("html", "md", "json", "csv", "requests"):
        assert f"{reverse('study-report', args=[study.pk, suffix])}?download" in page
    assert "PDF needs Chromium on the server" in page
    refused = viewer.get(reverse("study-report", args=[study.pk, "pdf"]))
    assert refused.status_code == 503
    assert "ADVISOR_CHROMIUM" in refused.content.decode()
    saved = viewer.get(reverse("study-report", args=[study.pk, "csv"]), {"download": ""})
    assert saved["Content-Disposition"].startswith("attachment; filename=")
