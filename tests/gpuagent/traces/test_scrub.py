"""A planted secret survives in no scrubbed file, and the figures stay the same."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.errors import TraceError
from gpuagent.traces.scrub import scrub_file, scrub_text
from tests.gpuagent.traces import make
from tests.gpuagent.traces.make import GEMM, Kineto, nsys

SECRET = "hunter2-planted"
KEY = "hf_AbCdEfGhIjKlMnOpQr"


def content(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def figures(path: Path) -> dict[str, Any]:
    table = analyse_file(path).as_dict()
    table.pop("source")
    return table


def leaky() -> Kineto:
    trace = make.launch_bound()
    trace.meta |= {
        "traceName": f"/home/{SECRET}/trace.json",
        "host_name": SECRET,
        "metadata": {"env": {"API_KEY": SECRET}, "command": f"serve --token {KEY}"},
        "distributedInfo": {"rank": 0, "world_size": 1, "master_addr": SECRET},
    }
    trace.event("user_annotation", f"request of {SECRET}", 900, 10)
    trace.event("python_function", f"/home/{SECRET}/model.py(10): forward", 900, 10)
    trace.event("cpu_op", f"aten::mm token={KEY}", 900, 10, **{"Call stack": SECRET})
    trace.event("cpu_op", f"load /home/{SECRET}/weights", 900, 10)
    trace.events.append(
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"python {SECRET}"}}
    )
    return trace


def test_kineto_keeps_the_figures_and_loses_the_secret(tmp_path: Path) -> None:
    source, target = leaky().write(tmp_path / "t.json"), tmp_path / "clean.json.gz"
    assert SECRET.encode() in source.read_bytes()
    scrub_file(source, target)
    kept = content(target)
    assert SECRET.encode() not in kept
    assert KEY.encode() not in kept
    before, after = figures(source), figures(target)
    for key in before.keys() - {"cpu"}:
        assert after[key] == before[key], key


def test_scrubbing_twice_changes_nothing_more(tmp_path: Path) -> None:
    source = leaky().write(tmp_path / "t.json")
    once, twice = tmp_path / "1.json.gz", tmp_path / "2.json.gz"
    scrub_file(source, once)
    scrub_file(once, twice)
    assert content(once) == content(twice)


def test_exact_epoch_times_survive_scrubbing(tmp_path: Path) -> None:
    path, target = tmp_path / "t.json", tmp_path / "clean.json.gz"
    events = ",".join(
        '{"ph": "X", "cat": "kernel", "name": "k", "dur": 0.1, "args": {"device": 0}, '
        f'"ts": 1709171155487891.{frac:03d}}}'
        for frac in (1, 105, 317, 420, 530, 640)
    )
    path.write_text('{"traceEvents": [' + events + "]}")
    scrub_file(path, target)
    assert figures(target)["window_s"] == figures(path)["window_s"]


def test_an_nsight_export_loses_environment_streams_and_threads(tmp_path: Path) -> None:
    source, target = tmp_path / "t.sqlite", tmp_path / "clean.sqlite"
    nsys(
        source,
        kernels=[(1000 * i, 1000 * i + 900, 0, 7, i, 11, GEMM) for i in range(50)],
        calls=[(1000 * i - 500, 1000 * i - 400, 11, 1, i, "cudaLaunchKernel") for i in range(50)],
        sql=[
            "CREATE TABLE META_DATA_CAPTURE (name, value)",
            f"INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT:API_KEY', '{SECRET}')",
            "INSERT INTO META_DATA_CAPTURE VALUES ('CUDA_GRAPH_TRACE_OPTIONS:MODE', 'Node')",
            "CREATE TABLE META_DATA_EXPORT (name, value)",
            f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_HOST', '{SECRET}')",
            "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')",
            "CREATE TABLE ProcessStreams (globalPid, filenameId, contentId)",
            f"INSERT INTO ProcessStreams VALUES (1, '{SECRET}', '{SECRET}')",
            "CREATE TABLE ThreadNames (nameId, globalTid)",
            f"INSERT INTO StringIds VALUES (5000, 'output of {SECRET}')",
            'CREATE TABLE NVTX_EVENTS (start, "end", eventType, text)',
            f"INSERT INTO NVTX_EVENTS VALUES (0, 100, 59, 'request {SECRET}')",
            "INSERT INTO NVTX_EVENTS VALUES (0, 100, 59, 'decode')",
            "CREATE TABLE TARGET_INFO_GPU (id, name, busLocation)",
            f"INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100', '{SECRET}')",
        ],
    )
    scrub_file(source, target)
    assert SECRET.encode() not in target.read_bytes()
    assert figures(target) == figures(source)
    tables = {row[0] for row in sqlite3.connect(target).execute("SELECT name FROM sqlite_master")}
    assert not tables & {"ProcessStreams", "ThreadNames"}


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    source = nsys(tmp_path / "t.sqlite", kernels=[(0, 1, 0, 7, 1, 1, GEMM)])
    with pytest.raises(TraceError) as caught:
        scrub_file(source, source)
    assert caught.value.code == "exists"


@pytest.mark.parametrize(
    "text",
    [
        "OPENAI_API_KEY=abcdef",
        "Authorization: Bearer abc.def.ghi",
        "password: hunter2",
        KEY,
        "sk-proj-aaaaaaaaaaaa",
        "/home/alice/models/x.safetensors",
        "alice@example.org",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_credentials_paths_and_addresses_are_blanked(text: str) -> None:
    assert "[removed]" in scrub_text(f"before {text} after")


def test_kernel_names_are_left_alone() -> None:
    for name in (GEMM, make.ADD, make.SOFTMAX, "void tokens_kernel<int>(int)"):
        assert scrub_text(name) == name


def test_stats_tables_are_scrubbed_line_by_line(tmp_path: Path) -> None:
    path, target = tmp_path / "t.csv", tmp_path / "clean.csv"
    path.write_text(
        f"Processing [/home/{SECRET}/r.sqlite]\n"
        "Time (%),Total Time (ns),Instances,Avg (ns),Name\n100.0,10,1,10.0,kernel\n"
    )
    scrub_file(path, target)
    assert SECRET not in target.read_text()
    assert json.dumps(figures(path)) == json.dumps(figures(target))
