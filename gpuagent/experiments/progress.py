"""Turns planned work into `done_frac` and `remaining_s` that a person can rely on.

Each phase starts with a guess of its seconds; guesses are replaced by what has been measured. The
fraction never goes back, and events are spaced so that progress costs nothing.
"""

from __future__ import annotations

from gpuagent.experiments.base import Clock, Emit

MIN_SPACING_S = 0.5


class Progress:
    """phases: name -> guessed seconds, in the order in which they are run."""

    def __init__(self, *, emit: Emit, clock: Clock, phases: dict[str, float]) -> None:
        self._emit = emit
        self._clock = clock
        self._left_s = dict(phases)
        self._began = clock.now()
        self._phase_began = self._began
        self._phase: str | None = None
        self._last_emit = float("-inf")
        self._frac = 0.0

    def expect(self, phase: str, seconds: float) -> None:
        """A better guess for a phase that has not begun, once step times are known."""
        if phase in self._left_s and phase != self._phase:
            self._left_s[phase] = seconds

    def enter(self, phase: str, message: str) -> None:
        """Begin a phase; everything before it is done."""
        for earlier in list(self._left_s):
            if earlier == phase:
                break
            self._left_s[earlier] = 0.0
        self._phase = phase
        self._phase_began = self._clock.now()
        self._send(message)

    def advance(self, done: int, total: int, message: str) -> None:
        """`done` of `total` equal parts of the current phase are finished."""
        now = self._clock.now()
        if self._phase is not None and done > 0:
            per_part_s = (now - self._phase_began) / done
            self._left_s[self._phase] = per_part_s * max(0, total - done)
        if now - self._last_emit >= MIN_SPACING_S:
            self._send(message)

    def _send(self, message: str) -> None:
        now = self._clock.now()
        remaining_s = sum(self._left_s.values())
        elapsed_s = now - self._began
        if elapsed_s + remaining_s > 0:
            self._frac = max(self._frac, min(0.99, elapsed_s / (elapsed_s + remaining_s)))
        self._last_emit = now
        # "measure:grid" and "measure:requests" are one phase on the wire.
        phase = (self._phase or "prepare").partition(":")[0]
        self._emit(phase, message, round(self._frac, 4), round(remaining_s, 1))
