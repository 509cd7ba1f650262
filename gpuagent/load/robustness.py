"""Misuses a server on purpose and says how it took it: a short report for operators.

Each check ends in pass, fail or cannot tell. What a server does behind the wire (does it go on for
a client that left, is its KV memory free again) is only claimed from its own /metrics.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuagent.load.probe import REFUSED, Probe, Reply
from gpuagent.load.server_state import ServerState
from gpuagent.wire.robustness import CHECKS, OverloadSeen, RobustnessCheck, RobustnessReport

# Short requests before and after, whose medians are compared.
_REPEATS = 5
_SHORT_TOKENS = 8
_RECOVERED_RATIO = 1.5
# Differences below this are noise of any machine, however fast its answers are.
_RECOVERED_SLACK_S = 0.05
# Usage is in whole blocks, and SGLang rounds to 0.01.
_KV_SLACK_FRAC = 0.005
_POLL_S = 0.1
_TICK_S = 0.2
_HEALTH_EVERY_S = 0.5
# A probe that gets no answer for so long counts it as a failure: the default of Kubernetes.
_HEALTH_TIMEOUT_S = 1.0
# How long a request runs before its client gives up.
_GIVE_UP_S = 1.0
_BURST_TOKENS = 32
_MOST_PROMPT_TOKENS = 4_000_000
_FAR_TOO_MANY = 100_000_000


@dataclass(frozen=True, slots=True)
class RobustnessOptions:
    """burst: requests of the overload at once. cancelled: streams that are closed half-way.

    watch_s: how long the server may take to stop, or to be quick again. patience_s: a request
    without an answer for so long counts as hanging. context_tokens: the server's limit, where its
    model list does not tell. ends_by_itself: the server knows no ignore_eos.
    """

    burst: int = 64
    cancelled: int = 8
    watch_s: float = 10.0
    patience_s: float = 60.0
    context_tokens: int | None = None
    ends_by_itself: bool = False


def run_robustness(
    probe: Probe,
    options: RobustnessOptions,
    *,
    on_check: Callable[[RobustnessCheck], None] = lambda check: None,
    tick: Callable[[], None] = lambda: None,
) -> RobustnessReport:
    """Run every check against a server that has no other traffic; `on_check` is told each.

    tick: called several times a second; what it raises ends the test.
    """
    return asyncio.run(_ticking(_Test(probe, options, on_check), tick))


async def _ticking(test: _Test, tick: Callable[[], None]) -> RobustnessReport:
    running = asyncio.create_task(test.run())
    try:
        while not running.done():
            tick()
            await asyncio.wait([running], timeout=_TICK_S)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return running.result()


class _Test:
    def __init__(
        self, probe: Probe, options: RobustnessOptions, on_check: Callable[[RobustnessCheck], None]
    ) -> None:
        self._probe, self._options, self._on_check = probe, options, on_check
        self._checks: list[RobustnessCheck] = []
        self._before_s = 0.0
        self._gap_s = 0.0
        self._idle = ServerState()
        self._context = options.context_tokens
        self._seen: OverloadSeen | None = None
        self._health_at_end: int | None = None

    async def run(self) -> RobustnessReport:
        started_at_s, began = time.time(), time.perf_counter()
        async with self._probe:
            self._context = self._context or await self._probe.context_tokens()
            await self._health()
            if await self._plain():
                await self._misuse()
            else:
                for name in _AFTER_PLAIN:
                    self._cannot(name, "The server answered no plain request")
        return RobustnessReport(
            url=self._probe.url[:200],
            model=self._probe.model[:200],
            engine=self._idle.engine,
            started_at_s=started_at_s,
            duration_s=time.perf_counter() - began,
            checks=tuple(self._checks),
            overload=self._seen,
            health_at_end=self._health_at_end,
        )

    async def _misuse(self) -> None:
        self._idle = await self._probe.state()
        await self._abandoned("client_timeout", count=1, stream=False)
        await self._abandoned("cancelled_streams", count=self._options.cancelled, stream=True)
        await self._long_prompt()
        await self._max_tokens()
        await self._malformed()
        await self._overload()
        await self._recovery()
        await self._kv_released()
        await self._same_process()

    # --- checks --------------------------------------------------------------------------------

    async def _health(self) -> None:
        reply = await self._probe.get("/health")
        if reply.status == 200:
            self._passed("health", f"/health answered 200 in {_ms(reply.took_s)}", reply.took_s)
        elif reply.status:
            models = await self._probe.get("/v1/models")
            rest = "; /v1/models answers" if models.status == 200 else ""
            self._failed(
                "health",
                f"/health answered {reply.status}: nothing to probe it by{rest}",
                reply.status,
                unit="status",
            )
        else:
            self._failed("health", f"/health gave no answer: {reply.error}")

    async def _plain(self) -> bool:
        """Short requests one after the other; the first is not counted."""
        replies = [await self._probe.ask(_SHORT_TOKENS) for _ in range(_REPEATS + 1)]
        bad = [reply for reply in replies if reply.status != 200]
        if bad:
            self._failed(
                "plain_request",
                f"{len(bad)} of {len(replies)} plain requests failed: {bad[0].told}",
                len(bad),
                0,
                unit="count",
            )
            return False
        self._before_s = statistics.median(reply.took_s for reply in replies[1:])
        self._gap_s = await self._probe.token_gap_s()
        self._passed(
            "plain_request",
            f"A request of {_SHORT_TOKENS} tokens takes {_ms(self._before_s)} "
            f"(median of {_REPEATS})",
            self._before_s,
        )
        return True

    async def _abandoned(self, name: str, *, count: int, stream: bool) -> None:
        """Long requests that the client leaves: does the server stop working on them?"""
        what = f"{count} stream{'s' * (count > 1)} closed half-way" if stream else "a request left"
        tokens = self._long_answer()
        lasts_s = tokens * self._gap_s
        watch_s = min(self._options.watch_s, lasts_s / 2)
        left = await self._probe.leave(
            tokens, count=count, stream=stream, after_s=min(_GIVE_UP_S, lasts_s / 4)
        )
        if left.refused:
            self._cannot(name, f"Cannot tell whether it stops: {left.error}, so give fewer")
            return
        if left.error is not None:
            self._failed(name, f"Before anything was left: {left.error}")
            return
        after_s = await self._until_idle(watch_s) if watch_s >= 2 * _POLL_S else None
        reply = await self._ask_until_let_in(watch_s)
        if reply.status != 200:
            self._failed(name, f"After {what}, a plain request failed: {reply.told}")
            return
        reason = self._why_unknown(left.seen_open, watch_s, lasts_s)
        if reason is not None:
            self._cannot(name, f"{reason}; the next plain request took {_ms(reply.took_s)}")
            return
        if after_s is None:
            # SGLang refreshes its gauges with the next batch, so they are read once more after one.
            after_s = await self._until_idle(min(1.0, watch_s))
        if after_s is None:
            state = await self._probe.state()
            still = max(0, (state.open_requests or 0) - (self._idle.open_requests or 0))
            self._failed(
                name,
                f"{watch_s:.1f} s after {what}, the server still works on {still}",
                still,
                0,
                unit="count",
            )
        elif self._options.ends_by_itself:
            self._cannot(name, "Nothing runs any more, but answers may have ended by themselves")
        else:
            self._passed(
                name, f"The server stopped within {after_s:.1f} s of {what}", after_s, watch_s
            )

    async def _ask_until_let_in(self, for_s: float) -> Reply:
        """A plain request; again where a full queue refuses it, which may not be empty yet."""
        ends = time.perf_counter() + for_s
        while True:
            reply = await self._probe.ask(_SHORT_TOKENS)
            if reply.status not in REFUSED or time.perf_counter() > ends:
                return reply
            await asyncio.sleep(_POLL_S)

    def _why_unknown(self, seen_open: int | None, watch_s: float, lasts_s: float) -> str | None:
        if self._idle.open_requests is None:
            return "Cannot tell whether it stops: /metrics names no running requests"
        if self._idle.open_requests > 0:
            return "Cannot tell whether it stops: the server has other traffic"
        if watch_s < 2 * _POLL_S:
            return f"Cannot tell whether it stops: its longest answer takes {lasts_s:.2f} s only"
        if not seen_open:
            return "Cannot tell whether it stops: /metrics never showed the requests"
        return None

    def _long_answer(self) -> int:
        """Tokens of an answer that is not over before the watch is."""
        most = max(16, (self._context or 4096) - 256)
        if self._gap_s <= 0:
            return most
        return max(16, min(most, round(3 * (self._options.watch_s + 2) / self._gap_s)))

    async def _long_prompt(self) -> None:
        name, context = "long_prompt", self._context
        if context is None:
            self._cannot(name, "The model list names no context length: give --context-tokens")
            return
        words = round(1.25 * context) + 64
        if words > _MOST_PROMPT_TOKENS:
            self._cannot(name, f"A prompt beyond {context:,} tokens is too large to send")
            return
        reply = await self._probe.ask(_SHORT_TOKENS, prompt=" a" * words)
        what = f"A prompt of {words:,} words, with {context:,} tokens of context,"
        self._refusal(name, what, reply)

    async def _max_tokens(self) -> None:
        asked = 10 * self._context if self._context else _FAR_TOO_MANY
        reply = await self._probe.first_bytes(asked)
        if reply.status == 200 and reply.error is None:
            self._passed(
                "max_tokens",
                f"max_tokens of {asked:,} was accepted: the answer ends at the context",
                200,
                unit="status",
            )
        else:
            self._refusal("max_tokens", f"max_tokens of {asked:,}", reply)

    async def _malformed(self) -> None:
        replies = await self._probe.malformed()
        wrong = [
            f"{what}: {reply.told}"
            for what, reply in replies.items()
            if not 400 <= reply.status < 500 or not reply.message
        ]
        if wrong:
            self._failed(
                "malformed_request",
                f"Not refused with a 4xx and a reason: {'; '.join(wrong)}",
                len(wrong),
                0,
                unit="count",
            )
        else:
            self._passed(
                "malformed_request",
                f"{len(replies)} malformed requests were refused with a 4xx and a reason",
                0,
                0,
                unit="count",
            )

    def _refusal(self, name: str, what: str, reply: Reply) -> None:
        """A request that cannot be served is owed a 4xx with a reason."""
        status = float(reply.status) if reply.status else None
        if 400 <= reply.status < 500 and reply.message:
            self._passed(name, f"{what} was refused: {reply.told}", status, unit="status")
            return
        if reply.status == 0:
            ending = f"got no answer: {reply.error}"
        elif reply.status == 200 and reply.error is None:
            ending = "was answered 200, so a part was cut off without a word"
        elif reply.status == 200:
            ending = f"was answered 200 and then an error: {reply.error}"
        elif reply.status < 500:
            ending = f"was refused with {reply.status} and no reason"
        else:
            ending = f"was answered {reply.told} instead of a 4xx"
        unit = "status" if status is not None else None
        self._line(name, "fail", f"{what} {ending}", status, None, unit)

    async def _overload(self) -> None:
        burst = self._options.burst
        watch = _Watch()
        watching = asyncio.create_task(watch.run(self._probe))
        try:
            replies = await asyncio.gather(*(self._probe.ask(_BURST_TOKENS) for _ in range(burst)))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        answered = [reply for reply in replies if reply.status == 200]
        refused = [reply for reply in replies if reply.status in REFUSED]
        failed = [reply for reply in replies if reply not in answered and reply not in refused]
        parts = [f"{burst} requests at once: {len(answered)} answered"]
        if answered:
            parts[0] += f" (the slowest after {max(r.took_s for r in answered):.1f} s)"
        if refused:
            statuses = " and ".join(str(s) for s in sorted({r.status for r in refused}))
            hinted = sum(reply.retry_after for reply in refused)
            hint = f", {hinted} with Retry-After" if hinted else ", none with Retry-After"
            parts.append(f"{len(refused)} refused with {statuses}{hint}")
        parts.append(f"{len(failed)} failed" + (f" ({failed[0].told})" if failed else ""))
        self._seen = watch.seen(answered=answered, refused=refused, failed=failed)
        share = len(failed) / burst
        bad = bool(failed) or not answered
        self._line("overload", "fail" if bad else "pass", ", ".join(parts), share, 0, "frac")

    async def _recovery(self) -> None:
        limit = max(_RECOVERED_RATIO, (self._before_s + _RECOVERED_SLACK_S) / self._before_s)
        began = time.perf_counter()
        while True:
            waited_s = time.perf_counter() - began
            replies = [await self._probe.ask(_SHORT_TOKENS) for _ in range(_REPEATS)]
            bad = [reply for reply in replies if reply.status != 200]
            after_s = statistics.median(reply.took_s for reply in replies)
            if not bad and after_s <= limit * self._before_s:
                break
            if time.perf_counter() - began > self._options.watch_s:
                break
            await asyncio.sleep(_POLL_S)
        if bad:
            told = f"{waited_s:.1f} s after the overload, plain requests fail: {bad[0].told}"
            self._failed("recovery", told, len(bad), 0, unit="count")
            return
        ratio = after_s / self._before_s
        told = (
            f"{waited_s:.1f} s after the overload, a plain request takes {_ms(after_s)}, "
            f"{ratio:.2f} times as long as before"
        )
        verdict = self._passed if ratio <= limit else self._failed
        verdict("recovery", told, ratio, limit, unit="ratio")

    async def _kv_released(self) -> None:
        name, before = "kv_released", self._idle.kv_used_frac
        if before is None:
            self._cannot(name, "/metrics names no use of the KV memory")
            return
        if self._idle.open_requests:
            self._cannot(name, "The server has other traffic, so its KV memory moves anyway")
            return
        limit, began = before + _KV_SLACK_FRAC, time.perf_counter()
        while True:
            state = await self._probe.state()
            used = state.kv_used_frac
            if used is not None and used <= limit:
                break
            if time.perf_counter() - began > self._options.watch_s:
                break
            await asyncio.sleep(_POLL_S)
        if used is None:
            self._cannot(name, "/metrics no longer names the use of the KV memory")
            return
        told = f"KV memory in use: {used:.1%}, before the test {before:.1%}"
        verdict = self._passed if used <= limit else self._failed
        verdict(name, told, used, limit, unit="frac")

    async def _same_process(self) -> None:
        health = await self._probe.get("/health")
        self._health_at_end = health.status
        reply = await self._probe.ask(_SHORT_TOKENS)
        before, after = self._idle.started_at_s, (await self._probe.state()).started_at_s
        if reply.status != 200:
            self._failed("still_serving", f"At the end, a plain request failed: {reply.told}")
        elif before is not None and after is not None and abs(after - before) > 1:
            self._failed("still_serving", "Its process was restarted during the test")
        else:
            known = before is not None and after is not None
            rest = "in the same process" if known else "whether in the same process is not told"
            self._passed(
                "still_serving", f"It serves at the end (health {health.status or 'none'}), {rest}"
            )

    # -------------------------------------------------------------------------------------------

    async def _until_idle(self, watch_s: float) -> float | None:
        """Seconds until no more requests are open than before; None where they stay."""
        began = time.perf_counter()
        while True:
            state = await self._probe.state()
            waited_s = time.perf_counter() - began
            if state.open_requests is None:
                return None
            if state.open_requests <= (self._idle.open_requests or 0):
                return waited_s
            if waited_s > watch_s:
                return None
            await asyncio.sleep(_POLL_S)

    def _passed(
        self,
        name: str,
        sentence: str,
        value: float | None = None,
        limit: float | None = None,
        *,
        unit: str | None = "s",
    ) -> None:
        self._line(name, "pass", sentence, value, limit, unit)

    def _failed(
        self,
        name: str,
        sentence: str,
        value: float | None = None,
        limit: float | None = None,
        *,
        unit: str | None = "s",
    ) -> None:
        self._line(name, "fail", sentence, value, limit, unit)

    def _cannot(self, name: str, reason: str) -> None:
        self._line(name, "cannot_tell", reason, None, None, None)

    def _line(
        self,
        name: str,
        verdict: str,
        sentence: str,
        value: float | None,
        limit: float | None,
        unit: str | None,
    ) -> None:
        check = RobustnessCheck.model_validate(
            {
                "name": name,
                "verdict": verdict,
                "sentence": sentence[:4000],
                "value": value,
                "limit": limit,
                "unit": unit if value is not None else None,
            }
        )
        self._checks.append(check)
        self._on_check(check)


class _Watch:
    """What the server shows beside an overload, until it is cancelled."""

    def __init__(self) -> None:
        self._states: list[ServerState] = []
        self._health: list[Reply] = []

    async def run(self, probe: Probe) -> None:
        await asyncio.gather(self._scrape(probe), self._ask_health(probe))

    async def _scrape(self, probe: Probe) -> None:
        while True:
            self._states.append(await probe.state())
            await asyncio.sleep(_POLL_S)

    async def _ask_health(self, probe: Probe) -> None:
        while True:
            self._health.append(await probe.get("/health", timeout_s=_HEALTH_TIMEOUT_S))
            await asyncio.sleep(_HEALTH_EVERY_S)

    def seen(
        self, *, answered: list[Reply], refused: list[Reply], failed: list[Reply]
    ) -> OverloadSeen:
        good = [reply.took_s for reply in self._health if reply.status == 200]
        return OverloadSeen(
            sent=len(answered) + len(refused) + len(failed),
            answered=len(answered),
            refused=len(refused),
            with_hint=sum(reply.retry_after for reply in refused),
            failed=len(failed),
            slowest_s=max((reply.took_s for reply in answered), default=None),
            running_peak=max(
                (s.running for s in self._states if s.running is not None), default=None
            ),
            waiting_peak=max(
                (s.waiting for s in self._states if s.waiting is not None), default=None
            ),
            health_asked=len(self._health),
            health_bad=len(self._health) - len(good),
            health_slowest_s=max(good, default=None),
        )


_AFTER_PLAIN = CHECKS[2:]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
