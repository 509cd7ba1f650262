"""What a CUDA, HIP or driver call does to the timeline, from its name.

Groups: sync (the host waits for the device), launch, graph_launch, memcpy (asynchronous),
memcpy_sync (the host waits for the copy), memset, alloc, module (code loading), capture, other.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?(_v\d+)?$")

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("capture", ("streambegincapture", "streamendcapture", "graphinstantiate")),
    ("graph_launch", ("graphlaunch",)),
    (
        "launch",
        ("launchkernel", "launchcooperative", "modulelaunch", "launchgrid"),
    ),
    ("sync", ("devicesynchronize", "streamsynchronize", "eventsynchronize", "ctxsynchronize")),
    ("alloc", ("malloc", "memalloc", "free", "hostalloc", "hostregister", "hostunregister")),
    ("alloc", ("memcreate", "memmap", "memunmap", "memaddressreserve", "memrelease")),
    ("alloc", ("memsetaccess", "mempooltrim", "memaddressfree")),
    ("memset", ("memset",)),
    ("module", ("moduleload", "libraryload", "linkcreate", "linkcomplete", "funcload")),
    ("module", ("modulegetfunction", "kernelgetfunction", "librarygetkernel")),
)
_ASYNC_COPY = ("memcpyasync", "memcpy2dasync", "memcpy3dasync", "memcpypeerasync", "batchasync")
_PREFIX = re.compile(r"^(cuda|cu|hip|hsa)", re.IGNORECASE)


def clean(name: str) -> str:
    """The call without the version suffix that Nsight appends (`_v7000`, `_ptsz`)."""
    return _SUFFIX.sub("", name, count=1) if name[:1] in "ch" else name


@lru_cache(maxsize=8192)
def group_of(name: str) -> str:
    """Group of one API name (see the module text); `other` for anything unknown."""
    text = clean(name).lower()
    if not _PREFIX.match(text):
        return "other"
    if "memcpy" in text or "memprefetch" in text:
        if "withstream" in text:  # hipMemcpyWithStream returns when the copy has ended
            return "memcpy_sync"
        asynchronous = "async" in text or any(token in text for token in _ASYNC_COPY)
        return "memcpy" if asynchronous else "memcpy_sync"
    for group, tokens in GROUPS:
        if any(token in text for token in tokens):
            return group
    return "other"
