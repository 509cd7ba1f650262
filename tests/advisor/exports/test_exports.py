"""Exports: flags that the engines have, names that stay data, and what is said about the proof."""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import flags
from advisor.cli.study import EXPORT_FORMATS
from advisor.evidence import StudyEvidence
from advisor.exports import EXPORTS, ExportDocument, ExportError, export_document
from advisor.exports.arguments import SERVING_ENGINES, arguments
from advisor.exports.knob_table import KNOBS, Flag, GroupFlag, Switch
from advisor.verdict import study_verdict
from gpuagent.wire import EngineSettings, HubModel, LocalModel, ModelRef, SimulatedModel
from tests.builders import (
    make_baseline_result,
    make_cold,
    make_config_model,
    make_current,
    make_environment,
    make_evidence,
    make_study_spec,
    make_trial,
    make_validity,
    make_variant,
    make_verification,
)

HUB = HubModel(id="HuggingFaceTB/SmolLM2-135M-Instruct")
EVERYTHING = EngineSettings(
    dtype="bfloat16",
    kv_cache=False,
    attention="sdpa",
    threads=8,
    max_running=64,
    max_batched_tokens=8192,
    chunked_prefill=True,
    memory_share_frac=0.9,
    kv_dtype="fp8",
    cuda_graphs=False,
    tensor_parallel=2,
    pipeline_parallel=2,
    data_parallel=2,
    expert_parallel=True,
)


def export(evidence: StudyEvidence, **options: Any) -> ExportDocument:
    return export_document(evidence, study_verdict(evidence, ()), **options)


def served(model: ModelRef = HUB, engine: str = "vllm", **spec: Any) -> StudyEvidence:
    """A study whose trials ran in a serving engine, verified: float32 is twice as fast."""
    trials = (make_current(), make_variant(), make_verification(ratio=0.5))
    fields = make_study_spec(model=model, **spec).model_copy(update={"engine": engine})
    return make_evidence(*trials, spec=fields)


def document_of(model: ModelRef, chosen: EngineSettings, **options: Any) -> ExportDocument:
    """The export of one trial with these settings."""
    evidence = make_evidence(
        make_trial(make_baseline_result(), settings=chosen),
        spec=make_study_spec(model=model),
    )
    return export(evidence, **options)


# --- flags -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", SERVING_ENGINES)
def test_every_flag_of_the_table_is_in_every_catalogue(engine: str) -> None:
    for version in flags.versions()[engine]:
        known = flags.catalogue(engine, version)
        for row in KNOBS:
            setting = row.of(engine)
            if isinstance(setting, Flag | GroupFlag):
                words: tuple[str, ...] = (setting.flag,)
            else:
                words = (*setting.on, *setting.off) if isinstance(setting, Switch) else ()
            for flag in (word for word in words if word.startswith("--")):
                assert flag in known.by_flag, (engine, version, row.knob)
                assert not known.by_flag[flag].deprecated, (engine, version, row.knob)


def test_every_setting_of_the_wire_has_a_row() -> None:
    assert set(EngineSettings.model_fields) <= {row.knob for row in KNOBS}


@pytest.mark.parametrize("engine", SERVING_ENGINES)
@pytest.mark.parametrize("off", [True, False])
def test_commands_pass_the_flag_check(engine: str, off: bool) -> None:
    chosen = EVERYTHING.model_copy(update={"chunked_prefill": not off, "cuda_graphs": not off})
    for version in flags.versions()[engine]:
        document = document_of(HUB, chosen, engine=engine, engine_version=version)
        command = flags.read_command(EXPORTS[engine].render(document).decode())
        assert command.engine == engine
        assert flags.check(command, flags.catalogue(engine, version)) == []


def test_a_setting_without_a_flag_is_named_with_its_reason() -> None:
    document = document_of(HUB, EVERYTHING, engine="sglang")
    left = {x.knob for x in document.not_carried_over}
    assert left == {"kv_cache", "attention", "threads"}
    text = EXPORTS["sglang"].render(document).decode()
    assert (
        "# Not carried over: KV cache off: a serving engine always keeps keys and values." in text
    )


def test_a_chunk_size_gives_way_where_sglang_does_not_chunk() -> None:
    whole = EngineSettings(max_batched_tokens=2048, chunked_prefill=False)
    carried, left = arguments("sglang", whole)
    assert [a.words for a in carried] == [("--chunked-prefill-size", "-1")]
    assert [x.knob for x in left] == ["max_batched_tokens"]


def test_the_command_line_offers_every_format() -> None:
    assert set(EXPORT_FORMATS) == set(EXPORTS)


# --- what is exported, and what it says of its proof ---------------------------------------------


def test_a_verified_recommendation_in_its_own_engine_says_so() -> None:
    document = export(served())
    assert document.evidence.verified
    assert document.evidence.sentence.startswith("Verified by A/B: ITL −50")
    assert document.settings["dtype"] == "float32"
    assert [(f.knob, f.changed) for f in document.flags] == [("dtype", True)]


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        (make_evidence(make_current(), make_variant()), "Not verified in vLLM: the settings were"),
        (make_evidence(make_current(itl_s=0.01)), "Not verified in vLLM: the settings were"),
    ],
)
def test_advice_from_another_engine_is_not_verified(evidence: StudyEvidence, sentence: str) -> None:
    document = export(evidence)
    assert not document.evidence.verified
    assert document.evidence.sentence.startswith(sentence)
    for name in ("vllm", "compose", "kubernetes"):
        assert EXPORTS[name].render(document).decode().startswith("# Not verified")
    assert json.loads(EXPORTS["json"].render(document))["evidence"]["verified"] is False


def test_one_measurement_in_its_own_engine_is_not_a_proof() -> None:
    evidence = served()
    once = make_evidence(*evidence.trials[:2], spec=evidence.spec)
    assert export(once).evidence.sentence.startswith("Not verified. ")
    today = export(once, trial=1).evidence
    assert today.sentence == "Not verified: these are the current settings, measured once."
    assert today.trial == 1


def test_a_simulated_study_exports_a_placeholder() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    document = export(make_evidence(make_current(), spec=spec))
    assert document.evidence.sentence.startswith("Not verified. Found on a simulator")
    assert document.evidence.hardware is None
    assert "YOUR_MODEL" in document.argv
    assert document.code == ()


def test_an_invalid_or_unfinished_trial_exports_with_that_said() -> None:
    bad = make_trial(make_baseline_result(), validity=make_validity("invalid"))
    waiting = make_trial(ordinal=2, role="variant", settings=EngineSettings(dtype="float32"))
    evidence = make_evidence(bad, waiting)
    assert "trial 1 is invalid" in export(evidence, trial=1).evidence.sentence
    assert "no measurement" in export(evidence, trial=2).evidence.sentence


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"trial": 9}, "trial"),
        ({"engine": "tgi"}, "engine"),
        ({"engine": "vllm", "engine_version": "0.1"}, "engine_version"),
    ],
)
def test_bad_choices_name_the_field_and_the_fix(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ExportError) as error:
        export(make_evidence(make_current()), **options)
    assert error.value.field == field
    assert not error.value.absent


@pytest.mark.parametrize(
    "trials", [(), (make_trial(make_baseline_result(), validity=make_validity("invalid")),)]
)
def test_without_a_valid_measurement_there_is_nothing_to_export(trials: Any) -> None:
    with pytest.raises(ExportError) as error:
        export(make_evidence(*trials))
    assert error.value.absent


def test_the_in_process_engine_gives_its_lines_of_python() -> None:
    document = export(make_evidence(make_current(), make_variant()))
    assert "    dtype=torch.float32," in document.code
    compile("\n".join(document.code), "export", "exec")
    assert export(served()).code == ()


# --- containers --------------------------------------------------------------------------------


def objects(document: ExportDocument) -> dict[str, Any]:
    return {o["kind"]: o for o in yaml.safe_load_all(EXPORTS["kubernetes"].render(document))}


def test_kubernetes_probes_follow_the_measured_start() -> None:
    cold = make_cold(import_s=10, load_s=80, warmup_s=9, first_request_ttft_s=1)
    environment = make_environment(versions={"vllm": "0.32.0"})
    trial = make_trial(make_baseline_result(cold=cold), environment=environment)
    spec = make_study_spec(model=HUB).model_copy(update={"engine": "vllm"})
    found = objects(export(make_evidence(trial, spec=spec)))
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probe = container["startupProbe"]
    # Three times the measured 100 s, and the download of 269 MB at 50 MB/s.
    assert probe["failureThreshold"] * probe["periodSeconds"] == 310
    assert container["image"] == "vllm/vllm-openai:v0.32.0"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert pod["enableServiceLinks"] is False
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    assert "/dev/shm" not in {m["mountPath"] for m in container["volumeMounts"]}
    assert (
        found["Service"]["spec"]["selector"]
        == found["Deployment"]["spec"]["selector"]["matchLabels"]
    )


def test_an_unknown_start_is_said_and_gets_a_long_limit() -> None:
    text = EXPORTS["kubernetes"].render(export(make_evidence(make_current()))).decode()
    assert "# Start-up limit 1,200 s: the start of this engine was not measured." in text


def test_two_ranks_ask_for_two_gpus_and_shared_memory() -> None:
    document = export(served())
    sizing = document.sizing.model_copy(update={"tensor_parallel": 2})
    document = document.model_copy(update={"sizing": sizing})
    pod = objects(document)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert {"medium": "Memory", "sizeLimit": "2Gi"} in [v.get("emptyDir") for v in pod["volumes"]]
    service = yaml.safe_load(EXPORTS["compose"].render(document))["services"]["vllm"]
    assert service["shm_size"] == "2gb"
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device["count"] == 2


def test_a_local_model_is_mounted_and_no_secret_stands_inline() -> None:
    document = export(make_evidence(make_current()))
    container = objects(document)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert "/models/SmolLM2-135M-Instruct" in container["command"]
    assert container["env"] == [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}},
        }
    ]
    service = yaml.safe_load(EXPORTS["compose"].render(document))["services"]["vllm"]
    assert service["environment"] == ["HF_TOKEN"]
    assert "${MODELS_DIR:-./models}:/models:ro" in service["volumes"]


# --- names are data ------------------------------------------------------------------------------

HOSTILE = st.one_of(
    st.sampled_from(
        [
            "it's",
            '"; rm -rf / #',
            "$(reboot)",
            "`reboot`",
            "${HOME}",
            "a\n- evil: true\n",
            "a\\",
            "--trust-remote-code",
            "yes",
            "1e3",
            "0x10",
            "~",
            "{a: b}",
            "# x",
            "a: b",
            "&x *x !!python/object:os.system",
            "\u2028\u202etxt",
            "\t",
        ]
    ),
    st.text(min_size=1, max_size=40).filter(lambda s: "\x00" not in s),
)


@cache
def local_export(engine: str) -> ExportDocument:
    return export(served(LocalModel(name="m")), engine=engine)


@settings(max_examples=30, deadline=None)
@given(name=HOSTILE, study=HOSTILE, engine=st.sampled_from(SERVING_ENGINES))
def test_a_hostile_name_stays_one_argument_everywhere(name: str, study: str, engine: str) -> None:
    base = local_export(engine)
    document = base.model_copy(
        update={
            "model": base.model.model_copy(update={"name": name}),
            "study": base.study.model_copy(update={"name": study}),
            "argv": tuple(f"/models/{name}" if w == "/models/m" else w for w in base.argv),
        }
    )
    text = EXPORTS[engine].render(document).decode()
    lines = text.split("\n")
    body = "\n".join(lines[sum(1 for x in lines if x.startswith("# ")) :])
    assert text.startswith("# ")
    assert f"./{name}" in shlex.split(body)
    assert "evil:" not in [word for word in shlex.split(body) if word != f"./{name}"]

    compose = yaml.safe_load(EXPORTS["compose"].render(document))
    assert list(compose) == ["services", "volumes"]
    assert list(compose["services"]) == [engine]
    words = compose["services"][engine]["entrypoint"]
    assert [w.replace("$$", "$") for w in words][: len(document.argv)] == list(document.argv)
    assert all("$" not in w.replace("$$", "") for w in words)

    parts = list(yaml.safe_load_all(EXPORTS["kubernetes"].render(document)))
    assert [o["kind"] for o in parts] == ["PersistentVolumeClaim", "Deployment", "Service"]
    command = parts[1]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == words
    assert len(parts[1]["metadata"]["name"]) <= 63

    assert json.loads(EXPORTS["json"].render(document))["model"]["name"] == name
    assert EXPORTS["json"].filename(document).isascii()


def test_a_hub_name_that_looks_like_an_option_stays_a_name() -> None:
    for engine in SERVING_ENGINES:
        document = document_of(HubModel(id="-evil/--model"), EngineSettings(), engine=engine)
        command = flags.read_command(EXPORTS[engine].render(document).decode())
        assert flags.check(command, flags.catalogue(engine)) == []


def test_a_bare_config_needs_the_readers_weights() -> None:
    document = document_of(make_config_model(), EngineSettings())
    assert any("put your weights" in note for note in document.notes)
