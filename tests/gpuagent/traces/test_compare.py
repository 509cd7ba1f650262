"""Before and after: changes per step, and refusals where the traces are not alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.compare import Comparison, compare
from tests.gpuagent.traces import make
from tests.gpuagent.traces.make import GEMM, Kineto


def compared(before: Kineto, after: Kineto, folder: Path) -> Comparison:
    return compare(
        analyse_file(before.write(folder / "before.json")),
        analyse_file(after.write(folder / "after.json")),
    )


def figure(found: Comparison, name: str) -> float | None:
    return next(row.change for row in found.figures if row.name == name)


def test_a_trace_equals_itself(tmp_path: Path) -> None:
    found = compared(make.launch_bound(), make.launch_bound(), tmp_path)
    assert found.comparable == "yes"
    assert found.reasons == ()
    assert all(row.change in (0, None) for row in (*found.figures, *found.classes))
    assert "unchanged" in found.sentence
    assert (found.kernels_new, found.kernels_gone, found.findings_new) == ((), (), ())


def test_removing_the_waits_shortens_the_step_and_the_idle_time(tmp_path: Path) -> None:
    after = Kineto()
    at = 1000.0
    for number in range(4):
        after.step(number, at - 20, 20 * 100.5)
        for _ in range(20):
            after.launched(GEMM, at, 100, call=at - 500)
            at += 100.5
    found = compared(make.sync_bound(), after, tmp_path)
    assert found.comparable == "yes"
    assert found.per_step
    assert (found.verdict_before, found.verdict_after) == ("sync_bound", "compute_bound")
    assert (figure(found, "idle_frac") or 0) < -0.3
    assert "shorter" in found.sentence
    assert "synchronisation" in found.findings_gone
    assert found.classes[0].of == "step"


def test_different_gpus_cannot_be_compared(tmp_path: Path) -> None:
    other = make.launch_bound()
    other.meta["deviceProperties"][0]["name"] = "NVIDIA L4"
    found = compared(make.launch_bound(), other, tmp_path)
    assert found.comparable == "no"
    assert "Different GPUs" in found.reasons[0]
    assert "cannot be compared" in found.sentence


def test_an_abstaining_trace_cannot_be_compared(tmp_path: Path) -> None:
    empty = Kineto()
    empty.event("cpu_op", "aten::mm", 0, 10)
    found = compared(make.launch_bound(), empty, tmp_path)
    assert found.comparable == "no"
    assert "abstains" in found.reasons[0]


def test_prefill_and_decode_are_different_work(tmp_path: Path) -> None:
    prefill, decode = make.busy(), make.busy()
    prefill.event("user_annotation", "execute_context_1(8_8)_generation_0(0)", 900, 9000)
    decode.event("user_annotation", "execute_context_0(0_0)_generation_8(8_800)", 900, 9000)
    found = compared(prefill, decode, tmp_path)
    assert found.comparable == "no"
    assert any("Different phases" in reason for reason in found.reasons)


def test_steps_of_different_size_are_different_work(tmp_path: Path) -> None:
    small, large = make.busy(), make.busy()
    small.event("user_annotation", "execute_context_0(0_0)_generation_8(8_800)", 900, 9000)
    large.event("user_annotation", "execute_context_0(0_0)_generation_64(64_800)", 900, 9000)
    found = compared(small, large, tmp_path)
    assert any("query tokens" in reason for reason in found.reasons)


@pytest.mark.parametrize("marked", ["before", "after"])
def test_without_steps_shares_are_compared_with_care(marked: str, tmp_path: Path) -> None:
    plain = make.busy()
    plain.events = [e for e in plain.events if e["cat"] != "user_annotation"]
    pair = (make.busy(), plain) if marked == "before" else (plain, make.busy())
    found = compared(*pair, tmp_path)
    assert found.comparable == "with_care"
    assert not found.per_step
    assert found.classes[0].of == "GPU time"
