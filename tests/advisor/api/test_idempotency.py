from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from advisor.accounts.models import IdempotencyKey, Org, User
from advisor.api import idempotency
from advisor.studies.models import Study
from tests import factories
from tests.conftest import ApiClient

Body = Callable[..., dict[str, Any]]


def submit(client: Client, body: dict[str, Any], key: str = "k-1") -> Any:
    return client.post(
        "/api/v1/studies",
        body,
        content_type="application/json",
        headers={"Idempotency-Key": key},
    )


def test_the_same_request_is_answered_the_same_and_done_once(api: Client, body: Body) -> None:
    first, second = submit(api, body()), submit(api, body())
    assert Study.objects.count() == 1
    assert second.status_code == first.status_code == 201
    assert second.json() == first.json()
    assert second["Location"] == first["Location"]
    assert second["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first


def test_key_order_and_white_space_do_not_matter(api: Client, body: Body) -> None:
    submit(api, body())
    reordered = dict(reversed(body().items()))
    assert submit(api, reordered)["Idempotency-Replayed"] == "true"


def test_the_same_key_with_another_body_is_422(api: Client, body: Body) -> None:
    submit(api, body())
    response = submit(api, body(name="another"))
    assert response.status_code == 422
    assert response.json()["code"] == "idempotency_mismatch"
    assert Study.objects.count() == 1


def test_the_same_key_at_another_address_is_422(api: Client, body: Body, org: Org) -> None:
    submit(api, body())
    study = Study.objects.get()
    response = api.post(
        f"/api/v1/studies/{study.pk}/cancel",
        body(),
        content_type="application/json",
        headers={"Idempotency-Key": "k-1"},
    )
    assert response.status_code == 422


def test_another_key_is_another_study(api: Client, body: Body) -> None:
    submit(api, body(), "k-1")
    submit(api, body(), "k-2")
    assert Study.objects.count() == 2


def test_keys_belong_to_one_person_in_one_organisation(
    api: Client, body: Body, org: Org, dora: User, with_token: ApiClient
) -> None:
    submit(api, body())
    assert submit(with_token(dora), body()).status_code == 201
    assert Study.objects.count() == 2


def test_a_refused_request_frees_its_key(api: Client, body: Body) -> None:
    assert submit(api, body(name="")).status_code == 400
    assert not IdempotencyKey.objects.exists()
    assert submit(api, body()).status_code == 201


def test_a_crash_after_the_work_leaves_neither_study_nor_key(
    api: Client, body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(idempotency, "_store", crash)
    response = submit(api, body())
    assert response.status_code == 500
    assert response.json()["code"] == "internal"
    assert not Study.objects.exists()
    monkeypatch.undo()
    assert submit(api, body()).status_code == 201


def test_a_copy_is_told_to_wait_while_the_first_one_runs(api: Client, body: Body) -> None:
    submit(api, body())
    IdempotencyKey.objects.update(status=None, response=None)
    response = submit(api, body())
    assert response.status_code == 409
    assert response.json()["code"] == "idempotency_running"
    assert Study.objects.count() == 1


def test_the_key_of_a_dead_process_is_taken_over(api: Client, body: Body) -> None:
    submit(api, body())
    Study.objects.all().delete()
    IdempotencyKey.objects.update(
        status=None, response=None, created_at=timezone.now() - timedelta(minutes=2)
    )
    assert submit(api, body()).status_code == 201
    assert Study.objects.count() == 1


def test_an_answer_is_kept_for_a_day(api: Client, body: Body) -> None:
    submit(api, body())
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert "Idempotency-Replayed" not in submit(api, body())
    assert Study.objects.count() == 2


@pytest.mark.parametrize("key", ["", "x" * 121, "tab\there", "ä"])
def test_a_bad_key_is_a_field_error(api: Client, body: Body, key: str) -> None:
    response = submit(api, body(), key)
    assert response.status_code == 400
    assert list(response.json()["fields"]) == ["Idempotency-Key"]


@pytest.mark.django_db(transaction=True)
def test_simultaneous_copies_make_one_study(
    body: Body, org: Org, alice: User, with_token: ApiClient
) -> None:
    _, secret = factories.create_token(org, alice)
    data, start = body(), threading.Barrier(6)
    answers: list[tuple[int, Any]] = []

    def run() -> None:
        client = Client(headers={"Authorization": f"Bearer {secret}"})
        start.wait()
        response = submit(client, data)
        answers.append((response.status_code, response.json()))
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Study.objects.count() == 1
    assert {status for status, _ in answers} <= {201, 409}
    created = [answer["id"] for status, answer in answers if status == 201]
    assert set(created) == {str(Study.objects.get().pk)}
