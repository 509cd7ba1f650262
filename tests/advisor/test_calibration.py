"""Ceilings on the agent's record: from its hello, from a trial, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from advisor.evidence import DeviceFacts
from advisor.fleet.models import Agent
from advisor.fleet.services import agent_calibrated, agent_seen
from advisor.pages.present.agents import agent_cards
from advisor.rules.checks import k001_decode_below_roofline
from advisor.studies import leases
from advisor.studies.estimating import device_of_agent
from advisor.studies.evidence import build_evidence
from advisor.studies.intake import device_facts
from gpuagent import calibration
from gpuagent.config import AgentConfig, load_config
from gpuagent.errors import ConfigError
from gpuagent.wire import TrialOutcome
from gpuagent.wire.inside import CalibrateConfig
from tests import factories
from tests.builders import (
    make_current,
    make_device,
    make_environment,
    make_evidence,
    make_result,
    make_trial,
    make_validity,
)
from tests.inside_builders import make_calibrate_result, make_ceilings

FIRST = make_ceilings(measured_at_s=1000.0)
SECOND = make_ceilings(measured_at_s=2000.0, read=30e9)


@pytest.mark.django_db
def test_the_newest_ceilings_are_kept_with_the_ones_before_them() -> None:
    agent = factories.create_agent(factories.create_org())
    assert agent.ceilings is None
    for found in (FIRST, SECOND, FIRST, SECOND):
        agent_calibrated(agent=agent, ceilings=found)
    stored = Agent.objects.get(pk=agent.pk)
    assert stored.ceilings == SECOND
    assert stored.ceilings_before == FIRST
    facts = device_facts(stored)
    assert isinstance(facts, DeviceFacts)
    assert (facts.ceilings, facts.ceilings_before) == (SECOND, FIRST)


@pytest.mark.django_db
def test_another_device_starts_anew() -> None:
    agent = factories.create_agent(factories.create_org())
    agent_calibrated(agent=agent, ceilings=FIRST)
    agent_calibrated(agent=agent, ceilings=make_ceilings(measured_at_s=2000.0, device="NVIDIA L4"))
    assert agent.ceilings_before is None


@pytest.mark.django_db
def test_a_hello_carries_them_and_the_agents_page_shows_them() -> None:
    agent = factories.create_agent(factories.create_org())
    agent_seen(agent=agent, hello=factories.make_hello(ceilings=FIRST))
    assert Agent.objects.get(pk=agent.pk).ceilings == FIRST
    (card,) = agent_cards([agent], {}, {}, {})
    text = dict(card.facts)["Ceilings"].replace("\u00a0", " ")
    assert text == "reads 40.0 GB/s, 0.180 TFLOP/s in float32, calibrated 1970-01-01"


@pytest.mark.django_db
@pytest.mark.parametrize("verdict", ["valid", "warn", "invalid"])
def test_a_calibrate_trial_is_stored_unless_its_measurement_is_invalid(verdict: str) -> None:
    agent = factories.create_agent(factories.create_org())
    study = factories.create_study(agent.org, agent=agent)
    factories.create_trial(study, make_trial(role="diagnosis", config=CalibrateConfig()))
    claim = leases.trial_claim(agent=agent, instance="0123abcd")
    assert claim is not None
    result = make_result(make_calibrate_result(), validity=make_validity(verdict))  # type: ignore[arg-type]
    leases.result_record(
        agent=agent,
        lease=claim.lease,
        outcome=TrialOutcome(status="succeeded", result=result),
    )
    stored = Agent.objects.get(pk=agent.pk).ceilings
    assert (stored is None) == (verdict == "invalid")
    assert build_evidence(study).device is not None


def test_the_roofline_takes_the_higher_of_calibration_and_trial() -> None:
    current = make_current(read_bandwidth_bytes_s=20e9)
    for read, word in ((40e9, "calibrated"), (10e9, "measured")):
        device = make_device(ceilings=make_ceilings(read=read))
        (finding,) = k001_decode_below_roofline.check(make_evidence(current, device=device))
        assert f"of the {word} bandwidth" in finding.evidence[0].text
    unread = make_current(read_bandwidth_bytes_s=None)
    (finding,) = k001_decode_below_roofline.check(
        make_evidence(unread, device=make_device(ceilings=make_ceilings()))
    )
    assert finding.evidence


@pytest.mark.django_db
def test_estimates_take_the_measured_ceilings_of_a_processor_and_not_of_a_gpu() -> None:
    agent = factories.create_agent(factories.create_org())
    table = device_of_agent(agent)
    agent_calibrated(agent=agent, ceilings=make_ceilings(read=77e9, float32=123e9))
    measured = device_of_agent(agent)
    assert table is not None
    assert measured is not None
    assert measured.name == table.name
    assert measured.bandwidth_bytes_s == 77e9 != table.bandwidth_bytes_s
    assert measured.dense_flops("fp32") == 123e9
    gpu = make_environment("cuda:0 NVIDIA H100 80GB HBM3").gpus
    agent = factories.create_agent(agent.org, hello=factories.make_hello(gpus=gpu))
    before = device_of_agent(agent)
    agent_calibrated(agent=agent, ceilings=make_ceilings())
    assert device_of_agent(agent) == before


@pytest.mark.django_db
def test_a_diagnosis_shows_its_charts_on_each_trial_page(client: Client) -> None:
    from tests.inside_builders import (
        make_attention_result,
        make_batching_result,
        make_kernels_result,
        make_quantisation_result,
    )

    user = factories.create_user()
    org = factories.create_org(owner=user)
    client.force_login(user)
    study = factories.create_finished_study(org)
    for index, result in enumerate(
        (
            make_calibrate_result(),
            make_kernels_result(),
            make_attention_result(),
            make_quantisation_result(),
            make_batching_result(),
        )
    ):
        row = factories.create_trial(study, make_trial(result, ordinal=3 + index, role="diagnosis"))
        answer = client.get(f"/trials/{row.pk}/")
        assert answer.status_code == 200
        assert b"<figure" in answer.content
    assert client.get(f"/studies/{study.pk}/").status_code == 200


# --- on the agent ------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentConfig:
    monkeypatch.setenv("GPUAGENT_STATE_DIR", str(tmp_path))
    return load_config()


def test_stored_ceilings_are_read_and_a_broken_file_counts_as_none(config: AgentConfig) -> None:
    assert calibration.stored(config.state_dir) is None
    path = config.state_dir / calibration.FILE
    path.write_text(FIRST.model_dump_json())
    assert calibration.stored(config.state_dir) == FIRST
    path.write_text("{")
    assert calibration.stored(config.state_dir) is None


def test_a_calibration_that_fails_says_why(
    config: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "LIMIT_S", 0.001)
    with pytest.raises(ConfigError, match="could not be calibrated"):
        calibration.calibrate(config, lambda event: None)
    assert calibration.stored(config.state_dir) is None
