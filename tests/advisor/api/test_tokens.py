from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import ApiToken, Org, User
from tests import factories
from tests.conftest import ApiClient

TOKENS = "/api/v1/tokens"


def issue(client: Client, **body: Any) -> Any:
    return client.post(TOKENS, body, content_type="application/json")


def test_an_issued_token_works_and_its_secret_is_shown_once(api: Client) -> None:
    answer = issue(api, name="ci", scope="read", days=3)
    assert answer.status_code == 201
    secret = answer.json()["secret"]
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/studies").status_code == 200
    listing = api.get(TOKENS)
    assert secret not in listing.content.decode()
    assert answer.json()["token"]["prefix"] in [t["prefix"] for t in listing.json()["results"]]


def test_a_repeated_request_makes_one_token_and_never_stores_the_secret(api: Client) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {"name": "ci", "scope": "read"}
    kwargs: dict[str, Any] = {"content_type": "application/json", "headers": headers}
    first = api.post(TOKENS, body, **kwargs).json()
    second = api.post(TOKENS, body, **kwargs).json()
    assert first["secret"]
    assert second["secret"] is None
    assert first["token"]["id"] == second["token"]["id"]
    from advisor.accounts.models import IdempotencyKey

    assert first["secret"] not in str(IdempotencyKey.objects.values())


def test_a_token_cannot_prolong_itself(org: Org, alice: User, with_token: ApiClient) -> None:
    answer = issue(with_token(alice), name="again", scope="write", days=365).json()
    newest, oldest = ApiToken.objects.order_by("-created_at")
    assert newest.expires_at == oldest.expires_at
    assert answer["token"]["scope"] == "write"


def test_a_session_may_issue_for_a_year(org: Org, alice: User, signed_in: ApiClient) -> None:
    assert issue(signed_in(alice), name="ci", days=365).status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "x", "scope": "all"}, "scope"),
        ({"name": "x", "days": 0}, "days"),
        ({"name": "x", "days": 1.5}, "days"),
        ({"name": "x", "user": 1}, "user"),
    ],
)
def test_a_bad_request_names_the_field(api: Client, body: dict[str, Any], field: str) -> None:
    response = issue(api, **body)
    assert response.status_code == 400
    assert list(response.json()["fields"]) == [field]


def test_a_revoked_token_is_refused_at_once(api: Client, org: Org, alice: User) -> None:
    token, secret = factories.create_token(org, alice)
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get(TOKENS).status_code == 200
    assert api.delete(f"{TOKENS}/{token.pk}").status_code == 204
    assert client.get(TOKENS).status_code == 401
    assert api.get(f"{TOKENS}/{token.pk}").json()["live"] is False


@pytest.mark.parametrize("method", ["get", "post"])
def test_tokens_are_for_owners(
    org: Org, dora: User, bob: User, with_token: ApiClient, method: str
) -> None:
    for user in (dora, bob):
        client = with_token(user)
        response = client.get(TOKENS) if method == "get" else issue(client, name="x")
        assert response.status_code == 403


def test_another_organisations_token_is_404(stranger: Client, org: Org, alice: User) -> None:
    token, _ = factories.create_token(org, alice)
    assert stranger.get(f"{TOKENS}/{token.pk}").status_code == 404
    assert stranger.delete(f"{TOKENS}/{token.pk}").status_code == 404
    token.refresh_from_db()
    assert token.is_live
