"""A mock server in a thread of the test, on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpuagent.load.mock import MockServer, MockSettings


@contextmanager
def running(settings: MockSettings | None = None) -> Iterator[tuple[str, MockServer]]:
    """(address, server) while the block runs."""
    ready = threading.Event()
    found: list[tuple[int, MockServer, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        server, ended = MockServer(settings), asyncio.Event()
        found.append((await server.start(), server, asyncio.get_running_loop(), ended))
        ready.set()
        await ended.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    port, server, loop, ended = found[0]
    try:
        yield f"http://127.0.0.1:{port}", server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
