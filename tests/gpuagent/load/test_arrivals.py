from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from gpuagent.errors import ConfigError
from gpuagent.load.arrivals import PROCESSES, arrival_times, read_replay


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_keeps_the_rate_and_repeats_with_its_seed(process) -> None:
    times = arrival_times(process, 20.0, 4000, seed=3)
    assert times == sorted(times)
    assert times == arrival_times(process, 20.0, 4000, seed=3)
    assert times[-1] / 4000 == pytest.approx(1 / 20, rel=0.1)


@pytest.mark.parametrize(("process", "cov"), [("constant", 0.0), ("poisson", 1.0), ("bursty", 2.0)])
def test_the_spread_of_gaps_is_that_of_the_process(process, cov) -> None:
    times = arrival_times(process, 20.0, 8000, seed=1, burstiness=0.25)
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(cov, abs=0.1)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="rate"):
        arrival_times("poisson", 0, 1, seed=0)


def test_a_log_is_replayed_from_its_first_stamp_with_its_lengths(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("seconds,input_tokens,output_tokens\n100.5,7,3\n101.5,9,4\n")
    rows = read_replay(log, speed=2.0)
    assert [(row.at_s, row.lengths) for row in rows] == [(0.0, (7, 3)), (0.5, (9, 4))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no time stamps"),
        ("1\n0.5\n", "line 2: is earlier"),
        ("1\nsoon\n", "line 2: needs"),
        ("1,2\n", "line 1: needs"),
        ("nan\n1\n2 0 1\n", "line 3: needs"),
    ],
)
def test_a_wrong_log_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    log = tmp_path / "log.txt"
    log.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_replay(log)
