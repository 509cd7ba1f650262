from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from gpuagent.wire import StudySpec


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """As `manage.py spectacular` writes it; a warning or an invalid document fails here."""
    file = tmp_path_factory.mktemp("schema") / "openapi.yml"
    call_command("spectacular", file=str(file), validate=True, fail_on_warn=True)
    return yaml.safe_load(file.read_text())


def test_every_user_endpoint_is_described(schema: dict[str, Any]) -> None:
    assert set(schema["paths"]) == {
        "/api/v1/agents",
        "/api/v1/agents/{slug}",
        "/api/v1/agents/{slug}/drain",
        "/api/v1/agents/{slug}/resume",
        "/api/v1/compare",
        "/api/v1/estimates",
        "/api/v1/gpus",
        "/api/v1/gpus/{name}/price",
        "/api/v1/imports",
        "/api/v1/models",
        "/api/v1/rules",
        "/api/v1/studies",
        "/api/v1/studies/{study_id}",
        "/api/v1/studies/{study_id}/cancel",
        "/api/v1/studies/{study_id}/diagnoses",
        "/api/v1/studies/{study_id}/export",
        "/api/v1/studies/{study_id}/findings",
        "/api/v1/studies/{study_id}/gate",
        "/api/v1/studies/{study_id}/report",
        "/api/v1/studies/{study_id}/shares",
        "/api/v1/studies/{study_id}/shares/{share_id}",
        "/api/v1/studies/{study_id}/trials",
        "/api/v1/studies/{study_id}/what-if",
        "/api/v1/tokens",
        "/api/v1/tokens/{token_id}",
        "/api/v1/traces",
        "/api/v1/traces/{trace_id}",
        "/api/v1/traces/{trace_id}/compare",
        "/api/v1/traces/{trace_id}/file",
        "/api/v1/trials/{trial_id}",
        "/api/v1/trials/{trial_id}/cancel",
    }


def test_the_study_request_is_the_wire_type(schema: dict[str, Any]) -> None:
    operation = schema["paths"]["/api/v1/studies"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/StudySpec"}
    described = schema["components"]["schemas"]["StudySpec"]
    assert set(described["properties"]) == set(StudySpec.model_fields)
    assert described["required"] == ["name", "model", "workload"]
    assert described["additionalProperties"] is False


def test_every_operation_says_how_it_fails(schema: dict[str, Any]) -> None:
    error = {"$ref": "#/components/schemas/ErrorReply"}
    for path, operations in schema["paths"].items():
        for name, operation in operations.items():
            failures = [code for code in operation["responses"] if code >= "400"]
            assert {"401", "403"} <= set(failures), f"{name} {path}"
            for code in failures:
                content = operation["responses"][code]["content"]
                assert content["application/json"]["schema"] == error


def test_no_reference_leads_nowhere(schema: dict[str, Any]) -> None:
    text = yaml.safe_dump(schema)
    wanted = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert wanted <= set(schema["components"]["schemas"])


def test_the_schema_is_public_and_served(db: None) -> None:
    response = Client().get("/api/schema/", headers={"Accept": "application/json"})
    assert response.status_code == 200
    assert b"openapi" in response.content
    assert Client().get("/api/schema").status_code == 302


def test_the_docs_work_under_the_strict_policy(db: None) -> None:
    response = Client().get("/api/docs/")
    html = response.content.decode()
    assert "script-src 'self'" in response["Content-Security-Policy"]
    assert "<style" not in html
    assert not re.search(r"<script(?![^>]* src=)", html)
    assert not re.search(r"\son\w+=|\sstyle=", html)
    sources = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert sources
    assert all(source.startswith("/") for source in sources)
    script = Client().get(next(s for s in sources if "script=" in s))
    assert script.status_code == 200
    assert script["Content-Type"].startswith("application/javascript")
    assert b"SwaggerUIBundle" in script.content


def test_the_docs_load_only_files_that_exist(db: None) -> None:
    from django.contrib.staticfiles import finders

    html = Client().get("/api/docs/").content.decode()
    files = re.findall(r'"/static/([^"?]+)', html)
    assert len(files) >= 3
    for file in files:
        assert Path(str(finders.find(file))).is_file(), file
