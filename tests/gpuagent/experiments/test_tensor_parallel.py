"""A model split over processes, for real on loopback: answers, parts, and nothing left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from gpuagent.errors import AgentError, CancelledByServer
from gpuagent.experiments import tensor_parallel
from gpuagent.runner import run_trial
from gpuagent.wire import EngineSettings, FailureReason, LocalModel
from gpuagent.wire.parallel import TensorParallelConfig, TensorParallelResult
from tests.gpuagent.fakes import TINY_CONFIG, tiny_spec


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one two-layer Llama of 4 heads and 2 K/V heads."""
    root = tmp_path_factory.mktemp("models")
    fields = {k: v for k, v in TINY_CONFIG.items() if k != "model_type"}
    LlamaForCausalLM(LlamaConfig(**fields)).save_pretrained(root / "tiny")
    return root


def measured(root: Path, *, cancel: Any = lambda: False, **config: Any) -> TensorParallelResult:
    spec = tiny_spec(
        model=LocalModel(name="tiny"),
        settings=EngineSettings(dtype="float32", threads=2),
        config=TensorParallelConfig(input_tokens=8, decode_steps=4, **config),
    )
    result = run_trial(spec, emit=lambda *a, **k: None, should_cancel=cancel, model_roots=[root])
    assert isinstance(result.measurements, TensorParallelResult)
    assert result.environment.device == "cpu"
    assert result.environment.versions["transformers"]
    return result.measurements


def left_behind() -> list[int]:
    return [
        process.pid
        for process in psutil.Process().children(recursive=True)
        if "gpuagent.lab.tensor_parallel" in process.cmdline()
    ]


def test_a_bare_config_has_no_parts_to_load() -> None:
    with pytest.raises(AgentError, match="bare config") as caught:
        run_trial(
            tiny_spec(config=TensorParallelConfig()),
            emit=lambda *a, **k: None,
            should_cancel=lambda: False,
            model_roots=[],
        )
    assert caught.value.reason is FailureReason.CONFIG_ERROR


@pytest.mark.parametrize(
    ("size", "devices", "words"),
    [
        (1, 1, None),
        (2, 2, None),
        (2, None, None),
        (2, 1, "this host has 1 GPU"),
        (4, 2, "this host has 2 GPUs"),
        (4, None, "4 does not divide the 4 attention heads and 2 K/V heads"),
    ],
)
def test_a_size_that_cannot_run_says_why(size: int, devices: int | None, words: str | None) -> None:
    found = tensor_parallel._problem(size, (4, 2), devices)
    assert found is None if words is None else words in (found or "")


@pytest.mark.services
def test_both_sizes_answer_alike_and_each_process_holds_a_part(root: Path) -> None:
    result = measured(root, sizes=(4, 2, 1))
    one, two, four = result.points
    assert (one.size, two.size, four.size) == (1, 2, 4)
    assert result.backend == "gloo"
    for point in (one, two):
        assert point.prefill_s.n == 5
        assert point.decode_step_s.n == 5 * 4
        assert point.same_tokens == point.answer_tokens == 4
        assert point.peak_memory_bytes.reason
    assert one.weight_bytes.value == result.model.stored_weight_bytes
    assert two.weight_bytes.value is not None
    assert two.weight_bytes.value < 0.7 * (one.weight_bytes.value or 0)
    assert "does not divide" in (four.reason or "")
    assert not left_behind()


@pytest.mark.services
def test_a_process_that_fails_is_a_reason_and_its_partner_ends(tmp_path: Path, root: Path) -> None:
    broken = tmp_path / "tiny"
    broken.mkdir()
    for path in (root / "tiny").iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "model.safetensors").write_bytes(b"\x08" + b"\0" * 64)
    with pytest.raises(AgentError, match="none ran"):
        measured(tmp_path, sizes=(2,))
    assert not left_behind()


@pytest.mark.services
def test_a_cancel_ends_all_processes(root: Path) -> None:
    began = time.monotonic()

    def cancel() -> bool:
        # While the two processes load.
        return time.monotonic() - began > 3 and bool(left_behind())

    with pytest.raises(CancelledByServer):
        measured(root, cancel=cancel, sizes=(2,))
    assert not left_behind()
