from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from advisor import secrets
from advisor.accounts import services
from advisor.accounts.models import ApiToken, AuditEvent, Membership, Org, Role, User
from advisor.errors import Conflict, InvalidInput, NotFound
from tests import factories


def test_a_new_organisation_belongs_to_its_owner(alice: User) -> None:
    org = services.org_create(name="  Latency lab ", owner=alice)
    assert org.name == "Latency lab"
    assert org.memberships.get().role == Role.OWNER
    assert AuditEvent.objects.get(org=org).action == "org.create"


@pytest.mark.parametrize("name", ["", "   ", "x" * 121, "line\nbreak"])
def test_a_bad_organisation_name_is_a_field_error(alice: User, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.org_create(name=name, owner=alice)
    assert list(caught.value.fields) == ["name"]
    assert not Org.objects.exists()


# --- members -----------------------------------------------------------------------------------


def test_an_invited_stranger_gets_an_account_and_a_link_that_sets_the_password(org: Org) -> None:
    membership, link = services.member_invite(
        org=org, email=" New.Person@Example.org ", role="member", actor="alice"
    )
    assert membership.user.email == "new.person@example.org"
    assert not membership.user.has_usable_password()
    assert link is not None

    client = Client()
    form = client.get(urlsplit(link).path, follow=True)
    where = form.redirect_chain[-1][0]
    client.post(where, {"password1": "very-much-a-secret", "password2": "very-much-a-secret"})
    membership.user.refresh_from_db()
    assert membership.user.check_password("very-much-a-secret")

    again = Client()
    used = again.get(urlsplit(link).path)
    assert used.status_code == 200
    assert used.context["token_fail"]


def test_inviting_somebody_with_an_account_hands_out_no_link(org: Org, charlie: User) -> None:
    membership, link = services.member_invite(
        org=org, email="CHARLIE@example.org", role="viewer", actor="alice"
    )
    assert membership.user == charlie
    assert link is None


@pytest.mark.parametrize("email", ["", "nobody", "a@", "a b@example.org"])
def test_a_bad_address_is_a_field_error(org: Org, email: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.member_invite(org=org, email=email, role="member", actor="alice")
    assert list(caught.value.fields) == ["email"]


def test_nobody_joins_twice(org: Org, bob: User) -> None:
    with pytest.raises(Conflict):
        services.member_invite(org=org, email=bob.email, role="owner", actor="alice")
    assert Membership.objects.get(org=org, user=bob).role == Role.VIEWER


def test_an_unknown_role_is_refused(org: Org, charlie: User) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.member_add(org=org, user=charlie, role="emperor", actor="alice")
    assert list(caught.value.fields) == ["role"]


def test_a_fresh_link_is_for_people_without_a_password_here_and_nowhere_else(
    org: Org, charlie: User
) -> None:
    invited, _ = services.member_invite(
        org=org, email="new@example.org", role="member", actor="alice"
    )
    assert "/password/reset/key/" in services.member_password_link(
        org=org, membership_id=invited.pk
    )
    joined = services.member_add(org=org, user=charlie, role="viewer", actor="alice")
    with pytest.raises(Conflict):
        services.member_password_link(org=org, membership_id=joined.pk)
    invited.user.set_password("chosen")
    invited.user.save()
    with pytest.raises(Conflict):
        services.member_password_link(org=org, membership_id=invited.pk)


def test_the_last_owner_can_neither_leave_nor_step_down(org: Org, alice: User, bob: User) -> None:
    owner = org.memberships.get(user=alice)
    with pytest.raises(Conflict):
        services.member_remove(org=org, membership_id=owner.pk, actor="alice")
    with pytest.raises(Conflict):
        services.member_role_set(org=org, membership_id=owner.pk, role="member", actor="alice")
    other = org.memberships.get(user=bob)
    services.member_role_set(org=org, membership_id=other.pk, role="owner", actor="alice")
    services.member_remove(org=org, membership_id=owner.pk, actor="bob")
    assert [m.user for m in org.memberships.all()] == [bob]


def test_leaving_revokes_the_tokens_so_that_coming_back_revives_none(org: Org, dora: User) -> None:
    token, _ = factories.create_token(org, dora)
    services.member_remove(org=org, membership_id=org.memberships.get(user=dora).pk, actor="alice")
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_members_of_another_organisation_are_not_found(org: Org, charlie: User) -> None:
    foreign = charlie.memberships.get()
    with pytest.raises(NotFound):
        services.member_role_set(org=org, membership_id=foreign.pk, role="viewer", actor="alice")
    with pytest.raises(NotFound):
        services.member_remove(org=org, membership_id=foreign.pk, actor="alice")
    assert charlie.memberships.get().role == Role.OWNER


# --- tokens ------------------------------------------------------------------------------------


def test_a_token_keeps_only_the_hash_of_its_secret(org: Org, alice: User) -> None:
    token, secret = services.token_issue(org=org, user=alice, name="ci", scope="read", days=7)
    assert secret.startswith(token.prefix + "_")
    stored = ApiToken.objects.values().get(pk=token.pk)
    assert secret not in str(stored)
    assert secret.removeprefix(token.prefix + "_") not in str(stored)
    assert secrets.matches(secret, token.secret_hash)
    assert token.expires_at - timezone.now() == pytest.approx(
        timedelta(days=7), abs=timedelta(seconds=10)
    )
    event = AuditEvent.objects.get(action="token.issue")
    assert secret not in str(event.detail)


def test_a_token_never_outlives_the_one_that_issued_it(org: Org, alice: User) -> None:
    end = timezone.now() + timedelta(days=2)
    token, _ = services.token_issue(
        org=org, user=alice, name="ci", scope="read", days=90, not_after=end
    )
    assert token.expires_at == end


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("days", {"days": 0}),
        ("days", {"days": 366}),
        ("days", {"days": True}),
        ("scope", {"scope": "admin"}),
        ("name", {"name": " "}),
        ("name", {"name": "x" * 81}),
    ],
)
def test_a_bad_token_request_names_the_field(
    org: Org, alice: User, field: str, arguments: dict
) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.token_issue(
            **{"org": org, "user": alice, "name": "ci", "scope": "read", "days": 7, **arguments}
        )
    assert list(caught.value.fields) == [field]
    assert not ApiToken.objects.exists()


def test_revoking_twice_changes_nothing_and_is_audited_once(org: Org, alice: User) -> None:
    token, _ = factories.create_token(org, alice)
    first = services.token_revoke(org=org, token_id=token.pk, actor="alice").revoked_at
    second = services.token_revoke(org=org, token_id=token.pk, actor="alice").revoked_at
    assert first == second
    assert AuditEvent.objects.filter(action="token.revoke").count() == 1


def test_another_organisations_token_cannot_be_revoked(org: Org, charlie: User) -> None:
    foreign, _ = factories.create_token(charlie.memberships.get().org, charlie)
    with pytest.raises(NotFound):
        services.token_revoke(org=org, token_id=foreign.pk, actor="alice")
    foreign.refresh_from_db()
    assert foreign.is_live
