"""Tokens and sessions at the door of the API (who gets in), apart from any resource."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from advisor.accounts.models import Membership, Org, User
from advisor.accounts.services import token_revoke
from tests import factories
from tests.conftest import ApiClient


def _get(secret: str, **headers: str) -> object:
    return Client(headers={"Authorization": f"Bearer {secret}", **headers}).get(
        reverse("api-studies")
    )


def test_a_live_token_gets_in_and_is_marked_as_used(org: Org, alice: User) -> None:
    token, secret = factories.create_token(org, alice, scope="read")
    assert _get(secret).status_code == 200
    token.refresh_from_db()
    assert token.last_used_at is not None


def test_the_mark_is_written_at_most_once_a_minute(org: Org, alice: User) -> None:
    token, secret = factories.create_token(org, alice)
    _get(secret)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        _get(secret)
    assert not [q for q in queries if q["sql"].startswith("UPDATE")]
    type(token).objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    with CaptureQueriesContext(connection) as queries:
        _get(secret)
    assert len([q for q in queries if q["sql"].startswith("UPDATE")]) == 1


@pytest.mark.parametrize("case", ["expired", "revoked", "inactive", "left", "unknown", "altered"])
def test_a_dead_token_is_401_with_a_challenge_and_says_the_same(
    org: Org, alice: User, case: str
) -> None:
    token, secret = factories.create_token(org, alice)
    if case == "expired":
        type(token).objects.update(expires_at=timezone.now())
    elif case == "revoked":
        token_revoke(org=org, token_id=token.pk, actor="alice")
    elif case == "inactive":
        User.objects.update(is_active=False)
    elif case == "left":
        Membership.objects.all().delete()
    elif case == "unknown":
        token.delete()
    else:
        secret = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    response = _get(secret)
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")
    assert response.json() == {
        "code": "authentication_failed",
        "message": "The token is unknown, expired or revoked. Make a new one on the Tokens page.",
        "fields": {},
    }


@pytest.mark.parametrize("header", ["Bearer", "Bearer a b", "Bearer é", "Bearer ta_short"])
def test_a_malformed_header_is_401(db: None, header: str) -> None:
    response = Client(headers={"Authorization": header}).get(reverse("api-studies"))
    assert response.status_code == 401
    assert response.json()["code"] == "authentication_failed"


def test_an_agents_credential_is_no_api_token(org: Org) -> None:
    agent = factories.create_agent(org)
    assert _get(agent.secret).status_code == 401


def test_nobody_is_401(db: None) -> None:
    response = Client().get(reverse("api-studies"))
    assert response.status_code == 401
    assert response.json()["code"] == "not_authenticated"
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_a_bad_token_is_refused_even_with_a_good_session(alice: User, org: Org) -> None:
    client = Client()
    client.force_login(alice)
    response = client.get(reverse("api-studies"), headers={"Authorization": "Bearer ta_nonsense"})
    assert response.status_code == 401


def test_a_token_reads_no_cookie_and_needs_no_csrf(
    org: Org, alice: User, with_token: ApiClient
) -> None:
    client = with_token(alice)
    client.handler.enforce_csrf_checks = True
    response = client.post(reverse("api-studies"), {}, content_type="application/json")
    assert response.status_code == 400
    assert "Cookie" not in response.get("Vary", "")


def test_a_session_needs_csrf_to_write(org: Org, alice: User, signed_in: ApiClient) -> None:
    client = signed_in(alice, enforce_csrf_checks=True)
    assert client.get(reverse("api-studies")).status_code == 200
    response = client.post(reverse("api-studies"), {}, content_type="application/json")
    assert response.status_code == 403
    assert "CSRF" in response.json()["message"]


def test_a_read_token_cannot_write(org: Org, alice: User, with_token: ApiClient) -> None:
    response = with_token(alice, scope="read").post(
        reverse("api-studies"), {}, content_type="application/json"
    )
    assert response.status_code == 403
    assert "scope write" in response.json()["message"]


def test_a_viewers_write_token_cannot_write(org: Org, bob: User, with_token: ApiClient) -> None:
    response = with_token(bob).post(reverse("api-studies"), {}, content_type="application/json")
    assert response.status_code == 403
    assert "viewer" in response.json()["message"]


def test_a_person_without_an_organisation_is_told_so(db: None, signed_in: ApiClient) -> None:
    response = signed_in(factories.create_user()).get(reverse("api-studies"))
    assert response.status_code == 403
    assert "no organisation" in response.json()["message"]


def test_a_token_opens_its_own_organisation_only(org: Org, alice: User, charlie: User) -> None:
    theirs = charlie.memberships.get().org
    factories.create_member(theirs, alice, "viewer")
    study = factories.create_study(theirs)
    _, secret = factories.create_token(org, alice)
    response = Client(headers={"Authorization": f"Bearer {secret}"}).get(
        reverse("api-study", kwargs={"study_id": study.pk})
    )
    assert response.status_code == 404


def test_the_session_chooses_among_a_persons_organisations(
    org: Org, alice: User, charlie: User, signed_in: ApiClient
) -> None:
    theirs = charlie.memberships.get().org
    factories.create_member(theirs, alice, "viewer")
    study = factories.create_study(theirs)
    client = signed_in(alice)
    url = reverse("api-study", kwargs={"study_id": study.pk})
    assert client.get(url).status_code == 404
    session = client.session
    session["org"] = str(theirs.pk)
    session.save()
    assert client.get(url).status_code == 200
    Membership.objects.filter(org=theirs, user=alice).delete()
    assert client.get(url).status_code == 404


@pytest.mark.parametrize("stored", ["nonsense", "00000000-0000-4000-8000-000000000000", 7])
def test_a_stale_choice_falls_back_to_the_first_organisation(
    org: Org, alice: User, signed_in: ApiClient, stored: object
) -> None:
    client = signed_in(alice)
    session = client.session
    session["org"] = stored
    session.save()
    study = factories.create_study(org)
    assert client.get(reverse("api-study", kwargs={"study_id": study.pk})).status_code == 200
