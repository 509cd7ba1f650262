from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from advisor.accounts.models import Org
from advisor.traces.models import Trace
from advisor.traces.services import stored_path
from tests import factories
from tests.gpuagent.traces.make import GEMM, Kineto, launch_bound, nsys

SECRET = "hf_PlantedSecret0123456789"


def document() -> bytes:
    """A launch-bound trace that carries a secret wherever a profiler may put one."""
    trace = launch_bound()
    trace.meta |= {
        "hostname": SECRET,
        "env": {"HF_TOKEN": SECRET},
        "traceName": f"/home/x/{SECRET}",
    }
    trace.event("user_annotation", f"token={SECRET}", 10.0, 5.0)
    trace.event("cpu_op", f"aten::add token={SECRET}", 10.0, 5.0, Concrete=SECRET)
    return gzip.compress(json.dumps(trace.document()).encode())


def send(client: Client, content: bytes, name: str = "run.json.gz", **headers: str) -> Any:
    return client.post(
        "/api/v1/traces", {"file": SimpleUploadedFile(name, content)}, headers=headers
    )


def test_an_upload_is_analysed_scrubbed_listed_and_deleted(api: Client, org: Org) -> None:
    response = send(api, document(), f"../etc/token={SECRET}<b>.json.gz")
    assert response.status_code == 201
    body = response.json()
    assert body["verdict_class"] == "launch_bound"
    assert body["report"]["verdict"]["class"] == "launch_bound"
    assert body["report"]["idle_frac"] > 0.5
    assert body["report"]["timeline"] is None
    assert response["Location"] == body["urls"]["self"]
    assert "<" not in body["name"]
    assert "/" not in body["name"]

    row = Trace.objects.get(org=org)
    assert SECRET not in json.dumps(body)
    assert SECRET not in json.dumps(row.report_json)
    assert SECRET.encode() not in gzip.decompress(stored_path(row).read_bytes())
    whole = api.get(f"/api/v1/traces/{row.pk}?timeline=true").json()
    assert whole["report"]["timeline"]["bars"]

    file = api.get(f"/api/v1/traces/{row.pk}/file")
    assert gzip.decompress(b"".join(file.streaming_content)).startswith(b'{"traceEvents"')
    assert [t["id"] for t in api.get("/api/v1/traces").json()["results"]] == [body["id"]]

    path = stored_path(row)
    assert api.delete(f"/api/v1/traces/{row.pk}").status_code == 204
    assert not Trace.objects.exists()
    assert api.get(f"/api/v1/traces/{row.pk}").status_code == 404
    assert path.parent.is_dir()


def test_an_export_loses_the_environment_of_the_process(
    api: Client, org: Org, tmp_path: Path
) -> None:
    kernels = [(i * 100, i * 100 + 90, 0, 7, i, 77, GEMM) for i in range(20)]
    path = nsys(tmp_path / "run.sqlite", kernels=kernels)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
    database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('ENV:HF_TOKEN', ?)", (SECRET,))
    database.commit()
    database.close()
    assert SECRET.encode() in path.read_bytes()
    response = send(api, path.read_bytes(), "run.sqlite")
    assert response.status_code == 201, response.json()
    row = Trace.objects.get(org=org)
    assert SECRET.encode() not in stored_path(row).read_bytes()
    assert SECRET not in json.dumps(row.report_json)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.nsys-rep", b"whatever", "nsys export --type sqlite run.nsys-rep"),
        ("notes.txt", b"hello there", "The format is not known"),
        ("snap.pickle", b"\x80\x05rest", "never opened here"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_next_step(
    api: Client, name: str, content: bytes, message: str
) -> None:
    response = send(api, content, name)
    assert response.status_code == 400
    assert message in response.json()["fields"]["file"][0]
    assert not Trace.objects.exists()


def test_a_request_without_a_file_names_the_field(api: Client) -> None:
    response = api.post("/api/v1/traces", {"other": "x"})
    assert response.status_code == 400
    assert "file" in response.json()["fields"]
    assert api.post("/api/v1/traces", {}, content_type="application/json").status_code == 415


def test_size_and_number_are_limited(api: Client, org: Org, settings: Any) -> None:
    settings.TRACE_ORG_MAX_COUNT = 1
    factories.create_trace(org)
    answer = send(api, document())
    assert answer.status_code == 409
    assert "Delete some" in answer.json()["message"]
    settings.TRACE_ORG_MAX_COUNT, settings.TRACE_ORG_MAX_BYTES = 10, 100
    assert send(api, document()).status_code == 409
    settings.TRACE_MAX_BYTES = 10
    assert send(api, document()).status_code == 413
    settings.TRACE_MAX_BYTES = -(1 << 21)
    assert send(api, document()).status_code == 413


def test_a_repeated_request_reads_the_file_once(api: Client, org: Org) -> None:
    content = document()
    first = send(api, content, **{"Idempotency-Key": "one"})
    again = send(api, content, **{"Idempotency-Key": "one"})
    assert first.json()["id"] == again.json()["id"]
    assert again["Idempotency-Replayed"] == "true"
    assert send(api, b"other", **{"Idempotency-Key": "one"}).status_code == 422
    assert Trace.objects.filter(org=org).count() == 1


def test_two_traces_are_compared(api: Client, org: Org, stranger: Client) -> None:
    before, after = factories.create_trace(org), factories.create_trace(org)
    url = f"/api/v1/traces/{after.pk}/compare"
    body = api.get(f"{url}?before={before.pk}").json()
    assert body["comparable"] == "yes"
    assert {row["name"] for row in body["comparison"]["figures"]} >= {"step_s", "idle_frac"}
    assert api.get(url).status_code == 400
    assert "before" in api.get(url).json()["fields"]
    assert stranger.get(f"{url}?before={before.pk}").status_code == 404


def test_a_trace_of_another_organisation_is_no_base(api: Client, org: Org) -> None:
    mine = factories.create_trace(org)
    theirs = factories.create_trace(factories.create_org("Elsewhere"))
    answer = api.get(f"/api/v1/traces/{mine.pk}/compare?before={theirs.pk}")
    assert answer.status_code == 404


def test_readers_see_and_do_not_upload(reader: Client, org: Org) -> None:
    factories.create_trace(org)
    assert len(reader.get("/api/v1/traces").json()["results"]) == 1
    assert send(reader, document()).status_code == 403


def test_a_cpu_recording_abstains_and_lists_operators(api: Client) -> None:
    trace = Kineto()
    for index in range(20):
        trace.event("cpu_op", "aten::mm", index * 100.0, 80.0)
    body = send(api, json.dumps(trace.document()).encode(), "cpu.json").json()
    assert body["verdict_class"] == "cannot_tell"
    assert body["report"]["busy_frac"] is None
    assert body["report"]["cpu"]["top"][0]["name"] == "aten::mm"
