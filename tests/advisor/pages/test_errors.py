from __future__ import annotations

import pytest
from django.test import Client, RequestFactory

from advisor.pages.views import errors


@pytest.mark.django_db
def test_pages_of_errors_need_no_database(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        failed = errors.server_error(RequestFactory().get("/studies/"))
        offline = errors.offline(RequestFactory().get("/offline/"))
    assert failed.status_code == 500
    assert "The server failed on this page" in failed.content.decode()
    assert offline.status_code == 200
    assert "cannot be reached" in offline.content.decode()


@pytest.mark.django_db
def test_service_worker_keeps_the_offline_page_alone(client: Client) -> None:
    response = client.get("/sw.js")
    assert response["Content-Type"] == "text/javascript"
    script = response.content.decode()
    assert 'const PAGE = "/offline/";' in script
    assert "/studies/" not in script
