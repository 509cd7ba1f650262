"""Kill what can be killed while a study runs: it finishes, and each trial has one result."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from tests.stack.conftest import Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LONGER = {
    "preset": "chat",
    "input_tokens": {"mean": 32},
    "output_tokens": {"mean": 48},
    "requests": 40,
}
ONE_TRIAL = {"budget_s": 15}  # holds the current settings alone


def children_of_agent(installation: Installation) -> list[psutil.Process]:
    return psutil.Process(installation.stack.pid("agent")).children(recursive=True)


def all_gone(processes: list[psutil.Process], timeout_s: float = 10.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return not alive


def attempts(installation: Installation, study: dict) -> list[int]:
    return [trial["attempts"] for trial in installation.trials(study)]


def test_a_killed_agent_loses_its_trial_which_is_retried(installation: Installation) -> None:
    study = installation.submit("agent killed", workload=LONGER, **ONE_TRIAL)
    installation.wait_measuring(study)
    children = children_of_agent(installation)
    assert children, "the trial runs in a process of its own"
    installation.stack.kill("agent", signal.SIGKILL)
    assert all_gone(children, 5.0), "nothing of a trial survives its agent"
    installation.stack.start("agent")
    finished = installation.wait_finished(study)
    assert finished["state"] == "finished"
    assert max(attempts(installation, study)) == 2
    assert {t["state"] for t in installation.trials(study)} == {"succeeded"}


@pytest.mark.services
def test_a_killed_broker_stops_no_study(installation: Installation) -> None:
    study = installation.submit("broker killed", budget_s=60)
    installation.stack.kill("broker", signal.SIGKILL)
    later = installation.submit("submitted without a broker", **ONE_TRIAL)
    assert installation.wait_finished(study)["state"] == "finished"
    assert installation.wait_finished(later)["state"] == "finished"
    installation.stack.start("broker")
    installation.stack.wait_for_broker()


def test_a_restarted_web_server_accepts_the_result_of_the_same_attempt(
    installation: Installation,
) -> None:
    study = installation.submit("web restarted", workload=LONGER, **ONE_TRIAL)
    installation.wait_measuring(study)
    installation.stack.kill("web", signal.SIGTERM)
    time.sleep(3.0)
    installation.stack.start("web")
    installation.stack.wait_for_web()
    finished = installation.wait_finished(study)
    assert finished["state"] == "finished"
    assert set(attempts(installation, study)) == {1}
    assert {t["state"] for t in installation.trials(study)} == {"succeeded"}


def test_a_cancelled_study_stops_its_process_and_has_no_verdict(
    installation: Installation,
) -> None:
    study = installation.submit("cancelled", workload=LONGER, **ONE_TRIAL)
    installation.wait_measuring(study)
    children = children_of_agent(installation)
    started = time.monotonic()
    installation.api.post(f"studies/{study['id']}/cancel")
    finished = installation.wait_finished(study, 45.0)
    assert finished["state"] == "cancelled"
    assert finished["verdict"]["status"] == "no_verdict"
    assert time.monotonic() - started < 45
    assert all_gone(children)


@pytest.mark.services
def test_a_stopped_agent_gives_its_trial_back_and_no_attempt_is_lost(
    installation: Installation,
) -> None:
    study = installation.submit("agent stopped", workload=LONGER, **ONE_TRIAL)
    installation.wait_measuring(study)
    children = children_of_agent(installation)
    installation.stack.kill("agent", signal.SIGTERM)
    assert all_gone(children)
    installation.wait(study, lambda s: s["progress"]["current"] is None, 10)
    installation.stack.start("agent")
    assert installation.wait_finished(study)["state"] == "finished"
    assert set(attempts(installation, study)) == {1}
