"""Power of the idle device, so that energy per token can be shown with and without it."""

from __future__ import annotations

from gpuagent.experiments.base import RunContext, joules
from gpuagent.wire import Quantity

# Energy counters move every 20 to 100 ms; two seconds make that a few per cent.
IDLE_S = 2.0


def idle_power_w(context: RunContext) -> Quantity:
    """Watts while nothing is computed, model loaded. Waits IDLE_S where there is a counter."""
    before_j = context.energy.read_j()
    if before_j is None:
        return Quantity(reason=context.energy.reason or "the energy counter gave no reading")
    began = context.clock.now()
    while context.clock.now() < began + IDLE_S:
        context.tick()
        context.clock.sleep_until(began + IDLE_S)
    used_j = joules(before_j, context.energy.read_j())
    if used_j is None:
        return Quantity(reason="the energy counter gave no reading")
    return Quantity(value=used_j / (context.clock.now() - began))


def net_joules_per_token(
    per_token: Quantity, idle: Quantity, window_s: float, tokens: int
) -> Quantity:
    """Energy per token above the idle device, or why it is not known."""
    if per_token.value is None:
        return per_token
    if idle.value is None:
        return idle
    if tokens <= 0:
        return Quantity(reason="no token was generated")
    net = per_token.value - idle.value * window_s / tokens
    if net <= 0:
        return Quantity(reason="the device drew no more than when it was idle")
    return Quantity(value=net)
