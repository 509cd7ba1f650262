from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from tests.advisor.imports import samples

TARGET = {"metric": "ttft_s", "statistic": "p95", "limit": 0.1}


def send(client: Client, content: str, **more: Any) -> Any:
    body = {"content": content, "targets": [TARGET], **more}
    return client.post("/api/v1/imports", json.dumps(body), content_type="application/json")


def test_a_file_is_judged_and_never_counts_as_measured_here(reader: Client) -> None:
    reply = send(reader, json.dumps(samples.vllm()))
    assert reply.status_code == 200, reply.content
    (trial,) = reply.json()["trials"]
    assert trial["basis"].startswith("imported: vllm bench serve")
    assert (trial["validity"], trial["single_requests"]) == ("warn", 200)
    assert trial["targets"][0]["verdict"] == "met"
    assert len(send(reader, json.dumps(samples.guidellm())).json()["trials"]) == 2
    assert send(reader, samples.LOCUST).json()["trials"][0]["targets"][0]["verdict"] == (
        "not_measured"
    )


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("", "content"),
        ("hello", "content"),
        ("[" * 100_000, "content"),
        ("\ud800", "content"),
        (json.dumps(samples.vllm(completed="x")), "content.completed"),
        (json.dumps(samples.guidellm()).replace("0.8.1", "\x00"), "content"),
    ],
)
def test_a_wrong_file_is_400_with_the_field(reader: Client, content: str, field: str) -> None:
    reply = send(reader, content)
    assert reply.status_code == 400, reply.content
    assert field in reply.json()["fields"]


def test_too_large_and_too_many_are_refused(reader: Client) -> None:
    assert send(reader, "x" * 21_000_000).status_code == 413
    assert send(reader, samples.LOCUST, targets=[TARGET] * 13).status_code == 400
