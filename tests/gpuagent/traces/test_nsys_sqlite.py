"""The Nsight reader: joins per process, probes the schema, and treats the file as hostile."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.errors import TraceError
from gpuagent.traces.limits import Limits
from gpuagent.traces.nsys_sqlite import read_nsys_sqlite
from tests.gpuagent.traces.make import GEMM, nsys

LAUNCH = "cudaLaunchKernel_v7000"


def two_processes(path: Path, **tables: list[str]) -> Path:
    """Both processes use correlation ids 1 and 2; only the process tells their launches apart."""
    return nsys(
        path,
        kernels=[
            (1000, 1100, 0, 7, 1, 11, GEMM),
            (1200, 1300, 0, 7, 2, 11, GEMM),
            (1000, 1100, 1, 7, 1, 22, GEMM),
            (1200, 1300, 1, 7, 2, 22, GEMM),
        ],
        calls=[
            (900, 910, 22, 1, 1, LAUNCH),
            (800, 810, 11, 1, 1, LAUNCH),
            (950, 960, 11, 1, 2, LAUNCH),
            (970, 980, 22, 1, 2, LAUNCH),
        ],
        **tables,
    )


def test_launches_join_on_process_and_correlation(tmp_path: Path) -> None:
    trace = read_nsys_sqlite(two_processes(tmp_path / "t.sqlite"))
    starts = trace.host.start[trace.gpu.launch].tolist()
    by_device = dict(zip(trace.gpu.device.tolist()[::2], [starts[:2], starts[2:]], strict=True))
    assert by_device == {0: [800, 950], 1: [900, 970]}


def test_suffixes_are_stripped_from_api_names(tmp_path: Path) -> None:
    report = analyse_file(two_processes(tmp_path / "t.sqlite"))
    assert report.api is not None
    assert report.api["cudaLaunchKernel"]["count"] == 4


def test_kernels_alone_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    database = sqlite3.connect(path)
    database.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end")')
    database.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)",
        [(i * 100, i * 100 + 50) for i in range(10)],
    )
    database.commit()
    database.close()
    report = analyse_file(path)
    assert report.idle_frac == pytest.approx(9 * 50 / 950)
    assert report.api is None


def test_copies_memsets_devices_and_graph_blocks_are_read(tmp_path: Path) -> None:
    path = two_processes(
        tmp_path / "t.sqlite",
        sql=[
            'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, "end", deviceId, streamId, bytes, '
            "copyKind, srcKind, dstKind)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1400, 1500, 0, 8, 1000, 1, 0, 2)",
            'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start, "end", deviceId)',
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (1500, 1510, 0)",
            'CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, "end", deviceId, graphId)',
            "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1600, 1900, 0, 3)",
            "CREATE TABLE TARGET_INFO_GPU (id, name, smCount, memoryBandwidth)",
            "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 PCIe', 114, 2039000000000)",
        ],
    )
    report = analyse_file(path)
    assert report.copies[0]["direction"] == "HtoD"
    assert report.copies[0]["pageable_s"] == pytest.approx(100e-9)
    assert report.copies[0]["gb_s"] == pytest.approx(10.0)
    assert report.kernel_classes is not None
    assert report.kernel_classes["graph"] == pytest.approx(300 / 810)
    assert report.devices[0]["name"] == "NVIDIA H100 PCIe"
    assert any(caveat.code == "graph_mode" for caveat in report.reliability)


def test_workers_that_all_call_their_gpu_zero_are_told_apart(tmp_path: Path) -> None:
    path = nsys(
        tmp_path / "t.sqlite",
        kernels=[(0, 100, 0, 7, 1, 11, GEMM), (50, 150, 0, 7, 1, 22, GEMM)],
        sql=[
            "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)",
            "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (4, 0, 11), (5, 0, 22)",
        ],
    )
    assert [device.id for device in read_nsys_sqlite(path).devices] == [4, 5]


def test_step_labels_come_from_nvtx_texts_and_string_ids(tmp_path: Path) -> None:
    path = two_processes(
        tmp_path / "t.sqlite",
        sql=[
            'CREATE TABLE NVTX_EVENTS (start, "end", eventType, text, textId)',
            "INSERT INTO NVTX_EVENTS VALUES (700, 1400, 59, 'decode', NULL)",
            "INSERT INTO StringIds VALUES (900, 'execute_context_1(8_8)_generation_0(0)')",
            "INSERT INTO NVTX_EVENTS VALUES (700, 1400, 59, NULL, 900)",
            "INSERT INTO NVTX_EVENTS VALUES (700, 1400, 34, 'step 1', NULL)",
            "INSERT INTO NVTX_EVENTS VALUES (700, 1400, 59, 'aten::mm, op_id = 3', NULL)",
        ],
    )
    report = analyse_file(path)
    assert {row["phase"] for row in report.phases} == {"decode", "prefill"}


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW StringIds2 AS SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT 1; END",
        "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) "
        "SELECT x FROM c",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
    ],
)
def test_code_in_the_schema_is_refused(statement: str, tmp_path: Path) -> None:
    path = two_processes(tmp_path / "t.sqlite", sql=[statement])
    with pytest.raises(TraceError) as caught:
        read_nsys_sqlite(path)
    assert caught.value.code == "refused"


def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    database = sqlite3.connect(path)
    database.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(x) AS "
        '(SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x AS start, x+1 AS "end" FROM c'
    )
    database.commit()
    database.close()
    with pytest.raises(TraceError) as caught:
        read_nsys_sqlite(path)
    assert caught.value.code == "refused"


def test_computed_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    database = sqlite3.connect(path)
    database.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end" GENERATED ALWAYS AS '
        "(length(zeroblob(100000000))) VIRTUAL)"
    )
    database.commit()
    database.close()
    with pytest.raises(TraceError) as caught:
        read_nsys_sqlite(path)
    assert caught.value.code == "refused"


def test_cells_of_any_type_are_survived(tmp_path: Path) -> None:
    path = two_processes(
        tmp_path / "t.sqlite",
        sql=[
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', NULL, 0, 7, 1, 1, 1)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 1, 0, 7, 1, 1, 1)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1500, 1600, 'x', x'00', 1.5, 'p', 'n')",
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (-9223372036854775808, "
            "9223372036854775807, 0, 7, 1, 1, 1)",
            "INSERT INTO StringIds VALUES (77, x'fffe')",
        ],
    )
    trace = read_nsys_sqlite(path)
    assert len(trace.gpu) == 5
    assert trace.facts.malformed == 3


def test_the_environment_of_the_profiled_process_is_never_read(tmp_path: Path) -> None:
    path = two_processes(
        tmp_path / "t.sqlite",
        sql=[
            "CREATE TABLE META_DATA_CAPTURE (name, value)",
            "INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT:API_KEY', 'planted-secret')",
            "INSERT INTO META_DATA_CAPTURE VALUES ('CUDA_GRAPH_TRACE_OPTIONS:MODE', 'Graph')",
        ],
    )
    assert "planted-secret" not in str(analyse_file(path).as_dict())
    assert read_nsys_sqlite(path).facts.graph_mode == "graph"


def test_too_many_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_nsys_sqlite(two_processes(tmp_path / "t.sqlite"), Limits(rows=3))
    assert caught.value.code == "too_large"


def test_an_ordinary_database_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE users (name)")
    database.commit()
    database.close()
    with pytest.raises(TraceError) as caught:
        read_nsys_sqlite(path)
    assert "nsys export" in caught.value.message


def test_damaged_pages_are_read_or_refused(tmp_path: Path) -> None:
    kernels = [(i * 100, i * 100 + 60, 0, 7, i, 11, f"kernel_{i % 50}") for i in range(2000)]
    whole = nsys(tmp_path / "whole.sqlite", kernels=kernels).read_bytes()
    dice = random.Random(7)
    refused = 0
    for number in range(120):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 30)):
            at = dice.randrange(16 if number % 2 else 100, len(damaged))
            damaged[at] = dice.randrange(256)
        path = tmp_path / "damaged.sqlite"
        path.write_bytes(
            damaged[: dice.randint(1000, len(damaged))] if number % 5 == 0 else damaged
        )
        try:
            analyse_file(path, Limits(seconds=20))
        except TraceError:
            refused += 1
    assert refused > 10


def test_the_file_is_not_changed_and_no_journal_is_left(tmp_path: Path) -> None:
    path = two_processes(tmp_path / "t.sqlite")
    before = path.read_bytes()
    read_nsys_sqlite(path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["t.sqlite"]
