"""The way of a recorded trace: announced by the agent, stored, scrubbed again, shown."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import Org, User
from advisor.fleet.models import Agent
from advisor.studies.models import StoredArtifact, Trial
from advisor.traces.models import Trace
from advisor.traces.services import stored_path
from gpuagent.wire import WIRE_VERSION
from tests import builders, factories
from tests.gpuagent.traces.make import launch_bound

SECRET = "hf_PlantedSecret0123456789"


@pytest.fixture
def trial(org: Org, agent: Agent) -> Trial:
    study = factories.create_study(org, agent=agent)
    return factories.create_trial(study, builders.make_trial(builders.make_profile_result()))


def send(trial: Trial, agent: Agent, content: bytes, name: str = "trace-torch.json.gz") -> Any:
    digest = hashlib.sha256(content).hexdigest()
    StoredArtifact.objects.get_or_create(
        attempt=trial.attempts.get(), name=name, sha256=digest, size_bytes=len(content)
    )
    return Client().generic(
        "PUT",
        f"/api/agent/v1/artifacts/{trial.pk}/1/{digest}",
        content,
        content_type="application/octet-stream",
        headers={"Authorization": f"Bearer {agent.secret}", "X-Agent-Wire": str(WIRE_VERSION)},
    )


def recording() -> bytes:
    document = launch_bound()
    document.meta["env"] = {"HF_TOKEN": SECRET}
    return gzip.compress(json.dumps(document.document()).encode())


def test_a_recorded_trace_is_scrubbed_again_and_linked_from_its_trial(
    trial: Trial, agent: Agent, org: Org, alice: User, signed_in: Any
) -> None:
    content = recording()
    assert send(trial, agent, content).status_code == 204
    assert send(trial, agent, content).status_code == 204
    trace = Trace.objects.get()
    assert (trace.org, trace.trial) == (org, trial)
    assert trace.bottleneck == "launch_bound"
    assert SECRET.encode() not in gzip.decompress(stored_path(trace).read_bytes())
    html = signed_in(alice).get(f"/trials/{trial.pk}/").content.decode()
    assert f"/traces/{trace.pk}/" in html
    assert "Launch kernels in one go" in html
    assert "1.20 ×" in html
    assert f"/trials/{trial.pk}/" in signed_in(alice).get(f"/traces/{trace.pk}/").content.decode()


def test_a_damaged_recording_stays_an_artefact(trial: Trial, agent: Agent) -> None:
    assert send(trial, agent, b"nothing to see").status_code == 204
    assert not Trace.objects.exists()


def test_other_files_and_other_experiments_make_no_trace(
    trial: Trial, agent: Agent, org: Org
) -> None:
    assert send(trial, agent, recording(), "log.txt").status_code == 204
    baseline = factories.create_trial(
        trial.study, builders.make_trial(builders.make_baseline_result(n_requests=5))
    )
    assert send(baseline, agent, recording()).status_code == 204
    assert not Trace.objects.exists()


def test_a_profile_needs_an_agent_that_can_record(api: Client, org: Org, body: Any) -> None:
    agent = Agent.objects.get(org=org)
    assert api.post("/api/v1/studies", body(profile=True), "application/json").status_code == 201
    agent.hello_json = factories.make_hello(experiments=("baseline",)).model_dump(mode="json")
    agent.save()
    answer = api.post("/api/v1/studies", body(profile=True), "application/json")
    assert answer.status_code == 400
    assert "cannot record profiles" in answer.json()["fields"]["profile"][0]
