"""Time and memory of the trace readers, one child process per file, beside HTA where installed.

    python benchmarks/bench_traces.py [--traces DIR] [--gigabyte] [--sqlite-kernels 1000000]

Each line: file, size, seconds (wall and CPU), peak MiB, verdict. Targets: 54 MB of JSON in 4 s and
150 MiB; 1 GB within 200 MiB; 1 million kernels in SQLite in 15 s. The load of the machine counts:
run it alone. Synthetic files are written to a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHILD = """
import json, resource, sys, time
from pathlib import Path
start, cpu = time.perf_counter(), time.process_time()
from gpuagent.traces.analyse import analyse_file
report = analyse_file(Path(sys.argv[1]))
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu,
 "peak_mib": usage.ru_maxrss / 1024, "class": report.verdict.bottleneck,
 "idle_frac": report.idle_frac}))
"""
HTA_CHILD = """
import json, resource, sys, time, tempfile, shutil
from pathlib import Path
start, cpu = time.perf_counter(), time.process_time()
from hta.trace_analysis import TraceAnalysis
folder = Path(tempfile.mkdtemp()); shutil.copy(sys.argv[1], folder)
trace = TraceAnalysis(trace_dir=str(folder))
table = trace.get_temporal_breakdown(visualize=False)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu,
 "peak_mib": usage.ru_maxrss / 1024, "class": "HTA",
 "idle_frac": float(table.iloc[0]["idle_time_pctg"]) / 100}))
"""
NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)",
    "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)",
)


def write_kineto(path: Path, size_bytes: int) -> None:
    """A synthetic Kineto file of about `size_bytes`: operator, launch, kernel and stack events."""
    written = index = 0
    with path.open("w", encoding="utf-8") as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB')
        out.write(' HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],\n')
        out.write('  "traceEvents": [\n')
        while written < size_bytes:
            parts = []
            for _ in range(500):
                parts.append(_kineto_group(index))
                index += 1
            text = ("" if written == 0 else ",\n") + ",\n".join(parts)
            written += out.write(text)
        out.write("\n]}\n")


def _kineto_group(index: int) -> str:
    """One launch with its kernel, operator and two Python frames, in Kineto's own layout."""
    at, name = 4203669603187.439 + 20.0 * index, NAMES[index % len(NAMES)]
    frames = ",\n".join(
        f'  {{\n    "ph": "X", "cat": "python_function", "name": "model.py({line}): forward", '
        f'"pid": 1, "tid": 1,\n    "ts": {at:.3f}, "dur": 18.000,\n    "args": {{\n      '
        f'"Python parent id": {index}, "Python id": {index}, "Ev Idx": {index}\n    }}\n  }}'
        for line in (10, 20)
    )
    return (
        frames + ",\n"
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1,\n'
        f'    "ts": {at:.3f}, "dur": 15.000,\n    "args": {{\n      "External id": {index},'
        f'"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": '
        f'["float", "float", "Scalar"], "Input Dims": [[32, 4096], [32, 4096], []], '
        f'"Ev Idx": {index}\n    }}\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, '
        f'"tid": 1,\n    "ts": {at + 2:.3f}, "dur": 4.200,\n    "args": {{\n      '
        f'"External id": {index}, "cbid": 211, "correlation": {index}\n    }}\n  }},\n'
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,\n'
        f'    "ts": {at + 8:.3f}, "dur": {6 + index % 5:.3f},\n    "args": {{\n      '
        f'"External id": {index}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
        f'"correlation": {index}, "registers per thread": 32, "shared memory": 0, '
        f'"blocks per SM": 12.5, "warps per SM": 50.0, "grid": [1650, 1, 1], '
        f'"block": [128, 1, 1], "est. achieved occupancy %": 78\n    }}\n  }}'
    )


def write_sqlite(path: Path, kernels: int) -> None:
    """A synthetic Nsight export with one launch call per kernel."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    database.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, '
        "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER)"
    )
    database.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, '
        "globalTid INTEGER, correlationId INTEGER, nameId INTEGER)"
    )
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)",
        [*enumerate(NAMES), (len(NAMES), "cudaLaunchKernel_v7000")],
    )
    pid = 77 << 24
    database.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, ?)",
        ((i * 20_000, i * 20_000 + 9_000, i, pid, i % len(NAMES)) for i in range(kernels)),
    )
    database.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
        ((i * 20_000 - 8_000, i * 20_000 - 3_000, pid | 77, i, len(NAMES)) for i in range(kernels)),
    )
    database.commit()
    database.close()


def measure(path: Path, child: str = CHILD) -> dict[str, object] | None:
    """Run one child on one file; None where it failed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", child, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        return None
    answer: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return answer


def show(label: str, path: Path, figures: dict[str, object] | None) -> None:
    """One line of the table."""
    size = path.stat().st_size / 1e6
    if figures is None:
        sys.stdout.write(f"{label:<36} {size:8.1f} MB  failed\n")
        return
    sys.stdout.write(
        f"{label:<36} {size:8.1f} MB  {figures['wall_s']:6.2f} s wall  {figures['cpu_s']:6.2f} s "
        f"CPU  {figures['peak_mib']:6.0f} MiB  {figures['class']}\n"
    )
    sys.stdout.flush()


def has_hta() -> bool:
    """Whether HolisticTraceAnalysis can be imported in this environment."""
    return (
        subprocess.run(
            [sys.executable, "-c", "import hta.trace_analysis"], capture_output=True, check=False
        ).returncode
        == 0
    )


def main() -> int:
    """Measure real traces where they are, then the synthetic ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "data" / "traces")
    parser.add_argument("--gigabyte", action="store_true", help="also a synthetic file of 1 GB")
    parser.add_argument("--sqlite-kernels", type=int, default=1_000_000)
    args = parser.parse_args()
    with_hta = has_hta()
    if not with_hta:
        sys.stdout.write("HTA is not installed here; its figures are left out.\n")
    for name in ("hta-df-index.json.gz", "hta-diff-control.json.gz", "tl-h100-timesformer.json.gz"):
        path = args.traces / name
        if path.exists():
            show(name, path, measure(path))
            if with_hta:
                show(f"  HTA: {name}", path, measure(path, HTA_CHILD))
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "kernels.sqlite"
        write_sqlite(database, args.sqlite_kernels)
        show(f"sqlite, {args.sqlite_kernels:,} kernels", database, measure(database))
        database.unlink()
        for label, size in (("Kineto, 100 MB", 10**8), ("Kineto, 1 GB", 10**9)):
            if size > 10**8 and not args.gigabyte:
                continue
            path = Path(folder) / "trace.json"
            write_kineto(path, size)
            show(label, path, measure(path))
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
