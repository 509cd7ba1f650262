"""Rows for tests, as plain functions with defaults: give what the test is about, leave the rest.

Rows are made directly, so that no service, planner or rule is needed to have a study; the values
inside come from `tests.builders`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from advisor import secrets
from advisor.accounts.models import ApiToken, Membership, Org, Role, User
from advisor.evidence import TrialEvidence
from advisor.fleet.models import Agent
from advisor.rules.rule import EvidenceItem, Finding, Verdict
from advisor.studies.listing import listing_of
from advisor.studies.models import Attempt, FindingRow, Result, Study, Trial
from advisor.studies.states import AttemptEnd, StudyState, TrialState
from advisor.traces.models import Trace
from advisor.traces.services import stored_path
from gpuagent.experiments import EXPERIMENTS
from gpuagent.traces.analyse import analyse_file
from gpuagent.wire import (
    WIRE_VERSION,
    AgentHello,
    EngineSettings,
    InventoryModel,
    StudySpec,
)
from tests import builders
from tests.gpuagent.traces.make import launch_bound

_count = itertools.count(1)


def create_user(email: str | None = None, **fields: Any) -> User:
    """A person without a password: `client.force_login` needs none, and hashing one is slow."""
    return User.objects.create_user(email or f"person{next(_count)}@example.org", **fields)


def create_org(name: str = "Serving team", *, owner: User | None = None) -> Org:
    org = Org.objects.create(name=name)
    if owner is not None:
        create_member(org, owner, Role.OWNER)
    return org


def create_member(org: Org, user: User, role: str = Role.MEMBER) -> Membership:
    return Membership.objects.create(org=org, user=user, role=role)


def create_token(
    org: Org, user: User, *, scope: str = "write", days: float = 30, **fields: Any
) -> tuple[ApiToken, str]:
    """A token and its secret."""
    secret = secrets.new_secret("ta")
    token = ApiToken.objects.create(
        org=org,
        user=user,
        name=fields.pop("name", "ci"),
        prefix=secret.prefix,
        secret_hash=secret.sha256,
        scope=scope,
        expires_at=timezone.now() + timedelta(days=days),
        **fields,
    )
    return token, secret.full


# --- fleet -------------------------------------------------------------------------------------


def make_hello(**overrides: Any) -> AgentHello:
    """A two-core CPU agent with the demo model and one folder that must not be used."""
    fields: dict[str, Any] = {
        "agent_version": "0.1.0",
        "wire_version": WIRE_VERSION,
        "host": builders.make_environment().host,
        "versions": {"torch": "2.13.0", "transformers": "5.1.0"},
        "engines": ("transformers", "simulated"),
        "experiments": tuple(EXPERIMENTS),
        "models": (
            InventoryModel(
                name="SmolLM2-135M-Instruct",
                config=builders.SMOLLM2_CONFIG,
                weights="safetensors",
                weight_bytes=269_060_552,
            ),
            InventoryModel(name="pickled", problem="The folder holds pickled weights only."),
        ),
    }
    return AgentHello(**{**fields, **overrides})


def create_agent(org: Org, slug: str | None = None, **fields: Any) -> Agent:
    """A reachable agent. Its credential is in `agent.secret`, which only tests have."""
    secret = secrets.new_secret("tag")
    hello = fields.pop("hello", None) or make_hello()
    agent = Agent.objects.create(
        org=org,
        slug=slug or f"bench-{next(_count)}",
        credential_prefix=secret.prefix,
        credential_hash=secret.sha256,
        wire_version=WIRE_VERSION,
        hello_json=hello.model_dump(mode="json"),
        **fields,
    )
    agent.secret = secret.full
    return agent


# --- studies -----------------------------------------------------------------------------------


def create_study(org: Org, *, agent: Agent | None = None, **fields: Any) -> Study:
    """A running study without trials."""
    spec: StudySpec = fields.pop("spec", None) or builders.make_study_spec(
        agent=agent.slug if agent else None
    )
    number = org.next_study_number
    org.next_study_number = number + 1
    org.save(update_fields=["next_study_number"])
    study = Study(
        **{
            "org": org,
            "number": number,
            "name": spec.name,
            "spec_json": spec.model_dump(mode="json"),
            "model_config_json": builders.SMOLLM2_CONFIG,
            "agent": agent,
            "state": StudyState.RUNNING,
            "phase": "baseline",
            **fields,
        }
    )
    for field, value in listing_of(study).items():
        setattr(study, field, value)
    study.save(force_insert=True)
    return study


def create_trial(study: Study, evidence: TrialEvidence | None = None, **fields: Any) -> Trial:
    """A trial as `evidence` describes it, with attempt and result; queued without evidence."""
    ordinal = study.trials.count() + 1
    evidence = evidence or builders.make_trial(ordinal=ordinal)
    trial = Trial(
        **{
            "study": study,
            "agent": study.agent,
            "ordinal": ordinal,
            "role": evidence.role,
            "title": evidence.title,
            "reason": evidence.reason,
            "estimate_s": 40.0,
            "state": TrialState(evidence.state),
            "failure_json": evidence.failure.model_dump(mode="json") if evidence.failure else None,
            "started_at": evidence.started_at,
            "finished_at": evidence.finished_at,
            **fields,
        }
    )
    spec = evidence.spec.model_copy(update={"trial_id": str(trial.pk)})
    trial.spec_json = spec.model_dump(mode="json")
    if trial.state != TrialState.QUEUED:
        trial.epoch = trial.attempts_used = 1
    trial.save()
    if evidence.result is not None:
        attempt = Attempt.objects.create(
            trial=trial, number=1, agent=study.agent, end=AttemptEnd.SUCCEEDED
        )
        payload = evidence.result.model_dump(mode="json")
        Result.objects.create(trial=trial, attempt=attempt, payload=payload)
    return trial


def create_finished_study(org: Org, *, agent: Agent | None = None, **fields: Any) -> Study:
    """bfloat16 today misses the ITL target, float32 meets it; one finding says so."""
    study = create_study(
        org,
        agent=agent or create_agent(org),
        **{"state": StudyState.FINISHED, "phase": "done", "finished_at": timezone.now(), **fields},
    )
    create_trial(study, builders.make_trial(builders.make_baseline_result(), ordinal=1))
    faster = create_trial(
        study,
        builders.make_trial(
            builders.make_baseline_result("float32", ttft_s=0.08, itl_s=0.03),
            ordinal=2,
            role="variant",
            settings=EngineSettings(dtype="float32"),
        ),
    )
    create_finding(study, trial_id=str(faster.pk))
    return study


def create_finding(study: Study, *, trial_id: str | None = None, **fields: Any) -> FindingRow:
    finding = Finding(
        **{
            "rule_id": "dtype_slower",
            "verdict": Verdict.FAIL,
            "title": "Serve in float32: bfloat16 is slower here",
            "evidence": (
                EvidenceItem(text="ITL p50 30 ms against 60 ms", value=0.03, trial_id=trial_id),
            ),
            **fields,
        }
    )
    return FindingRow.objects.create(
        study=study,
        rank=study.findings.count() + 1,
        rule_id=finding.rule_id,
        verdict=finding.verdict,
        payload=finding.model_dump(mode="json"),
    )


# --- traces ------------------------------------------------------------------------------------


def create_trace(org: Org, document: dict[str, Any] | None = None, **fields: Any) -> Trace:
    """An analysed trace with its file, without a child process. `document`: Kineto JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps(document or launch_bound().document()))
        report = analyse_file(path).as_dict()
        content = path.read_bytes()
    trace = Trace.objects.create(
        org=org,
        name=fields.pop("name", "decode.json"),
        format="kineto",
        upload_bytes=len(content),
        stored_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        bottleneck=report["verdict"]["class"],
        sentence=report["verdict"]["sentence"],
        report_json=json.loads(json.dumps(report, default=float)),
        analysis_s=0.5,
        **fields,
    )
    target = stored_path(trace)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return trace
