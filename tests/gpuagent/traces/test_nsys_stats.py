"""Tables of nsys stats in the spellings of several releases, CSV and text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.errors import TraceError
from gpuagent.traces.nsys_stats import read_nsys_stats
from gpuagent.traces.read import read_trace

CSV = """NOTICE: Existing SQLite export found: report1.sqlite
Processing [report1.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,6000000,1000,6000.0,6000.0,5000,7000,10.0,"void gemvx::kernel<int, (bool)1>(T1, ""x"")"
40.0,4000000,10,400000.0,400000.0,390000,410000,10.0,ampere_sgemm_128x64_nn

Processing [report1.sqlite] with [/opt/nsys/reports/cuda_api_sum.py]...
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
90.0,9000000,1010,8910.9,8000.0,5000,70000,10.0,cudaLaunchKernel_v7000

Processing [report1.sqlite] with [/opt/nsys/reports/cuda_gpu_mem_time_sum.py]...
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,2000000,4,500000.0,500000.0,1,2,3,[CUDA memcpy Host-to-Device]

Processing [report1.sqlite] with [/opt/nsys/reports/cuda_gpu_mem_size_sum.py]...
Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
40.000,4,10.000,10.000,1,2,3,[CUDA memcpy Host-to-Device]
"""

TEXT = """[5/8] Executing 'cuda_api_sum' stats report

 Time (%)  Total Time (ns)  Num Calls   Avg (ns)   Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name
 --------  ---------------  ---------  ---------  --------  --------  --------  -----------  ----
     90.0        9,000,000      1,010    8,910.9   8,000.0     5,000    70,000         10.0  cudaLaunchKernel

[6/8] Executing 'cuda_gpu_kern_sum' stats report

 Time (%)  Total Time (ns)  Instances   Avg (ns)   Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name
 --------  ---------------  ---------  ---------  --------  --------  --------  -----------  ----
     60.0        6,000,000      1,000    6,000.0   6,000.0     5,000     7,000         10.0  void gemvx::kernel<int, 1>(T1)
     40.0        4,000,000         10  400,000.0 400,000.0   390,000   410,000         10.0  ampere_sgemm_128x64_nn

[7/8] Executing 'cuda_gpu_mem_time_sum' stats report

SKIPPED: /tmp/report1.sqlite does not contain GPU memory data.
"""  # noqa: E501


def write(folder: Path, text: str, name: str = "stats.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [CSV, TEXT], ids=["csv", "text"])
def test_tables_are_found_between_preambles(text: str, tmp_path: Path) -> None:
    summary = read_nsys_stats(write(tmp_path, text))
    assert [row.count for row in summary.kernels] == [1000, 10]
    assert summary.kernels[0].total_s == pytest.approx(0.006)
    assert summary.kernels[0].mean_s == pytest.approx(6e-6)
    assert summary.kernels[0].name.startswith("void gemvx::kernel<int")
    assert [row.count for row in summary.api] == [1010]


def test_skipped_reports_are_absent_not_zero(tmp_path: Path) -> None:
    report = analyse_file(write(tmp_path, TEXT, "stats.txt"))
    assert "does not contain GPU memory data" in report.source["skipped"][0]
    assert any("cuda_gpu_mem_time_sum" in caveat.message for caveat in report.reliability)
    assert report.copies == ()


def test_copies_have_a_rate_where_sizes_are_in_the_file(tmp_path: Path) -> None:
    report = analyse_file(write(tmp_path, CSV))
    assert report.copies[0]["direction"] == "HtoD"
    assert report.copies[0]["gb_s"] == pytest.approx(20.0)


def test_idle_is_not_computable_and_the_shares_are(tmp_path: Path) -> None:
    report = analyse_file(write(tmp_path, CSV))
    assert report.window_s is None
    assert report.busy_frac is None
    assert report.idle_frac is None
    assert report.idle_causes is None
    assert report.kernel_classes is not None
    assert report.kernel_classes["gemv"] == pytest.approx(6 / 12)
    assert "not computable" in report.verdict.sentence
    assert report.verdict.bottleneck == "bandwidth_bound"
    assert {finding.code for finding in report.findings} >= {"matrix_vector", "tiny_kernels"}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        # 2021 and 2022 releases, milliseconds, bare and quoted fields
        ("Time(%),Total Time (ns),Instances,Average (ns),Minimum (ns),Maximum (ns),Name", "ns"),
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name", "ns"),
        ("Time (%),Total Time (ms),Instances,Avg (ms),Min (ms),Max (ms),Name", "ms"),
        ('"Time (%)","Total Time (ns)","Instances","Avg (ns)","Min (ns)","Max (ns)","Name"', "ns"),
    ],
)
def test_renamed_columns_and_other_units_are_read(header: str, row: str, tmp_path: Path) -> None:
    scale = 1 if row == "ns" else 1e-6
    cells = f"100.0,{5e6 * scale},5,{1e6 * scale},1,2,ampere_sgemm_128x64_nn"
    summary = read_nsys_stats(write(tmp_path, f"{header}\n{cells}\n"))
    assert summary.kernels[0].total_s == pytest.approx(0.005)


def test_a_spreadsheet_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, "date,price\n2026-01-01,3\n"))
    assert caught.value.code == "unknown_format"


@settings(max_examples=120, deadline=None)
@given(st.text(max_size=40), st.integers(0, len(CSV) - 1), st.booleans())
def test_damaged_tables_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: str, at: int, csv: bool
) -> None:
    text = CSV if csv else TEXT
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_bytes((text[:at] + junk + text[at + 3 :]).encode("utf-8", errors="replace"))
    code = ""
    try:
        analyse_file(path)
    except TraceError as error:
        code = error.code
    assert code in ("", "unknown_format", "not_a_trace", "malformed", "too_large")
