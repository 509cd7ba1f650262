from __future__ import annotations

import json

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.advisor.imports import samples
from tests.advisor.pages.conftest import MARKUP


def send(client: Client, content: str, targets: str = "ttft_s:p95<=0.1"):
    file = SimpleUploadedFile("result.json", content.encode())
    return client.post("/imports/", {"file": file, "targets": targets})


def test_a_viewer_judges_a_file_and_sees_where_the_numbers_come_from(viewer: Client) -> None:
    assert "Import results" in viewer.get("/imports/").content.decode()
    html = send(viewer, json.dumps(samples.vllm(label=MARKUP))).content.decode()
    assert "imported: vllm bench serve" in html
    assert "Not measured by an agent" in html
    assert "TTFT p95 ≤ 100 ms" in html
    assert 'class="status good"' in html
    assert MARKUP not in html


def test_what_is_wrong_stands_beside_the_field(viewer: Client) -> None:
    for content, targets, words in (
        ("hello", "", "is none of"),
        (json.dumps(samples.vllm(completed="x")), "", "completed: must be a number"),
        (samples.LOCUST, "ttft_s<=1", "METRIC:STATISTIC"),
        ("", "", "The file is empty"),
    ):
        reply = send(viewer, content, targets)
        assert reply.status_code == 400
        assert words in reply.content.decode()
    assert viewer.post("/imports/", {}).status_code == 400
