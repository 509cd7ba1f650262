"""What a server's gauges and counters say of the measured window."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gpuagent.engines.base import ServingEngine
from gpuagent.experiments.serve import server_counters
from gpuagent.experiments.server_load import Scraper, _Scrape
from gpuagent.server_metrics import ServerMetrics
from gpuagent.wire import Quantity
from gpuagent.wire.serving import EngineFacts, ServedEngine

SERVED = ServedEngine(
    engine="vllm", version="0.32.0", ready_s=Quantity(value=50.0), facts=EngineFacts()
)


def window(running: list[float], **after: float) -> Scraper:
    """A gauge once a second, and counters that began at 100."""
    seen = [ServerMetrics(engine="vllm", running=value, waiting=0.0) for value in running]
    start: dict[str, Any] = dict.fromkeys(after, 100.0)
    return Scraper(
        cast(ServingEngine, None),
        scrapes=[_Scrape(float(at), each, None) for at, each in enumerate(seen)],
        before=ServerMetrics(engine="vllm", **start),
        after=ServerMetrics(engine="vllm", **{k: 100.0 + v for k, v in after.items()}),
    )


@pytest.mark.parametrize(
    ("running", "after", "peak"),
    [
        ([1, 3, 2], {}, 3),
        # 576 tokens in 150 steps: most steps served four, whatever six samples happened to see.
        ([1, 0, 1], {"steps": 150, "output_tokens": 576}, 4),
        ([6, 0, 1], {"steps": 150, "output_tokens": 576}, 6),
        ([1], {"steps": 576, "output_tokens": 576}, 1),
        # An accepted draft is a further token in the same step.
        ([1], {"steps": 150, "output_tokens": 576, "draft_tokens": 900}, 1),
        ([1], {"output_tokens": 576}, 1),
        ([0], {"steps": 0, "output_tokens": 0}, 0),
    ],
)
def test_the_peak_is_at_least_what_tokens_and_steps_imply(
    running: list[float], after: dict[str, float], peak: int
) -> None:
    counters = server_counters(window(running, **after), SERVED, None)
    assert counters is not None
    assert counters.running_peak == peak


def test_a_server_without_gauges_has_no_counters() -> None:
    assert server_counters(window([], steps=10, output_tokens=40), SERVED, None) is None
