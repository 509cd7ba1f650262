from __future__ import annotations

import os
import time
from pathlib import Path

from gpuagent.telemetry.energy import NoEnergy, RaplEnergy, open_meter
from gpuagent.telemetry.fake import FakeReader, thermal_sequence
from gpuagent.telemetry.nvml import NoGpus
from gpuagent.telemetry.sampler import Sampler


def samples_of(sampler: Sampler, count: int) -> list[object]:
    found: list[object] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += sampler.drain()
        time.sleep(0.01)
    return found


def test_it_samples_host_and_gpus_until_the_block_ends() -> None:
    reader = FakeReader(thermal_sequence())
    with Sampler(reader=reader, period_s=0.02) as sampler:
        found = samples_of(sampler, 5)
    assert [s.gpus[0].temperature_c for s in found[:5]] == [61, 72, 80, 87, 88]
    assert "sw_thermal" in found[4].gpus[0].throttle_reasons
    assert found[0].cpu_frac is None
    assert all(0 <= s.cpu_frac <= 1 for s in found[1:] if s.cpu_frac is not None)
    assert all(s.memory_available_bytes > 0 for s in found)
    assert reader.closed


def test_a_watched_process_is_accounted_and_its_tree_is_not_foreign() -> None:
    reader = FakeReader(thermal_sequence())
    with Sampler(reader=reader, period_s=0.02) as sampler:
        sampler.watch(os.getpid())
        found = samples_of(sampler, 4)
        assert os.getpid() in reader.own_pids
        sampler.watch(None)
        time.sleep(0.1)
        sampler.drain()
        idle = samples_of(sampler, 1)
    assert found[-1].child_rss_bytes > 10_000_000
    assert found[-1].child_cpu_cores is not None
    assert idle[0].child_rss_bytes is None


def test_drain_hands_every_sample_out_once() -> None:
    sampler = Sampler(reader=FakeReader(thermal_sequence()), period_s=0.02)
    sampler.start()
    samples_of(sampler, 2)
    sampler.stop()
    sampler.drain()
    assert sampler.drain() == []


def test_a_process_that_is_gone_has_no_numbers() -> None:
    sampler = Sampler(reader=NoGpus("none"))
    sampler.watch(2**22 + 7)
    sample = sampler.sample_now()
    assert sample.child_rss_bytes is None
    assert sample.gpus == ()


def rapl(folder: Path, *, energy_uj: int, range_uj: int = 1_000_000) -> Path:
    package = folder / "intel-rapl:0"
    package.mkdir(parents=True, exist_ok=True)
    (package / "energy_uj").write_text(str(energy_uj))
    (package / "max_energy_range_uj").write_text(str(range_uj))
    (folder / "intel-rapl:0:0").mkdir(exist_ok=True)
    return package


def test_rapl_joules_go_on_when_the_counter_wraps(tmp_path: Path) -> None:
    package = rapl(tmp_path, energy_uj=900_000)
    meter = open_meter(NoGpus("none"), powercap=tmp_path)
    assert isinstance(meter, RaplEnergy)
    before = meter.read_j()
    (package / "energy_uj").write_text("100000")
    after = meter.read_j()
    assert before is not None
    assert after is not None
    assert round(after - before, 6) == 0.2


def test_without_any_counter_the_reason_is_given(tmp_path: Path) -> None:
    meter = open_meter(NoGpus("none"), powercap=tmp_path)
    assert isinstance(meter, NoEnergy)
    assert meter.read_j() is None
    assert "RAPL" in (meter.reason or "")


def test_a_gpu_counter_is_preferred(tmp_path: Path) -> None:
    rapl(tmp_path, energy_uj=1)
    meter = open_meter(FakeReader(thermal_sequence()), powercap=tmp_path)
    assert meter.read_j() == 1_000_420.0
