"""One golden file per message. Both sides read them: a change of the wire shows up here first.

`UPDATE_GOLDEN=1 pytest tests/gpuagent/wire` writes them anew; look at the diff before committing,
and raise WIRE_VERSION when an older peer would misread it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from advisor.imports import read_import
from advisor.imports.convert import convert
from gpuagent.wire import (
    WIRE_VERSION,
    AgentHello,
    EngineSettings,
    Failure,
    FailureReason,
    GpuInfo,
    GpuSample,
    HostInfo,
    HostSample,
    HubModel,
    InventoryModel,
    LengthSpec,
    SlaTarget,
    StudySpec,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    WireModel,
    Workload,
    parse_from_peer,
    wire_version_accepted,
)
from gpuagent.wire.inside import (
    AttentionConfig,
    BatchingConfig,
    CalibrateConfig,
    KernelsConfig,
    QuantisationConfig,
)
from gpuagent.wire.parallel import TensorParallelConfig
from gpuagent.wire.protocol import (
    ClaimReply,
    ClaimRequest,
    ControlReply,
    ErrorReply,
    EventsRequest,
    Lease,
    RegisterReply,
    RegisterRequest,
    ReleaseRequest,
    RenewRequest,
    ResultReply,
    ResultRequest,
    TelemetryRequest,
)
from gpuagent.wire.robustness import RobustnessConfig
from gpuagent.wire.trial import (
    Artifact,
    BaselineConfig,
    ExperimentConfig,
    KvCacheConfig,
    ProfileConfig,
    VerifyConfig,
)
from tests import builders, inside_builders
from tests.advisor.imports import samples

GOLDEN = Path(__file__).parent / "golden"

TRIAL_ID = "00000000-0000-4000-8000-000000000001"
LEASE = Lease(trial_id=TRIAL_ID, epoch=2, token="token-0123456789abcdef")
HELLO = AgentHello(
    agent_version="0.1.0",
    wire_version=1,
    host=HostInfo(
        hostname="h100-a",
        cpu="Xeon 8480+",
        physical_cores=56,
        logical_cores=112,
        memory_bytes=2**40,
        os="Linux 6.8",
    ),
    gpus=(
        GpuInfo(
            index=0,
            uuid="GPU-1",
            name="NVIDIA H100 80GB HBM3",
            memory_bytes=85_520_809_984,
            compute_capability="9.0",
            power_limit_w=700.0,
        ),
    ),
    driver_version="580.95.05",
    versions={"torch": "2.13.0"},
    engines=("transformers",),
    experiments=("baseline", "kv_cache", "verify"),
    architectures=("llama", "qwen3"),
    models=(
        InventoryModel(
            name="tiny", config={"model_type": "llama"}, weights="safetensors", weight_bytes=10
        ),
    ),
)
WORKLOAD = Workload(
    preset="chat",
    input_tokens=LengthSpec(kind="lognormal", mean=64, p95=128, maximum=192),
    output_tokens=LengthSpec(mean=20),
    request_rate_per_s=0.5,
    requests=60,
)


def spec(config: ExperimentConfig) -> TrialSpec:
    return TrialSpec(
        trial_id=TRIAL_ID,
        model=HubModel(id="Qwen/Qwen3-8B", revision="0" * 40),
        settings=EngineSettings(dtype="bfloat16"),
        workload=WORKLOAD,
        config=config,
        seed=7,
    )


def outcome(result: object) -> TrialOutcome:
    return TrialOutcome(
        status="succeeded",
        result=builders.make_trial(result).result,
        artifacts=(Artifact(name="log.txt", sha256="a" * 64, size_bytes=3),),
        log_tail="done",
    )


IMPORTED = convert(
    read_import(json.dumps(samples.vllm(2)).encode())[0],
    sha256="0" * 64,
    benchmark=0,
    targets=(SlaTarget(metric="ttft_s", statistic="p95", limit=0.5),),
    hardware="H100 SXM",
    imported_at_s=1.5,
)

MESSAGES: dict[str, WireModel] = {
    "study_spec_imported": IMPORTED.spec,
    "trial_config_imported": IMPORTED.config,
    "trial_result_imported": IMPORTED.result,
    "study_spec": StudySpec(
        name="Qwen3-8B chat",
        model=HubModel(id="Qwen/Qwen3-8B"),
        workload=WORKLOAD,
        targets=(SlaTarget(metric="ttft_s", statistic="p95", limit=0.5),),
        agent="h100-a",
    ),
    "trial_spec_baseline": spec(BaselineConfig()),
    "trial_spec_kv_cache": spec(KvCacheConfig()),
    "trial_spec_tensor_parallel": spec(TensorParallelConfig()),
    "trial_spec_profile": spec(ProfileConfig()),
    "trial_spec_calibrate": spec(CalibrateConfig()),
    "trial_spec_kernels": spec(KernelsConfig()),
    "trial_spec_attention": spec(AttentionConfig()),
    "trial_spec_quantisation": spec(QuantisationConfig()),
    "trial_spec_batching": spec(BatchingConfig()),
    "trial_spec_robustness": spec(RobustnessConfig()),
    "trial_spec_verify": spec(VerifyConfig(candidate=EngineSettings(dtype="float32"))),
    "register_request": RegisterRequest(
        registration_token="tar_12345678_secret", slug="h100-a", hello=HELLO
    ),
    "register_reply": RegisterReply(agent_id="1", slug="h100-a", credential="tag_x"),
    "claim_request": ClaimRequest(instance="0123abcd", hello=HELLO),
    "claim_reply": ClaimReply(
        spec=spec(BaselineConfig()), lease=LEASE, attempt=2, server_time_s=1.5
    ),
    "claim_reply_nothing": ClaimReply(drain=True, server_time_s=1.5),
    "renew_request": RenewRequest(lease=LEASE),
    "release_request": ReleaseRequest(lease=LEASE, reason="stopped"),
    "control_reply": ControlReply(cancel=True, server_time_s=1.5, lease_until_s=301.5),
    "events_request": EventsRequest(
        lease=LEASE,
        events=(
            TrialEvent(seq=1, at_s=1.5, phase="load", message="loading", done_frac=0.1),
            TrialEvent(seq=2, at_s=2.5, phase="measure", level="warning", message="slow"),
        ),
    ),
    "telemetry_request": TelemetryRequest(
        samples=(
            HostSample(
                at_s=1.5,
                cpu_frac=0.5,
                load_1min=1.0,
                memory_available_bytes=10,
                child_rss_bytes=5,
                child_cpu_cores=1.9,
                gpus=(
                    GpuSample(
                        index=0,
                        util_frac=0.93,
                        memory_used_bytes=7,
                        sm_clock_hz=1.98e9,
                        memory_clock_hz=2.6e9,
                        power_w=588.0,
                        energy_j=1e6,
                        temperature_c=63,
                        throttle_reasons=("sw_power_cap",),
                        foreign_processes=0,
                    ),
                ),
            ),
        )
    ),
    "result_baseline": ResultRequest(
        lease=LEASE, outcome=outcome(builders.make_baseline_result(n_requests=2))
    ),
    "result_tensor_parallel": ResultRequest(
        lease=LEASE, outcome=outcome(inside_builders.make_split_result())
    ),
    "result_kv_cache": ResultRequest(lease=LEASE, outcome=outcome(builders.make_kv_result())),
    "result_profile": ResultRequest(lease=LEASE, outcome=outcome(builders.make_profile_result())),
    "result_calibrate": ResultRequest(
        lease=LEASE, outcome=outcome(inside_builders.make_calibrate_result())
    ),
    "result_kernels": ResultRequest(
        lease=LEASE, outcome=outcome(inside_builders.make_kernels_result())
    ),
    "result_attention": ResultRequest(
        lease=LEASE, outcome=outcome(inside_builders.make_attention_result())
    ),
    "result_quantisation": ResultRequest(
        lease=LEASE, outcome=outcome(inside_builders.make_quantisation_result())
    ),
    "result_robustness": ResultRequest(
        lease=LEASE, outcome=outcome(builders.make_robustness(seen={}))
    ),
    "result_batching": ResultRequest(
        lease=LEASE, outcome=outcome(inside_builders.make_batching_result())
    ),
    "result_verify": ResultRequest(
        lease=LEASE, outcome=outcome(builders.make_verify_result(requests_per_run=2))
    ),
    "result_failed": ResultRequest(
        lease=LEASE,
        outcome=TrialOutcome(
            status="failed",
            failure=Failure(reason=FailureReason.OUT_OF_MEMORY, message="needs 40 GiB"),
        ),
    ),
    "result_reply": ResultReply(accepted=True, missing=("a" * 64,)),
    "error_reply": ErrorReply(code="invalid", message="No.", fields={"name": ["Fill it in."]}),
}


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_each_message_is_written_as_its_golden_file_says(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    written = json.loads(MESSAGES[name].model_dump_json())
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    assert json.loads(path.read_text()) == written


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_each_golden_file_reads_back_as_the_same_value(name: str) -> None:
    message = MESSAGES[name]
    read = parse_from_peer(type(message), json.loads((GOLDEN / f"{name}.json").read_text()))
    assert read == message


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_field_of_a_newer_peer_is_ignored_but_never_written(name: str) -> None:
    message = MESSAGES[name]
    data = json.loads((GOLDEN / f"{name}.json").read_text()) | {"from_the_future": 1}
    assert parse_from_peer(type(message), data) == message
    with pytest.raises(ValidationError):
        type(message).model_validate(data)


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(MESSAGES)


def test_an_unknown_enum_value_is_refused_rather_than_guessed() -> None:
    data = json.loads((GOLDEN / "result_failed.json").read_text())
    data["outcome"]["failure"]["reason"] = "gremlins"
    with pytest.raises(ValidationError):
        parse_from_peer(ResultRequest, data)


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-1e400"])
def test_a_number_that_is_not_finite_is_refused(bad: str) -> None:
    text = (GOLDEN / "telemetry_request.json").read_text().replace("588.0", bad)
    with pytest.raises(ValidationError):
        TelemetryRequest.model_validate_json(text)


def test_this_version_and_the_one_before_are_accepted() -> None:
    assert wire_version_accepted(WIRE_VERSION)
    assert wire_version_accepted(WIRE_VERSION - 1)
    assert not wire_version_accepted(WIRE_VERSION - 2)
    assert not wire_version_accepted(WIRE_VERSION + 1)


def test_importing_the_wire_needs_neither_torch_nor_celery_nor_django() -> None:
    import subprocess
    import sys

    code = (
        "import sys; [sys.modules.__setitem__(m, None) for m in"
        " ('torch','celery','django','numpy','httpx','advisor')];"
        "import gpuagent.wire, gpuagent.wire.protocol"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
