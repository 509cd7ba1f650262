from __future__ import annotations

import numpy as np
import pytest

from gpuagent.stats import steady


def test_noise_around_a_constant_is_steady() -> None:
    rng = np.random.default_rng(0)
    found = steady(rng.normal(1.0, 0.05, 200))
    assert found.verdict == "steady"
    assert found.reason == ""
    assert found.drift_low is not None
    assert found.drift_high is not None
    assert found.drift_low <= 0.0 <= found.drift_high


def test_a_trend_is_drift_with_its_size() -> None:
    found = steady(np.linspace(1.0, 2.0, 100))
    assert found.verdict == "drifting"
    assert found.drift_frac == pytest.approx(1 / 1.5, rel=0.02)
    assert "drifts by +67 %" in found.reason


def test_a_drift_of_five_percent_is_the_limit() -> None:
    assert steady(np.linspace(0.976, 1.024, 100)).verdict == "steady"
    assert steady(np.linspace(0.973, 1.027, 100)).verdict == "drifting"


def test_a_step_between_the_halves_is_drift() -> None:
    found = steady([1.0] * 50 + [1.2] * 50)
    assert found.verdict == "drifting"
    assert found.halves_ratio == pytest.approx(1.2)


def test_few_samples_say_nothing() -> None:
    assert steady([1.0] * 19).verdict == "too_short"
    assert steady([1.0] * 19).drift_frac is None


def test_times_order_the_samples() -> None:
    values, times = np.linspace(1, 2, 60), np.arange(60.0)
    shuffled = np.random.default_rng(1).permutation(60)
    assert steady(values[shuffled], times_s=times[shuffled]) == steady(values, times_s=times)
    with pytest.raises(ValueError, match="59 times for 60 samples"):
        steady(values, times_s=times[1:])
