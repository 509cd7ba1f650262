from __future__ import annotations

import logging

import pytest
from django.db import OperationalError
from django.test import Client

from advisor.api.views import studies


@pytest.mark.parametrize("path", ["", "v1", "v2/studies", "v1/studies/", "v1/studies/7", "nothing"])
@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_an_unknown_address_is_a_json_404(path: str, method: str) -> None:
    response = getattr(Client(enforce_csrf_checks=True), method)(f"/api/{path}")
    assert response.status_code == 404
    assert response.json() == {
        "code": "not_found",
        "message": "There is no such endpoint: see /api/docs/.",
        "fields": {},
    }


def test_a_wrong_method_is_405_in_the_same_shape(api: Client) -> None:
    response = api.delete("/api/v1/studies")
    assert response.status_code == 405
    assert response["Allow"] == "GET, POST, HEAD, OPTIONS"
    assert response.json()["code"] == "method_not_allowed"
    assert response.json()["fields"] == {}


def test_an_answer_that_is_no_json_cannot_be_had(api: Client) -> None:
    response = api.get("/api/v1/studies", headers={"Accept": "application/xml"})
    assert response.status_code == 406
    assert response.json()["code"] == "not_acceptable"


def test_a_bug_is_logged_and_told_without_details(
    api: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(studies, "studies_of", broken)
    with caplog.at_level(logging.ERROR):
        response = api.get("/api/v1/studies")
    assert response.status_code == 500
    assert response.json()["code"] == "internal"
    assert "secret detail" not in response.content.decode()
    assert "secret detail" in caplog.text


def test_a_busy_database_is_503_with_a_time_to_come_back(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(studies, "studies_of", busy)
    response = api.get("/api/v1/studies")
    assert response.status_code == 503
    assert response.json()["code"] == "unavailable"
    assert response["Retry-After"] == "5"
