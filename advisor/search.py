"""Which configuration of a serving engine to try next, and why. Pure.

One observation is one trial: the knobs, how it went, and what the server's own counters said. Each
proposal changes the best configuration so far and names the evidence that it comes from:

1. what limits the best trial says which knob to move and in which direction (a rule of thumb per
   symptom, as in the engines' own tuning guides); all of them together are tried first, then alone;
2. a move that helped is repeated in the same direction, one that hurt is not;
3. a crash is a bound: what needs at least as much memory, or leaves as little for the cache, is not
   tried again;
4. then the whole scale of the knobs that the symptoms blame, the widest gap first, and the
   neighbours of the best configuration, those of the knobs first that moved the result most;
5. what cannot matter by the best trial's own counters is left out (more places than ever ran, more
   cache than was ever used);
6. more devices are tried only while a limit is missed or the cache is full, and after the moves
   that take none.

The search ends when the neighbourhood is exhausted or the budget is spent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Value = int | float | bool | str
Knobs = Mapping[str, Value]
Failure = Literal["config_error", "out_of_memory", "cache_too_small", "other"]

# Two trials of one configuration differ by this much.
NOISE_FRAC = 0.03
# Knobs that multiply the devices of a configuration.
DEGREES = ("tensor_parallel", "data_parallel")
# A symptom in no more steps than this is none.
_RARE = 0.02
# Further devices come after the two references and one trial of all moves that take none.
_FREE_TRIALS = 3


@dataclass(frozen=True, slots=True)
class Space:
    """values: knob -> its values, those that need less memory first where they differ in it.

    memory: +1 where a larger value needs more device memory, -1 where it needs less.
    cache: +1 where a larger value leaves more room for the cache, -1 where it leaves less.
    devices: the product of the degrees (`DEGREES`) cannot be larger.
    """

    values: Mapping[str, tuple[Value, ...]]
    memory: Mapping[str, int] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)
    devices: int = 1

    def level(self, knob: str, value: Value) -> int:
        return self.values[knob].index(value)

    def moved(self, knobs: Knobs, knob: str, steps: int) -> Value | None:
        """The value `steps` further, cut at the end of the scale; None where nothing changes."""
        scale = self.values[knob]
        now = self.level(knob, knobs[knob])
        found = scale[max(0, min(len(scale) - 1, now + steps))]
        return found if found != knobs[knob] else None

    def __len__(self) -> int:
        total = 1
        for scale in self.values.values():
            total *= len(scale)
        return total


@dataclass(frozen=True, slots=True)
class Signals:
    """What limited a trial. Ratios to the limit: above 1 is over; None where there is no target.

    full_share: steps in which a full batch kept requests waiting. starved_share: steps in which the
    cache did. eager_share: decode steps without a graph. mixed_share: decode steps with prefill;
    None where the engine does not count them.
    """

    ttft_ratio: float | None
    itl_ratio: float | None
    full_share: float
    starved_share: float
    eager_share: float | None
    mixed_share: float | None
    preemptions: int
    kv_peak_frac: float
    running_peak: int

    @property
    def starved(self) -> bool:
        """Whether the cache was too small for what came."""
        return self.preemptions > 0 or self.starved_share > _RARE

    @property
    def missed(self) -> bool:
        """Whether a latency target was."""
        return max(self.ttft_ratio or 0.0, self.itl_ratio or 0.0) > 1


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished trial. loss: less is better; None with the failure that ended it."""

    knobs: Knobs
    loss: float | None
    signals: Signals | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    knobs: Knobs
    reason: str


@dataclass(frozen=True, slots=True)
class _Move:
    """knob -> steps on its scale."""

    steps: Mapping[str, int]
    reason: str


def devices_of(knobs: Knobs) -> int:
    """Devices that the knobs take: the product of the degrees, 1 where there are none."""
    return math.prod(int(knobs.get(degree, 1)) for degree in DEGREES)


def propose(
    space: Space, history: Sequence[Observation], *, current: Knobs, default: Knobs
) -> Proposal | None:
    """The next trial, or None where nothing is left to try near the best configuration."""
    tried = {_key(seen.knobs) for seen in history}
    for knobs, reason in (
        (current, "The settings in use today: every comparison starts from them."),
        (default, "The engine's own defaults, as a second reference."),
    ):
        if _key(knobs) not in tried:
            return Proposal(knobs, reason)
    good = [seen for seen in history if seen.loss is not None]
    if not good:
        return _out_of_failure(space, history, tried)
    best = min(good, key=lambda seen: seen.loss or 0.0)
    for knobs, reason in _candidates(space, history, best):
        if _may_run(space, history, knobs, tried) and not _pointless(best, knobs):
            return Proposal(knobs, reason)
    return None


def _key(knobs: Knobs) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(knobs.items()))


def _candidates(
    space: Space, history: Sequence[Observation], best: Observation
) -> Iterator[tuple[Knobs, str]]:
    trend = _trend(history, best)
    if trend:
        yield from _apply(space, best, [_Move(trend, "The last change helped: one step further.")])
    moves = [m for m in _moves(space, best) if not _hurt(space, history, best, m)]
    if len(moves) > 1:
        together: dict[str, int] = {}
        for move in moves:
            for knob, steps in move.steps.items():
                together.setdefault(knob, steps)
        reasons = " ".join(move.reason for move in moves)
        yield from _apply(space, best, [_Move(together, reasons)])
    if len(history) >= _FREE_TRIALS:
        wider = [m for m in _more_devices(best) if not _hurt(space, history, best, m)]
        yield from _apply(space, best, wider)
    for factor in (1, 2, 4):
        # A step that changed nothing may be too short to leave a plateau.
        scaled = [_Move({k: s * factor for k, s in m.steps.items()}, m.reason) for m in moves]
        yield from _apply(space, best, scaled)
    blamed = list(dict.fromkeys(knob for move in _moves(space, best) for knob in move.steps))
    yield from _scan(space, history, best, blamed)
    yield from _apply(space, best, _neighbours(space, history, best))
    rest = [knob for knob in space.values if knob not in blamed]
    yield from _scan(space, history, best, rest)


def _scan(
    space: Space, history: Sequence[Observation], best: Observation, knobs: Sequence[str]
) -> Iterator[tuple[Knobs, str]]:
    """The whole scale of each knob beside the best, widest gap between tried values first.

    A percentile is not monotone in a knob: smaller chunks delay more steps by less each.
    """
    for knob in knobs:
        if knob not in space.values:
            continue
        others = {k: v for k, v in best.knobs.items() if k != knob}
        tried = {
            space.level(knob, seen.knobs[knob])
            for seen in history
            if all(seen.knobs[k] == v for k, v in others.items())
        }
        left = set(range(len(space.values[knob]))) - tried
        while left:
            level = max(left, key=lambda at: (min(abs(at - seen) for seen in tried), -at))
            tried.add(level)
            left.remove(level)
            value = space.values[knob][level]
            reason = f"A value of {knob} far from those that were tried."
            yield _valid(space, {**best.knobs, knob: value}), reason


def _apply(space: Space, best: Observation, moves: Sequence[_Move]) -> Iterator[tuple[Knobs, str]]:
    for move in moves:
        changed = {}
        for knob, steps in move.steps.items():
            value = space.moved(best.knobs, knob, steps) if knob in space.values else None
            if value is not None:
                changed[knob] = value
        if changed:
            yield _valid(space, {**best.knobs, **changed}), move.reason


def _valid(space: Space, knobs: dict[str, Value]) -> Knobs:
    """As engines demand it: a step holds at least one token of every running request."""
    running, budget = knobs.get("max_running"), knobs.get("max_batched_tokens")
    if isinstance(running, int) and isinstance(budget, int) and budget < running:
        fitting = [v for v in space.values["max_batched_tokens"] if isinstance(v, int)]
        knobs["max_batched_tokens"] = min((v for v in fitting if v >= running), default=budget)
    return knobs


def _moves(space: Space, best: Observation) -> list[_Move]:
    """Symptoms of the best trial -> knobs, the surest first."""
    seen = best.signals
    if seen is None:
        return []
    moves = []
    on = {knob: len(space.values[knob]) for knob in space.values}
    if best.knobs.get("cuda_graphs") is False and on.get("cuda_graphs", 0) > 1:
        reason = "Every decode step is launched kernel by kernel: capture graphs."
        moves.append(_Move({"cuda_graphs": on.get("cuda_graphs", 0)}, reason))
    if seen.starved:
        reason = f"The cache is full ({seen.preemptions} preemptions): give it more room."
        moves.append(_Move({"memory_share_frac": 2}, reason))
        moves.append(_Move({"kv_dtype": 1}, "A cache in fp8 holds twice the tokens."))
        if seen.preemptions > 0:
            reason = "Requests lose their cache and compute it again: admit fewer."
            moves.append(_Move({"max_running": -1}, reason))
    if seen.full_share > _RARE and seen.kv_peak_frac < 0.9:
        reason = "Requests wait for a place in the batch while the cache has room."
        moves.append(_Move({"max_running": 2}, reason))
    ttft, itl = seen.ttft_ratio or 0.0, seen.itl_ratio or 0.0
    if itl > ttft and (seen.mixed_share is None or seen.mixed_share > _RARE):
        reason = "Decodes wait behind prefill in the same step: smaller chunks."
        moves.append(_Move({"chunked_prefill": on.get("chunked_prefill", 0)}, reason))
        moves.append(_Move({"max_batched_tokens": -2}, reason))
    if ttft > itl and seen.full_share <= _RARE:
        reason = "Prompts are computed in more steps than needed: larger chunks."
        moves.append(_Move({"max_batched_tokens": 1}, reason))
    if itl == ttft == 0.0:
        moves.append(_Move({"max_batched_tokens": 1}, "Throughput alone counts: larger steps."))
    return [m for m in moves if any(space.values.get(knob) for knob in m.steps)]


def _more_devices(best: Observation) -> list[_Move]:
    """What more devices would do about the best trial's symptoms; `_pointless` says when."""
    seen = best.signals
    if seen is None:
        return []
    split, copies = {"tensor_parallel": 1}, {"data_parallel": 1}
    moves = []
    if seen.starved:
        reason = "The cache is full: weights split over more devices leave it more room."
        moves.append(_Move(split, reason))
    ttft, itl = seen.ttft_ratio or 0.0, seen.itl_ratio or 0.0
    if itl > max(1.0, ttft):
        reason = "Each token waits for all weights to be read: split them over more devices."
        moves.append(_Move(split, reason))
    if ttft > 1 and seen.full_share > _RARE:
        moves.append(_Move(copies, "Requests wait for a place: a further copy takes its share."))
    if ttft > 1:
        reason = "Prompts take too long to compute: split the model over more devices."
        moves.append(_Move(split, reason))
        moves.append(_Move(copies, "A further copy computes its share of the prompts."))
    return moves


def _steps_between(space: Space, a: Knobs, b: Knobs) -> dict[str, int]:
    """knob -> levels from a to b, where they differ."""
    return {
        knob: space.level(knob, b[knob]) - space.level(knob, a[knob])
        for knob in space.values
        if a[knob] != b[knob]
    }


def _trend(history: Sequence[Observation], best: Observation) -> dict[str, int]:
    """The single change that made the best trial better than the best before it, once more."""
    before = [s for s in history[: list(history).index(best)] if s.loss is not None]
    if not before or best.loss is None:
        return {}
    last = min(before, key=lambda seen: seen.loss or 0.0)
    if last.loss is None or best.loss > last.loss * (1 - NOISE_FRAC):
        return {}
    steps = {}
    for knob, value in best.knobs.items():
        old = last.knobs[knob]
        numeric = not isinstance(value, (bool, str)) and not isinstance(old, (bool, str))
        if numeric and value != old:
            steps[knob] = 1 if value > old else -1  # type: ignore[operator]
    return steps if len(steps) == 1 else {}


def _hurt(space: Space, history: Sequence[Observation], best: Observation, move: _Move) -> bool:
    """Whether a trial that differs from the best in this direction alone was clearly worse."""
    for seen in history:
        steps = _steps_between(space, best.knobs, seen.knobs)
        if set(steps) != set(move.steps) or seen.loss is None or best.loss is None:
            continue
        same_way = all(steps[knob] * wanted > 0 for knob, wanted in move.steps.items())
        if same_way and seen.loss > best.loss * (1 + 2 * NOISE_FRAC):
            return True
    return False


def _pointless(best: Observation, knobs: Knobs) -> bool:
    """Whether something that differs from the best trial cannot matter by what that trial showed.

    A larger batch than ever ran, more cache than was ever used, and launching without graphs
    cannot help; a smaller cache can only hurt. More devices cost too much to be tried while every
    limit is kept and the cache has room.
    """
    seen = best.signals
    if seen is None:
        return False

    if devices_of(knobs) > devices_of(best.knobs) and not (seen.missed or seen.starved):
        return True

    def idle(knob: str) -> bool:
        old, new = best.knobs[knob], knobs[knob]
        if knob == "max_running" and isinstance(old, int) and isinstance(new, int):
            return min(old, new) > seen.running_peak
        if knob in ("memory_share_frac", "kv_dtype"):
            return seen.kv_peak_frac < 0.9 and seen.starved_share == 0
        return knob == "cuda_graphs" and new is False

    return any(idle(knob) for knob in knobs if knobs[knob] != best.knobs[knob])


def _neighbours(space: Space, history: Sequence[Observation], best: Observation) -> list[_Move]:
    """One level up and down of every knob, then two, then pairs of knobs."""
    weight = _influence(space, history)
    knobs = sorted(space.values, key=lambda knob: -weight.get(knob, 0.0))
    found = []
    for size in (1, 2):
        for knob in knobs:
            for sign in (1, -1):
                text = f"Neighbour of the best so far: {knob} {'up' if sign > 0 else 'down'}."
                found.append(_Move({knob: sign * size}, text))
    for index, first in enumerate(knobs):
        for second in knobs[index + 1 :]:
            for a in (1, -1):
                for b in (1, -1):
                    text = f"Neighbour of the best so far: {first} and {second} together."
                    found.append(_Move({first: a, second: b}, text))
    return [m for m in found if not _hurt(space, history, best, m)]


def _influence(space: Space, history: Sequence[Observation]) -> dict[str, float]:
    """Largest relative change of the loss that a knob made on its own, per knob."""
    found: dict[str, float] = {}
    good = [seen for seen in history if seen.loss is not None]
    for index, a in enumerate(good):
        for b in good[index + 1 :]:
            steps = _steps_between(space, a.knobs, b.knobs)
            if len(steps) == 1 and a.loss and b.loss:
                knob = next(iter(steps))
                change = abs(b.loss / a.loss - 1)
                found[knob] = max(found.get(knob, 0.0), change)
    return found


def _may_run(
    space: Space,
    history: Sequence[Observation],
    knobs: Knobs,
    tried: set[tuple[tuple[str, Value], ...]],
) -> bool:
    """Whether it is new, there are the devices for it, and no crash speaks against it."""
    new = _key(knobs) not in tried and devices_of(knobs) <= space.devices
    return new and not _crashes(space, history, knobs)


def _crashes(space: Space, history: Sequence[Observation], knobs: Knobs) -> bool:
    """Whether a trial that did not start tells that `knobs` will not either.

    Out of memory: `knobs` need at least as much in everything that differs; a cache that was too
    small for one request: they leave no more room for it. Refused settings: a whole prompt in one
    step needs a budget above the one that was refused.
    """
    for seen in history:
        if seen.failure == "config_error" and seen.knobs.get("chunked_prefill") is False:
            refused, asked = seen.knobs["max_batched_tokens"], knobs["max_batched_tokens"]
            smaller = isinstance(refused, int) and isinstance(asked, int) and asked <= refused
            if knobs["chunked_prefill"] is False and smaller:
                return True
        signs = {"out_of_memory": (space.memory, 1), "cache_too_small": (space.cache, -1)}
        if seen.failure not in signs:
            continue
        weights, way = signs[seen.failure]
        steps = _steps_between(space, seen.knobs, knobs)
        if all(steps[knob] * weights.get(knob, 0) * way >= 0 for knob in steps):
            return True
    return False


def _out_of_failure(
    space: Space, history: Sequence[Observation], tried: set[tuple[tuple[str, Value], ...]]
) -> Proposal | None:
    """Nothing has run yet: more devices for what lacked memory, then the middle of every scale,
    then each scale's other values in turn."""
    starts: list[tuple[dict[str, Value], str]] = []
    short = ("out_of_memory", "cache_too_small")
    lacking = next((seen for seen in history if seen.failure in short), None)
    if lacking is not None:
        reason = "The model did not fit: split it over more devices."
        for degree in space.values.get("tensor_parallel", ()):
            if degree > lacking.knobs["tensor_parallel"]:  # type: ignore[operator]
                starts.append(({**lacking.knobs, "tensor_parallel": degree}, reason))
    middle = {
        knob: scale[0 if knob in DEGREES else len(scale) // 2]
        for knob, scale in space.values.items()
    }
    moderate = "Nothing has run yet: a moderate configuration."
    starts.append((middle, moderate))
    for knob, scale in space.values.items():
        starts += [({**middle, knob: value}, moderate) for value in scale]
    for knobs, reason in starts:
        fixed = _valid(space, dict(knobs))
        if _may_run(space, history, fixed, tried):
            return Proposal(fixed, reason)
    return None
