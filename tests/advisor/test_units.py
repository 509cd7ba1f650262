from __future__ import annotations

import pytest

from advisor import units


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.183, "18 %"),
        (-0.9976, "−99.8 %"),
        (0.9999, "99.99 %"),
        (1.0, "100 %"),
        (1.2, "120 %"),
        (0.994, "99 %"),
        (0.0, "0 %"),
        (None, "–"),
    ],
)
def test_what_is_less_than_all_never_reads_as_all(fraction: float | None, text: str) -> None:
    assert units.percent(fraction).replace(units.NBSP, " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00034, "340 µs"), (0.0123, "12.3 ms"), (1.5, "1.50 s"), (600, "10 min"), (7200, "2.0 h")],
)
def test_seconds_choose_the_unit_that_reads_best(value: float, text: str) -> None:
    assert units.seconds(value).replace(units.NBSP, " ") == text
