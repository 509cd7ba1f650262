"""The study page says each sentence once: what the notice says is not in the lede above it."""

from __future__ import annotations

import pytest

from advisor.pages.present.study_page import _without

PROVED = "A/B proved no difference in TTFT: p = 0.50 (6 runs)"


@pytest.mark.parametrize(
    ("lede", "left"),
    [
        (f"Nothing is recommended. Trial 3: {PROVED}.", "Nothing is recommended."),
        (f"Nothing is recommended. {PROVED}", "Nothing is recommended."),
        ("Trial 3: something else.", "Trial 3: something else."),
    ],
)
def test_a_lede_without_the_notice(lede: str, left: str) -> None:
    assert _without(lede, PROVED) == left
