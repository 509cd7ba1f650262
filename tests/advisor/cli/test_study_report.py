from __future__ import annotations

from pathlib import Path

import pytest

from advisor.accounts.models import Org, User
from advisor.cli.api_client import TOKEN_VARIABLE, URL_VARIABLE
from advisor.cli.main import main
from advisor.cli.study import REPORT_FORMATS
from advisor.reports import MEDIA_TYPES
from tests import factories


def test_every_format_and_a_missing_browser_exit_2(
    live_server: object,
    org: Org,
    alice: User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(REPORT_FORMATS) == set(MEDIA_TYPES)
    _, secret = factories.create_token(org, alice, scope="read")
    monkeypatch.setenv(URL_VARIABLE, str(live_server))
    monkeypatch.setenv(TOKEN_VARIABLE, secret)
    monkeypatch.setenv("ADVISOR_CHROMIUM", "/nowhere/chromium")
    study = factories.create_finished_study(org)
    for fmt, start in (("md", "LLM Tuning"), ("csv", "study,"), ("requests", "study,")):
        path = tmp_path / fmt
        assert main(["study", "report", str(study.pk), "--format", fmt, "-o", str(path)]) == 0
        assert path.read_text().startswith(start)
    assert main(["study", "report", str(study.pk), "--format", "pdf"]) == 2
    assert "ADVISOR_CHROMIUM" in capsys.readouterr().err
