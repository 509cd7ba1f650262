from __future__ import annotations

from advisor.charts import ChartInput, chart
from advisor.crossover import common_points, crossover_text, faster_from
from gpuagent.wire import Quantity
from gpuagent.wire.inside import AttentionPoint, AttentionVariant
from tests.builders import make_current, make_evidence, make_samples, make_trial
from tests.inside_builders import make_attention_result, make_variant


def variant(
    seconds: dict[int, float], name: str = "window", kind: str = "structure"
) -> AttentionVariant:
    points = tuple(
        AttentionPoint(
            context_tokens=tokens,
            seconds=make_samples(value, 5, seed=tokens),
            flops=1.0,
            cache_bytes=tokens,
            extra_bytes=Quantity(reason="not read"),
        )
        for tokens, value in seconds.items()
    )
    return make_variant(name, kind).model_copy(update={"points": points})


OWN = variant({256: 1.0, 512: 2.0, 1024: 8.0, 2048: 32.0}, "own")


def test_a_variant_that_overtakes_says_from_which_length() -> None:
    late = variant({256: 2.0, 512: 2.0, 1024: 4.0, 2048: 8.0, 4096: 16.0})
    assert faster_from(OWN, late) == 1024
    assert crossover_text(OWN, late) == "faster from 1,024 tokens on"


def test_always_and_never_are_said_as_such() -> None:
    assert crossover_text(OWN, variant({256: 0.5, 512: 1.0})) == (
        "faster at all lengths from 256 tokens"
    )
    lost_again = variant({256: 0.5, 512: 3.0})
    assert crossover_text(OWN, lost_again) == "not proven faster up to 512 tokens"
    assert crossover_text(OWN, OWN) == "not proven faster up to 2,048 tokens"
    assert crossover_text(OWN, variant({4096: 1.0})) == "not proven faster"


def test_structures_are_compared_at_a_length_that_all_ran() -> None:
    longer = variant({256: 2.0, 1024: 4.0, 8192: 8.0})
    assert [a.context_tokens for a, _ in common_points(OWN, longer)] == [256, 1024]
    result = make_attention_result(OWN, longer)
    trial = make_trial(result, ordinal=2, role="diagnosis")
    data = ChartInput(make_evidence(make_current(), trial), None, None)
    memory = chart("attention-memory", data)
    assert "at 1,024 tokens" in memory.title
    assert (
        "window is faster from 1,024 tokens on compared with own"
        in chart("attention-time", data).note
    )
