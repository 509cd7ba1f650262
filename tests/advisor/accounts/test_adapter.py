from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from advisor.accounts.models import Role, User

SIGNUP = {
    "email": "Ada@Example.org",
    "password1": "very-much-a-secret",
    "password2": "very-much-a-secret",
}


@pytest.mark.django_db
def test_sign_up_is_closed_by_default() -> None:
    assert Client().post(reverse("account_signup"), SIGNUP).status_code == 200
    assert not User.objects.exists()


@pytest.mark.django_db
def test_open_sign_up_gives_an_organisation_of_ones_own(settings: Any) -> None:
    settings.ADVISOR_OPEN_SIGNUP = True
    response = Client().post(reverse("account_signup"), SIGNUP)
    assert response.status_code == 302
    user = User.objects.get()
    assert user.email == "ada@example.org"
    assert not user.is_staff
    membership = user.memberships.get()
    assert membership.role == Role.OWNER
    assert membership.org.name == "ada's organisation"


@pytest.mark.django_db
def test_sign_in_works_in_any_case_and_goes_to_the_studies() -> None:
    User.objects.create_user("ada@example.org", "very-much-a-secret")
    response = Client().post(
        reverse("account_login"), {"login": "ADA@example.org", "password": "very-much-a-secret"}
    )
    assert response.status_code == 302
    assert response["Location"] == reverse("studies")


@pytest.mark.django_db
def test_guessing_a_password_is_slowed_down() -> None:
    User.objects.create_user("ada@example.org", "very-much-a-secret")
    client = Client()
    wrong = {"login": "ada@example.org", "password": "guess"}
    for _ in range(5):
        client.post(reverse("account_login"), wrong)
    right = {"login": "ada@example.org", "password": "very-much-a-secret"}
    response = client.post(reverse("account_login"), right)
    assert response.status_code in (200, 429)
    assert "_auth_user_id" not in client.session
