from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from advisor.accounts.models import Org, User
from advisor.cli.api_client import TOKEN_VARIABLE, URL_VARIABLE
from advisor.cli.main import main
from tests import factories


@pytest.fixture
def server(live_server: object, org: Org, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = factories.create_token(org, alice, scope="read")
    monkeypatch.setenv(URL_VARIABLE, str(live_server))
    monkeypatch.setenv(TOKEN_VARIABLE, secret)


@pytest.mark.usefixtures("server")
def test_the_exit_code_follows_the_gate_and_files_are_written(
    org: Org, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, before = factories.create_finished_study(org), factories.create_finished_study(org)
    junit, summary = tmp_path / "gate.xml", tmp_path / "gate.md"
    files = ["--junit", str(junit), "--markdown", str(summary)]
    code = main(["study", "gate", str(study.pk), "--against", str(before.pk), *files])
    assert code == 1
    assert "FAIL" in capsys.readouterr().out
    assert ET.parse(junit).getroot().attrib["failures"] != "0"
    assert summary.read_text().startswith("### Failed")


@pytest.mark.usefixtures("server")
def test_errors_exit_2_with_the_reason(
    org: Org, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running, done = factories.create_study(org), factories.create_finished_study(org)
    assert main(["study", "gate", str(running.pk)]) == 2
    assert "not finished" in capsys.readouterr().err
    assert main(["study", "gate", str(done.pk), "--baseline", str(done.pk)]) == 2
    assert "baseline of itself" in capsys.readouterr().err
    assert main(["study", "gate", str(done.pk), "--junit", str(tmp_path / "no" / "x.xml")]) == 2
    assert "cannot be written" in capsys.readouterr().err
