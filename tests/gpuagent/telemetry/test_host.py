from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuagent.telemetry.host import tree

GRANDCHILD = "print('up', flush=True); input()"
CHILD = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {GRANDCHILD!r}])
"""


@pytest.mark.parametrize("kernel_lists", [True, False])
def test_the_tree_holds_grandchildren_and_children_of_threads(
    kernel_lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel_lists:
        # As on a kernel without /proc/<pid>/task/<tid>/children.
        exists = Path.exists
        monkeypatch.setattr(Path, "exists", lambda p, **k: p.name != "children" and exists(p, **k))
    started: list[Any] = []

    def start() -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-c", CHILD], **pipes))
        done.wait(30)

    done = threading.Event()
    thread = threading.Thread(target=start)
    thread.start()
    try:
        while not started or not psutil.Process(started[0].pid).children():
            time.sleep(0.01)
        found = {process.pid for process in tree(os.getpid())}
        (grandchild,) = psutil.Process(started[0].pid).children()
        assert {os.getpid(), started[0].pid, grandchild.pid} <= found
    finally:
        done.set()
        started[0].communicate(b"\n", timeout=20)
        thread.join()


def test_a_process_that_is_gone_has_no_tree() -> None:
    assert tree(2**22 + 7) == []
