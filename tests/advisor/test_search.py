from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.search import Knobs, Observation, Signals, Space, devices_of, propose
from gpuagent.simulator import MACHINES, Arrival, ServingKnobs, StartRefused, simulate

SPACE = Space(
    values={
        "max_running": (8, 32, 128, 512),
        "max_batched_tokens": (256, 1024, 4096, 16384),
        "chunked_prefill": (False, True),
        "memory_share_frac": (0.6, 0.8, 0.9, 0.98),
        "kv_dtype": ("auto", "fp8"),
        "cuda_graphs": (False, True),
    },
    memory={"max_batched_tokens": 1, "memory_share_frac": 1},
    cache={"max_batched_tokens": -1, "memory_share_frac": 1, "kv_dtype": 1},
)
CURRENT: Knobs = {
    "max_running": 8,
    "max_batched_tokens": 256,
    "chunked_prefill": True,
    "memory_share_frac": 0.8,
    "kv_dtype": "auto",
    "cuda_graphs": False,
}
DEFAULT: Knobs = {
    **CURRENT,
    "max_running": 128,
    "max_batched_tokens": 4096,
    "cuda_graphs": True,
}


def signals(**overrides: Any) -> Signals:
    fields: dict[str, Any] = {
        "ttft_ratio": 0.5,
        "itl_ratio": 0.5,
        "full_share": 0.0,
        "starved_share": 0.0,
        "eager_share": 0.0,
        "mixed_share": 0.0,
        "preemptions": 0,
        "kv_peak_frac": 0.3,
        "running_peak": 60,
    }
    return Signals(**{**fields, **overrides})


def seen(loss: float | None, knobs: Knobs = DEFAULT, **overrides: Any) -> Observation:
    failure = overrides.pop("failure", None)
    return Observation(knobs, loss, None if failure else signals(**overrides), failure)


def after(*history: Observation) -> tuple[Knobs, str]:
    """The next trial beside the two references."""
    first = [Observation(CURRENT, 50.0, signals())]
    found = propose(SPACE, [*first, *history], current=CURRENT, default=DEFAULT)
    assert found is not None
    return found.knobs, found.reason


def test_the_references_come_first_and_say_why() -> None:
    first = propose(SPACE, [], current=CURRENT, default=DEFAULT)
    assert first is not None
    assert first.knobs == CURRENT
    second = propose(SPACE, [seen(9.0, CURRENT)], current=CURRENT, default=DEFAULT)
    assert second is not None
    assert second.knobs == DEFAULT
    assert "defaults" in second.reason


def test_a_full_batch_with_room_in_the_cache_gets_more_places() -> None:
    knobs, reason = after(seen(3.0, full_share=0.5, ttft_ratio=3.0, running_peak=128))
    assert knobs["max_running"] == 512
    assert "place" in reason


def test_preemption_gives_the_cache_more_room_or_fewer_requests() -> None:
    evidence: dict[str, Any] = {"preemptions": 40, "starved_share": 0.3, "kv_peak_frac": 1.0}
    knobs, reason = after(seen(3.0, ttft_ratio=3.0, running_peak=128, **evidence))
    assert knobs["memory_share_frac"] == 0.98
    assert knobs["kv_dtype"] == "fp8"
    assert knobs["max_running"] == 32
    assert "40 preemptions" in reason


def test_decodes_behind_prefill_get_smaller_chunks() -> None:
    knobs, reason = after(seen(2.0, itl_ratio=2.0, mixed_share=0.4))
    assert knobs["max_batched_tokens"] == 256
    assert "smaller chunks" in reason


def test_graphs_are_switched_on_where_every_step_is_launched() -> None:
    default = {**DEFAULT, "cuda_graphs": False}
    history = [Observation(CURRENT, 50.0, signals()), seen(2.0, default, itl_ratio=2.0)]
    found = propose(SPACE, history, current=CURRENT, default=default)
    assert found is not None
    assert found.knobs["cuda_graphs"] is True


def test_a_budget_never_falls_below_the_running_requests() -> None:
    wide = {**DEFAULT, "max_running": 512}
    knobs, _ = after(seen(9.0), seen(2.0, wide, itl_ratio=2.0, mixed_share=0.4, running_peak=400))
    budget, running = knobs["max_batched_tokens"], knobs["max_running"]
    assert isinstance(budget, int)
    assert isinstance(running, int)
    assert budget >= running


def test_out_of_memory_is_a_bound() -> None:
    crashed = {**DEFAULT, "memory_share_frac": 0.9}
    history = [
        Observation(CURRENT, 50.0, signals()),
        seen(3.0, preemptions=9, starved_share=0.3, kv_peak_frac=1.0, ttft_ratio=3.0),
        seen(None, crashed, failure="out_of_memory"),
    ]
    tried = []
    for _ in range(40):
        found = propose(SPACE, history, current=CURRENT, default=DEFAULT)
        if found is None:
            break
        tried.append(found.knobs)
        history.append(seen(4.0, found.knobs))
    level = SPACE.level("max_batched_tokens", DEFAULT["max_batched_tokens"])
    larger = [
        k for k in tried if SPACE.level("max_batched_tokens", k["max_batched_tokens"]) >= level
    ]
    assert larger
    assert all(k["memory_share_frac"] < 0.9 for k in larger)


def test_a_cache_too_small_for_one_request_is_a_bound_the_other_way() -> None:
    crashed = {**DEFAULT, "memory_share_frac": 0.8}
    default = {**DEFAULT, "memory_share_frac": 0.9}
    history = [
        Observation(CURRENT, 50.0, signals()),
        seen(3.0, default, preemptions=9, starved_share=0.3, kv_peak_frac=1.0, ttft_ratio=3.0),
        seen(None, crashed, failure="cache_too_small"),
    ]
    tried = []
    for _ in range(40):
        found = propose(SPACE, history, current=CURRENT, default=default)
        if found is None:
            break
        tried.append(found.knobs)
        history.append(seen(4.0, found.knobs))
    assert any(k["memory_share_frac"] == 0.98 for k in tried)
    assert not any(
        k["memory_share_frac"] in (0.6, 0.8)
        and k["kv_dtype"] == "auto"
        and k["max_batched_tokens"] in (4096, 16384)
        for k in tried
    )


def test_what_the_counters_rule_out_is_not_tried() -> None:
    history = [Observation(CURRENT, 50.0, signals()), seen(1.2, itl_ratio=1.2, mixed_share=0.3)]
    for _ in range(60):
        found = propose(SPACE, history, current=CURRENT, default=DEFAULT)
        if found is None:
            break
        # 60 requests ran at most and the cache was a third full: neither can matter.
        assert found.knobs["memory_share_frac"] == DEFAULT["memory_share_frac"]
        assert found.knobs["max_running"] != 512
        history.append(seen(1.5, found.knobs))
    else:
        raise AssertionError("the search did not end")


def test_when_nothing_starts_it_tries_moderate_settings() -> None:
    history = [
        Observation(CURRENT, None, failure="config_error"),
        Observation(DEFAULT, None, failure="out_of_memory"),
    ]
    found = propose(SPACE, history, current=CURRENT, default=DEFAULT)
    assert found is not None
    assert found.knobs not in (CURRENT, DEFAULT)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_it_ends_never_repeats_itself_and_stays_on_the_scales(seed: int) -> None:
    rng = random.Random(seed)
    history: list[Observation] = []
    for _ in range(len(SPACE) + 1):
        found = propose(SPACE, history, current=CURRENT, default=DEFAULT)
        if found is None:
            return
        assert all(found.knobs[k] in scale for k, scale in SPACE.values.items())
        assert all(found.knobs != old.knobs for old in history)
        assert found.reason
        if rng.random() < 0.2:
            failure = rng.choice(("out_of_memory", "config_error"))
            history.append(Observation(found.knobs, None, failure=failure))
        else:
            history.append(
                seen(
                    rng.uniform(0.5, 5),
                    found.knobs,
                    itl_ratio=rng.uniform(0, 2),
                    full_share=rng.random(),
                    mixed_share=rng.random(),
                    preemptions=rng.randrange(3),
                    kv_peak_frac=rng.random(),
                )
            )
    raise AssertionError("the search did not end")


def serve(rate: float) -> Callable[[Knobs], Observation]:
    """Trials of a chat load on a simulated machine."""
    rng, at_s, arrivals = random.Random(3), 0.0, []
    for _ in range(120):
        at_s += rng.expovariate(rate)
        arrivals.append(Arrival(at_s, rng.randint(200, 1200), rng.randint(50, 250)))

    def measure(knobs: Knobs) -> Observation:
        machine = MACHINES["qwen3-32b-2xh100"]
        try:
            served = simulate(machine, ServingKnobs(**knobs), arrivals, seed=1)  # type: ignore[arg-type]
        except StartRefused as refused:
            return Observation(knobs, None, failure=refused.kind)  # type: ignore[arg-type]
        ttft = sorted(t[0] - a.at_s for t, a in zip(served.token_s, arrivals, strict=True))[113]
        counters = served.counters
        found = signals(
            ttft_ratio=ttft / 0.5,
            itl_ratio=0.0,
            full_share=counters.full_steps / counters.steps,
            mixed_share=counters.mixed_steps / counters.steps,
            preemptions=counters.preemptions,
            kv_peak_frac=counters.kv_peak_frac,
            running_peak=counters.running_peak,
        )
        return Observation(knobs, ttft / 0.5, found)

    return measure


def test_from_bad_settings_it_finds_ones_that_meet_the_target_in_ten_trials() -> None:
    measure, history = serve(4.0), []
    while len(history) < 10:
        found = propose(SPACE, history, current=CURRENT, default=CURRENT)
        if found is None:
            break
        history.append(measure(found.knobs))
    first, best = history[0].loss, min(o.loss for o in history if o.loss is not None)
    assert first is not None
    assert first > 10
    assert best < 1


# --- more devices ------------------------------------------------------------------------------

FOUR = Space(
    values={
        **SPACE.values,
        "tensor_parallel": (1, 2, 4),
        "data_parallel": (1, 2, 4),
    },
    memory={**SPACE.memory, "tensor_parallel": -1},
    cache={**SPACE.cache, "tensor_parallel": 1},
    devices=4,
)
ONE: Knobs = {"tensor_parallel": 1, "data_parallel": 1}


def split_run(limit_s: float, *, trials: int = 8) -> list[Observation]:
    """A search on a host of four where a step takes 60 ms over the devices of a split, and 2 ms to
    put its parts together."""
    history: list[Observation] = []
    for _ in range(trials):
        found = propose(FOUR, history, current={**CURRENT, **ONE}, default={**DEFAULT, **ONE})
        if found is None:
            break
        degree = found.knobs["tensor_parallel"]
        assert isinstance(degree, int)
        ratio = (0.060 / degree + (0.002 if degree > 1 else 0.0)) / limit_s
        history.append(Observation(found.knobs, ratio, signals(itl_ratio=ratio, ttft_ratio=0.3)))
    return history


def test_a_missed_itl_splits_the_model_until_it_is_kept_and_no_further() -> None:
    degrees = [seen.knobs["tensor_parallel"] for seen in split_run(0.035)]
    assert degrees[:3] == [1, 1, 1]
    assert 2 in degrees[:5]
    assert 4 not in degrees
    assert 4 in [seen.knobs["tensor_parallel"] for seen in split_run(0.020)][:6]


def test_targets_that_are_kept_take_no_further_device() -> None:
    assert all(devices_of(seen.knobs) == 1 for seen in split_run(0.080, trials=40))


def test_devices_that_are_not_there_are_not_asked_for() -> None:
    history = split_run(0.001, trials=60)
    assert max(devices_of(seen.knobs) for seen in history) == 4


def test_a_queue_in_front_of_a_full_batch_gets_a_copy() -> None:
    full: dict[str, Any] = {"full_share": 0.6, "ttft_ratio": 5.0, "running_peak": 128}
    history = [
        Observation({**knobs, **ONE}, loss, signals(**full))
        for knobs, loss in ((CURRENT, 50.0), (DEFAULT, 5.0), ({**DEFAULT, "max_running": 512}, 5.0))
    ]
    found = propose(FOUR, history, current={**CURRENT, **ONE}, default={**DEFAULT, **ONE})
    assert found is not None
    assert (found.knobs["data_parallel"], found.knobs["tensor_parallel"]) == (2, 1)
    assert "copy" in found.reason


def test_a_model_that_fits_no_device_is_split_over_the_fewest_that_may_hold_it() -> None:
    history: list[Observation] = []
    for _ in range(20):
        found = propose(FOUR, history, current={**CURRENT, **ONE}, default={**DEFAULT, **ONE})
        assert found is not None
        fits = found.knobs["tensor_parallel"] == 4
        failure: Any = None if fits else "out_of_memory"
        history.append(seen(0.8 if fits else None, found.knobs, failure=failure))
        if fits:
            break
    assert [seen.knobs["tensor_parallel"] for seen in history[-2:]] == [2, 4]
    assert len(history) <= 4
