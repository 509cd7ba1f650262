"""Outcomes survive outages and restarts, leave in order, and never block each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent.client import LeaseLost, Refused, Unreachable
from gpuagent.spool import Spool
from gpuagent.wire import TrialOutcome
from gpuagent.wire.protocol import Lease, ResultReply

CANCELLED = TrialOutcome(status="cancelled")


def lease(number: int) -> Lease:
    return Lease(trial_id=f"{number:036d}", epoch=1, token="t" * 32)


class Server:
    def __init__(self, answers: dict[int, Exception] | None = None) -> None:
        self.answers = answers or {}
        self.received: list[int] = []

    def result(self, lease: Lease, outcome: TrialOutcome) -> ResultReply:
        number = int(lease.trial_id)
        if number in self.answers:
            raise self.answers[number]
        self.received.append(number)
        return ResultReply(accepted=True)


def test_outcomes_are_delivered_in_the_order_of_finishing_and_then_forgotten(
    tmp_path: Path,
) -> None:
    spool, server = Spool(tmp_path), Server()
    for number in (3, 1, 2):
        spool.put(lease(number), CANCELLED)
    assert spool.replay(server) == 3
    assert server.received == [3, 1, 2]
    assert spool.pending() == []
    assert spool.replay(server) == 0


def test_an_unreachable_server_leaves_everything_for_the_next_start(tmp_path: Path) -> None:
    Spool(tmp_path).put(lease(1), CANCELLED)
    assert Spool(tmp_path).replay(Server({1: Unreachable("down")})) == 0
    server = Server()
    assert Spool(tmp_path).replay(server) == 1
    assert server.received == [1]


@pytest.mark.parametrize("answer", [LeaseLost("over"), Refused(400, "invalid", "no")])
def test_a_refused_outcome_is_set_aside_and_does_not_hold_up_the_next(
    tmp_path: Path, answer: Exception
) -> None:
    spool, server = Spool(tmp_path), Server({1: answer})
    spool.put(lease(1), CANCELLED)
    spool.put(lease(2), CANCELLED)
    assert spool.replay(server) == 1
    assert server.received == [2]
    assert len(list((tmp_path / "rejected").glob("*.json"))) == 1


def test_a_file_cut_off_by_a_crash_is_set_aside(tmp_path: Path) -> None:
    spool, server = Spool(tmp_path), Server()
    path = spool.put(lease(1), CANCELLED)
    path.write_text(path.read_text()[:40])
    spool.put(lease(2), CANCELLED)
    assert spool.replay(server) == 1
    assert server.received == [2]


def test_the_files_hold_a_secret_and_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = Spool(tmp_path).put(lease(1), CANCELLED)
    assert path.stat().st_mode & 0o077 == 0
