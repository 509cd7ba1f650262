"""The real agent client against the real server over loopback HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pytest_django.live_server_helper import LiveServer

from advisor.accounts.models import Org
from advisor.api.views.agent_artifacts import artifact_path
from advisor.fleet.models import Agent, AgentState, TelemetryChunk
from advisor.fleet.services import registration_token_issue
from advisor.studies.models import Event, Result, StoredArtifact, Study, Trial
from advisor.studies.states import StudyState, TrialState
from gpuagent.client import AdvisorClient, LeaseLost, Refused
from gpuagent.wire import (
    WIRE_VERSION,
    Failure,
    FailureReason,
    HostSample,
    TrialEvent,
    TrialOutcome,
)
from gpuagent.wire.base import WIRE_HEADER
from gpuagent.wire.trial import Artifact
from tests import builders, factories

pytestmark = pytest.mark.django_db(transaction=True)

INSTANCE = "00000001"
RESULT = builders.make_trial(builders.make_baseline_result()).result


@pytest.fixture
def agent(org: Org) -> Agent:
    return factories.create_agent(org)


@pytest.fixture
def study(org: Org, agent: Agent) -> Study:
    return factories.create_study(org, agent=agent)


@pytest.fixture
def trial(study: Study) -> Trial:
    return factories.create_trial(study)


@pytest.fixture
def client(live_server: LiveServer, agent: Agent) -> Iterator[AdvisorClient]:
    client = AdvisorClient(live_server.url, agent.secret)
    yield client
    client.close()


def test_an_agent_joins_with_a_one_time_token_and_only_once(
    live_server: LiveServer, org: Org
) -> None:
    _, secret = registration_token_issue(org=org, user=None, actor="test")
    newcomer = AdvisorClient(live_server.url)
    hello = factories.make_hello()
    reply = newcomer.register(token=secret, slug="h100-a", hello=hello)
    assert reply.slug == "h100-a"
    assert Agent.objects.get(slug="h100-a").org == org
    assert AdvisorClient(live_server.url, reply.credential).claim(instance=INSTANCE).spec is None
    with pytest.raises(Refused) as refused:
        newcomer.register(token=secret, slug="h100-b", hello=hello)
    assert refused.value.status == 403


def test_a_name_that_is_taken_is_never_taken_over(live_server: LiveServer, org: Org) -> None:
    slugs = []
    for _ in range(2):
        _, secret = registration_token_issue(org=org, user=None, actor="test")
        reply = AdvisorClient(live_server.url).register(
            token=secret, slug="h100", hello=factories.make_hello()
        )
        slugs.append(reply.slug)
    assert slugs == ["h100", "h100-2"]


def test_a_trial_is_claimed_reported_and_finished(client: AdvisorClient, trial: Trial) -> None:
    claim = client.claim(instance=INSTANCE, hello=factories.make_hello())
    assert claim.spec is not None
    assert claim.lease is not None
    assert claim.spec.trial_id == str(trial.pk)

    control = client.renew(claim.lease)
    assert not control.cancel
    assert control.lease_until_s > control.server_time_s
    events = [
        TrialEvent(seq=1, at_s=1e9, phase="load", message="loading"),
        TrialEvent(seq=2, at_s=1e9, phase="measure", message="measuring", done_frac=0.5),
    ]
    client.events(claim.lease, events)
    client.events(claim.lease, events)  # the reply was lost and the agent repeats itself
    assert Event.objects.filter(attempt__trial=trial).count() == 2
    trial.refresh_from_db()
    assert (trial.state, trial.phase, trial.done_frac) == (TrialState.RUNNING, "measure", 0.5)

    client.telemetry([HostSample(at_s=1e9, cpu_frac=0.5), HostSample(at_s=1e9 + 1, cpu_frac=0.6)])
    assert TelemetryChunk.objects.get().samples[1]["cpu_frac"] == 0.6

    outcome = TrialOutcome(status="succeeded", result=RESULT, log_tail="fine")
    assert client.result(claim.lease, outcome).accepted
    assert client.result(claim.lease, outcome).accepted, "a repeat is answered the same way"
    trial.refresh_from_db()
    assert trial.state == TrialState.SUCCEEDED
    assert trial.log_tail == "fine"
    assert Result.objects.get(trial=trial).value == RESULT
    trial.study.refresh_from_db()
    assert trial.study.evaluated_at is not None, "the study was evaluated without any broker"


def test_a_stale_lease_is_refused_everywhere(client: AdvisorClient, trial: Trial) -> None:
    old = client.claim(instance=INSTANCE).lease
    assert old is not None
    new = client.claim(instance="00000002").lease  # the agent died and came back
    assert new is not None
    assert new.epoch == old.epoch + 1
    for write in (
        lambda: client.renew(old),
        lambda: client.events(old, [TrialEvent(seq=1, at_s=1, phase="load", message="x")]),
        lambda: client.result(old, TrialOutcome(status="succeeded", result=RESULT)),
        lambda: client.release(old, "bye"),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert not Result.objects.exists()
    client.renew(new)


def test_another_agent_cannot_use_a_lease_or_see_a_trial(
    live_server: LiveServer, client: AdvisorClient, trial: Trial
) -> None:
    lease = client.claim(instance=INSTANCE).lease
    assert lease is not None
    stranger_org = factories.create_org("Somebody else")
    for other in (factories.create_agent(trial.study.org), factories.create_agent(stranger_org)):
        thief = AdvisorClient(live_server.url, other.secret)
        assert thief.claim(instance=INSTANCE).spec is None
        with pytest.raises(LeaseLost):
            thief.result(lease, TrialOutcome(status="succeeded", result=RESULT))


def test_a_cancel_rides_on_the_next_answer(client: AdvisorClient, trial: Trial) -> None:
    from advisor.studies.services import study_cancel

    lease = client.claim(instance=INSTANCE).lease
    assert lease is not None
    study_cancel(study=trial.study, actor="test")
    assert client.renew(lease).cancel
    client.result(lease, TrialOutcome(status="cancelled"))
    trial.study.refresh_from_db()
    assert trial.study.state == StudyState.CANCELLED
    assert trial.study.verdict_json["status"] == "no_verdict"


def test_a_released_trial_is_queued_again_at_once(client: AdvisorClient, trial: Trial) -> None:
    first = client.claim(instance=INSTANCE)
    assert first.lease is not None
    client.release(first.lease, "agent stopped")
    second = client.claim(instance="00000002")
    assert second.spec == first.spec
    trial.refresh_from_db()
    assert trial.attempts_used == 1


def test_a_deterministic_failure_ends_the_trial_and_a_killed_child_is_retried(
    client: AdvisorClient, trial: Trial
) -> None:
    lease = client.claim(instance=INSTANCE).lease
    assert lease is not None
    killed = Failure(reason=FailureReason.CHILD_KILLED, message="killed by signal 9")
    client.result(lease, TrialOutcome(status="failed", failure=killed))
    trial.refresh_from_db()
    assert trial.state == TrialState.QUEUED
    Trial.objects.update(not_before=None)

    lease = client.claim(instance=INSTANCE).lease
    assert lease is not None
    oom = Failure(reason=FailureReason.OUT_OF_MEMORY, message="needs 40 GiB, 16 GiB are free")
    client.result(lease, TrialOutcome(status="failed", failure=oom))
    trial.refresh_from_db()
    assert trial.state == TrialState.FAILED
    assert trial.failure == oom
    assert trial.study.findings.filter(payload__icontains="40 GiB").exists()


def test_a_draining_agent_gets_no_trial_and_is_told_so(
    client: AdvisorClient, agent: Agent, trial: Trial
) -> None:
    Agent.objects.filter(pk=agent.pk).update(state=AgentState.DRAINING)
    reply = client.claim(instance=INSTANCE)
    assert reply.spec is None
    assert reply.drain


def test_a_removed_agent_is_refused(client: AdvisorClient, agent: Agent) -> None:
    from advisor.fleet.services import agent_revoke

    agent_revoke(agent=agent, actor="test")
    with pytest.raises(Refused) as refused:
        client.claim(instance=INSTANCE)
    assert refused.value.is_credential


@pytest.mark.parametrize("header", ["", "x", "0x1", str(WIRE_VERSION + 1), "99"])
def test_a_version_that_does_not_fit_is_answered_426(
    live_server: LiveServer, agent: Agent, header: str
) -> None:
    answer = httpx.post(
        f"{live_server.url}/api/agent/v1/claim",
        json={"instance": INSTANCE},
        headers={WIRE_HEADER: header, "Authorization": f"Bearer {agent.secret}"},
    )
    assert answer.status_code == 426
    assert answer.json()["code"] == "wire_version"
    assert "pip install" in answer.json()["message"]


def test_the_version_before_still_works(live_server: LiveServer, agent: Agent) -> None:
    answer = httpx.post(
        f"{live_server.url}/api/agent/v1/claim",
        json={"instance": INSTANCE},
        headers={
            WIRE_HEADER: str(WIRE_VERSION - 1),
            "Authorization": f"Bearer {agent.secret}",
        },
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"instance": 5}', b'{"instance": "zz"}', b"[" * 100_000]
)
def test_a_body_that_is_no_message_is_a_400_with_a_sentence(
    live_server: LiveServer, agent: Agent, body: bytes
) -> None:
    answer = httpx.post(
        f"{live_server.url}/api/agent/v1/claim",
        content=body,
        headers={
            WIRE_HEADER: str(WIRE_VERSION),
            "Authorization": f"Bearer {agent.secret}",
            "Content-Type": "application/json",
        },
    )
    assert answer.status_code == 400
    assert set(answer.json()) == {"code", "message", "fields"}


# --- artefacts ---------------------------------------------------------------------------------


@pytest.fixture
def announced(client: AdvisorClient, trial: Trial, tmp_path: Path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"all the log")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    lease = client.claim(instance=INSTANCE).lease
    assert lease is not None
    outcome = TrialOutcome(
        status="succeeded",
        result=RESULT,
        artifacts=(Artifact(name="log.txt", sha256=sha256, size_bytes=path.stat().st_size),),
    )
    assert client.result(lease, outcome).missing == (sha256,)
    return lease, sha256, path


def test_an_announced_file_is_stored_under_its_hash(client: AdvisorClient, announced) -> None:
    lease, sha256, path = announced
    client.upload(lease, sha256, path)
    client.upload(lease, sha256, path)
    assert artifact_path(sha256).read_bytes() == b"all the log"
    assert StoredArtifact.objects.get().stored_at is not None


def test_wrong_bytes_are_refused_and_nothing_is_kept(client: AdvisorClient, announced) -> None:
    lease, sha256, path = announced
    path.write_bytes(b"other bytes")
    with pytest.raises(Refused, match="do not match"):
        client.upload(lease, sha256, path)
    path.write_bytes(b"x" * 5000)
    with pytest.raises(Refused) as refused:
        client.upload(lease, sha256, path)
    assert refused.value.status == 413
    assert list(artifact_path(sha256).parent.glob("*")) == []
    assert StoredArtifact.objects.get().stored_at is None


def test_a_file_that_was_not_announced_is_404(client: AdvisorClient, announced) -> None:
    lease, _, path = announced
    with pytest.raises(Refused) as refused:
        client.upload(lease, "f" * 64, path)
    assert refused.value.status == 404


def test_an_empty_file_is_a_file_too(client: AdvisorClient, trial: Trial, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_bytes(b"")
    sha256 = hashlib.sha256(b"").hexdigest()
    lease = client.claim(instance=INSTANCE).lease
    assert lease is not None
    announced = (Artifact(name="empty.txt", sha256=sha256, size_bytes=0),)
    client.result(lease, TrialOutcome(status="cancelled", artifacts=announced))
    client.upload(lease, sha256, path)
    assert StoredArtifact.objects.get().stored_at is not None
