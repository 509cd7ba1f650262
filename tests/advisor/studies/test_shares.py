"""Links to a report: shown once, read without an account, ended by time or by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from advisor.accounts.models import Org, User
from advisor.errors import Conflict, InvalidInput
from advisor.studies import sharing
from advisor.studies.models import Study, StudyShare
from tests import factories


@pytest.fixture
def study(org: Org) -> Study:
    agent = factories.create_agent(org, "secret-agent")
    return factories.create_finished_study(org, agent=agent)


def path_of(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2]


def create(study: Study, user: User, days: int = 7) -> tuple[StudyShare, str]:
    return sharing.share_create(study=study, user=user, days=days, actor=user.email)


def test_a_link_shows_the_report_and_nothing_else(study: Study, alice: User) -> None:
    share, url = create(study, alice)
    page = Client().get(path_of(url))
    text = page.content.decode()
    assert page.status_code == 200
    assert study.name in text
    assert "<h2>Targets</h2>" in text
    for private in (alice.email, "secret-agent", str(study.pk), "/studies/", "csrf", share.prefix):
        assert private not in text
    assert page["Cache-Control"] == "private, no-store"
    assert page["Referrer-Policy"] == "no-referrer"
    assert "noindex" in page["X-Robots-Tag"]
    assert not page.cookies
    secret = path_of(url).split("/")[2]
    assert secret not in str(StudyShare.objects.values().get())
    assert Client().post(path_of(url)).status_code == 405


def test_an_ended_link_is_410_and_says_how(study: Study, alice: User, org: Org) -> None:
    share, url = create(study, alice, days=1)
    StudyShare.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    page = Client().get(path_of(url))
    assert page.status_code == 410
    assert "has expired" in page.content.decode()
    sharing.share_revoke(study=study, share_id=share.pk, actor=alice.email)
    sharing.share_revoke(study=study, share_id=share.pk, actor=alice.email)
    page = Client().get(path_of(url))
    assert page.status_code == 410
    assert "was revoked" in page.content.decode()
    assert study.name not in page.content.decode()
    assert page["Cache-Control"] == "private, no-store"
    actions = list(org.audit_events.order_by("pk").values_list("action", flat=True))
    assert actions == ["share.create", "share.revoke"]
    assert path_of(url).split("_")[-1] not in str(list(org.audit_events.values()))


def test_a_wrong_secret_with_a_right_prefix_is_404(study: Study, alice: User) -> None:
    _, url = create(study, alice)
    wrong = path_of(url)[:-3] + ("A" if url[-3] != "A" else "B") + path_of(url)[-2:]
    for path in (wrong, "/r/nonsense/", f"/r/{'x' * 5000}/"):
        assert Client().get(path).status_code == 404


def test_lifetime_and_number_are_limited(
    study: Study, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (0, 2, 365, True):
        with pytest.raises(InvalidInput, match="long"):
            create(study, alice, days=days)
    monkeypatch.setattr(sharing, "MAX_LIVE", 1)
    create(study, alice)
    with pytest.raises(Conflict, match="Revoke one"):
        create(study, alice)


def test_the_page_makes_a_link_shows_it_once_and_revokes_it(
    study: Study, alice: User, signed_in: object
) -> None:
    browser = signed_in(alice)
    shown = browser.post(reverse("share-add", args=[study.pk]), {"days": "30"})
    share = StudyShare.objects.get()
    assert shown.status_code == 200
    assert f"/r/{share.prefix}_" in shown.content.decode()
    later = browser.get(reverse("study", args=[study.pk])).content.decode()
    assert f"{share.prefix}…" in later
    assert f"/r/{share.prefix}_" not in later
    browser.post(reverse("share-revoke", args=[study.pk, share.pk]))
    share.refresh_from_db()
    assert not share.is_live
    refused = browser.post(reverse("share-add", args=[study.pk]), {"days": "x"}, follow=True)
    assert "Choose one of 1, 7, 30." in refused.content.decode()


def test_the_api_makes_lists_and_revokes(study: Study, org: Org, alice: User) -> None:
    _, secret = factories.create_token(org, alice)
    api = Client(headers={"Authorization": f"Bearer {secret}"})
    url = reverse("api-study-shares", args=[study.pk])
    headers = {"Idempotency-Key": "k"}
    made = api.post(url, {"days": 1}, content_type="application/json", headers=headers)
    assert made.status_code == 201
    assert Client().get(path_of(made.json()["url"])).status_code == 200
    again = api.post(url, {"days": 1}, content_type="application/json", headers=headers)
    assert again.json()["url"] is None
    assert api.post(url, {"days": 2}, content_type="application/json").status_code == 400
    (listed,) = api.get(url).json()["results"]
    assert listed["live"] is True
    assert "secret" not in str(listed)
    one = reverse("api-study-share", args=[study.pk, listed["id"]])
    assert api.delete(one).status_code == 204
    assert Client().get(path_of(made.json()["url"])).status_code == 410
