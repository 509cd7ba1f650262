"""NVML through a stand-in that knows only what a test tells it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from gpuagent.telemetry.nvml import NvmlReader, count_foreign, decode_reasons, open_reader


class FakeNvml:
    """Any function that was not given answers NotSupported, as real cards do."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, **functions: Any) -> None:
        self._functions = {
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
            **functions,
        }

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return self._functions.get(name, self._not_supported)

    def _not_supported(self, *_: Any) -> Any:
        raise self.NVMLError("Not Supported")


FULL = {
    "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
    "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=80 * 10**9, used=41 * 10**9),
    "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1980, 2: 2619}[kind],
    "nvmlDeviceGetPowerUsage": lambda _: 655_250,
    "nvmlDeviceGetTotalEnergyConsumption": lambda _: 1_000_500,
    "nvmlDeviceGetTemperature": lambda *_: 61,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x24,
    "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=os.getpid())],
    "nvmlDeviceGetName": lambda _: "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetUUID": lambda _: "GPU-1",
    "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
    "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
    "nvmlDeviceGetMigMode": lambda _: (0, 0),
}


@pytest.fixture(autouse=True)
def all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_units_become_si() -> None:
    reader = NvmlReader(FakeNvml(**FULL))
    (sample,) = reader.sample(frozenset({os.getpid()}))
    assert sample.util_frac == 0.97
    assert sample.sm_clock_hz == 1.98e9
    assert sample.memory_clock_hz == 2.619e9
    assert sample.power_w == 655.25
    assert sample.energy_j == 1000.5
    assert sample.temperature_c == 61
    assert sample.throttle_reasons == ("sw_power_cap", "sw_thermal")
    assert sample.foreign_processes == 0
    assert reader.energy_j() == 1000.5
    assert reader.driver_version == "580.95.05"
    (gpu,) = reader.gpus()
    assert gpu.compute_capability == "9.0"
    assert gpu.power_limit_w == 700
    assert gpu.mig is False


def test_what_a_card_does_not_report_is_none_and_never_zero() -> None:
    reader = NvmlReader(FakeNvml())
    (sample,) = reader.sample(frozenset())
    values = sample.model_dump(exclude={"index", "throttle_reasons"})
    assert set(values.values()) == {None}
    assert reader.energy_j() is None
    assert reader.driver_version is None
    (gpu,) = reader.gpus()
    assert gpu.memory_bytes is None
    assert gpu.name == "unknown"


def test_only_visible_devices_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    reader = NvmlReader(FakeNvml(nvmlDeviceGetCount=lambda: 3))
    assert [gpu.index for gpu in reader.gpus()] == [1]


def test_a_foreign_process_counts_and_ours_does_not() -> None:
    running = [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=os.getppid())]
    assert count_foreign(running, frozenset({os.getpid()})) == 1
    assert count_foreign([], frozenset()) == 0


def test_process_ids_of_another_namespace_are_not_judged() -> None:
    assert count_foreign([SimpleNamespace(pid=2**22 + 1)], frozenset()) is None


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, ()),
        (0x1, ("gpu_idle",)),
        (0x8 | 0x40 | 0x80, ("hw_slowdown", "hw_thermal", "hw_power_brake")),
        (0x4 | 0x4000, ("sw_power_cap", "bit_0x4000")),
    ],
)
def test_event_reasons_have_names(mask: int, names: tuple[str, ...]) -> None:
    assert decode_reasons(mask) == names


def test_a_machine_without_the_library_says_so() -> None:
    reader = open_reader()
    if reader.problem is None:
        pytest.skip("this machine has an NVIDIA GPU")
    assert reader.gpus() == ()
    assert reader.sample(frozenset()) == ()
    assert reader.energy_j() is None
