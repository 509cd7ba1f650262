"""Conversations: each turn is sent with everything said before it, once the last was answered.

The history is real, so the server's prefix cache can be used as it is in production: a turn opens
with its session's own words, which no other session shares.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from gpuagent.load.client import Exchange
from gpuagent.load.driver import Follow
from gpuagent.load.plan import LoadRequest, Planner
from gpuagent.load.stream import answer_text


def follow_up(args: argparse.Namespace, planner: Planner) -> Follow | None:
    """What makes the next turns that a command line asks for; None for single requests."""
    if args.turns == 1:
        return None
    return Sessions(planner, turns=args.turns, think_s=args.think_time).follow


class Sessions:
    """Makes the next turn of a session from its last; `turns` in all, each `think_s` after the
    answer before it. A turn that failed ends its session."""

    def __init__(self, planner: Planner, *, turns: int, think_s: float) -> None:
        self._planner, self._turns, self._think_s = planner, turns, think_s

    def follow(self, request: LoadRequest, exchange: Exchange) -> tuple[LoadRequest, float] | None:
        """(next turn, seconds from now), or None after the last one or a failure."""
        if request.turn + 1 >= self._turns or exchange.error is not None or exchange.status != 200:
            return None
        answer = answer_text(exchange.pieces)
        if not answer:
            return None
        made = self._planner.next(history=(*request.history, answer))
        return replace(made, turn=request.turn + 1), self._think_s
