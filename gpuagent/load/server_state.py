"""What a server says of itself in /metrics: requests running and waiting, KV memory used."""

from __future__ import annotations

from dataclasses import dataclass

from gpuagent.server_metrics import Engine, read_page


@dataclass(frozen=True, slots=True)
class ServerState:
    """None: the server does not say. kv_used_frac: 0 to 1, cached prefixes that may be evicted not
    counted. started_at_s: Unix time at which its process started."""

    engine: Engine | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used_frac: float | None = None
    started_at_s: float | None = None

    @property
    def open_requests(self) -> int | None:
        if self.running is None:
            return None
        return self.running + (self.waiting or 0)


def read_state(text: str) -> ServerState:
    """The state in a /metrics body; lines that are no samples are passed over."""
    found = read_page(text)
    return ServerState(
        engine=found.engine,
        running=None if found.running is None else round(found.running),
        waiting=None if found.waiting is None else round(found.waiting),
        kv_used_frac=found.kv_frac,
        started_at_s=found.started_at_s,
    )
