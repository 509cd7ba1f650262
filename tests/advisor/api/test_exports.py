from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from django.test import Client

from advisor.accounts.models import Org, User
from advisor.cli.api_client import TOKEN_VARIABLE, URL_VARIABLE
from advisor.cli.main import main
from advisor.exports import ExportDocument
from tests import factories


def test_every_format_is_a_file_that_says_whether_it_is_verified(reader: Client, org: Org) -> None:
    url = f"/api/v1/studies/{factories.create_finished_study(org).pk}/export"
    document = ExportDocument.model_validate_json(reader.get(url).content)
    assert document.settings["dtype"] == "float32"
    assert document.engine == "vllm"
    for fmt in ("vllm", "sglang", "compose", "kubernetes"):
        response = reader.get(f"{url}?format={fmt}")
        assert response.status_code == 200, response.content
        assert response["Content-Disposition"].startswith("attachment")
        assert response.content.startswith(b"# Not verified in ")
    other = reader.get(f"{url}?format=json&engine=sglang&trial=1").json()
    assert (other["engine"], other["settings"]["dtype"]) == ("sglang", "bfloat16")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("format=helm", "format"),
        ("format=vllm&engine=sglang", "engine"),
        ("format=json&engine=tgi", "engine"),
        ("format=json&engine_version=9", "engine_version"),
        ("format=json&trial=99", "trial"),
        ("format=json&trial=-1", "trial"),
    ],
)
def test_a_bad_choice_names_the_field_and_the_fix(
    reader: Client, org: Org, query: str, field: str
) -> None:
    study = factories.create_finished_study(org)
    response = reader.get(f"/api/v1/studies/{study.pk}/export?{query}")
    assert response.status_code == 400
    assert list(response.json()["fields"]) == [field]


def test_a_study_without_a_measurement_is_a_conflict(reader: Client, org: Org) -> None:
    response = reader.get(f"/api/v1/studies/{factories.create_study(org).pk}/export")
    assert response.status_code == 409
    assert list(response.json()["fields"]) == ["trial"]


def test_the_command_line_writes_the_file(
    live_server: object,
    org: Org,
    alice: User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, secret = factories.create_token(org, alice, scope="read")
    monkeypatch.setenv(URL_VARIABLE, str(live_server))
    monkeypatch.setenv(TOKEN_VARIABLE, secret)
    study, out = factories.create_finished_study(org), tmp_path / "compose.yaml"
    arguments = ["study", "export", str(study.pk), "--format", "compose", "-o", str(out)]
    assert main(arguments) == 0
    assert list(yaml.safe_load(out.read_text())["services"]) == ["vllm"]
    assert main([*arguments, "--trial", "99"]) == 2
    assert "There is no trial 99" in capsys.readouterr().err
