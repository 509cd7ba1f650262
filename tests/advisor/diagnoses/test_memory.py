""" "Memory unusually high": every step by what it needs, and the walk's conclusion."""

from __future__ import annotations

from typing import Any

from advisor.diagnoses import DIAGNOSES, Step, memory
from advisor.evidence import TrialEvidence
from gpuagent.wire import EngineSettings, Samples, SimulatedModel
from gpuagent.wire.inside import CacheDetails
from gpuagent.wire.measure import Validity, ValidityCheck
from gpuagent.wire.trial import MemorySnapshot
from tests.builders import (
    make_baseline_result,
    make_cell,
    make_current,
    make_device,
    make_evidence,
    make_kv_trial,
    make_loaded,
    make_profile_result,
    make_shape,
    make_study_spec,
    make_trial,
)
from tests.rule_checks import GIB, invalid, make_counters


def step(name: str, *trials: TrialEvidence, **fields: Any) -> Step:
    found = memory(make_evidence(*trials, **fields))
    return next(s for s in found.steps if s.id == name)


def held(*values: float) -> CacheDetails:
    return CacheDetails(context_tokens=512, forms=(), held_bytes=Samples(values=values))


def test_everything_explained_names_no_cause() -> None:
    clean = Validity(
        checks=(ValidityCheck(id="foreign_gpu_processes", verdict="valid", message="none seen"),)
    )
    snapshot = MemorySnapshot(
        allocated_peak_bytes=GIB,
        reserved_peak_bytes=GIB,
        fragmentation_frac=0.0,
        segments=9,
        largest_free_bytes=0,
        alloc_retries=0,
        ooms=0,
    )
    found = memory(
        make_evidence(
            make_trial(make_baseline_result(), validity=clean),
            make_kv_trial(details=held(0, 0, 0, 0)),
            make_trial(make_profile_result(memory=snapshot), ordinal=3, role="diagnosis"),
        )
    )
    assert [s.verdict for s in found.steps] == ["pass"] * len(found.steps), found
    assert found.outcome == "nothing_found"


def test_without_a_measurement_it_says_what_to_run() -> None:
    found = memory(make_evidence())
    assert found.outcome == "cannot_tell"
    assert "A baseline of the current settings" in found.conclusion
    assert all(s.run for s in found.steps if s.verdict == "cannot_tell")


def test_an_invalid_measurement_comes_first() -> None:
    found = memory(make_evidence(invalid()))
    assert found.outcome == "cause"
    assert found.conclusion.startswith("The measurement is invalid: another process used")


def test_another_process_on_the_device() -> None:
    seen = Validity(
        checks=(
            ValidityCheck(
                id="foreign_gpu_processes", verdict="warn", message="1 process held 8 GiB", value=1
            ),
        )
    )
    on_device = make_baseline_result(memory_kind="cuda_reserved")
    found = step("others", make_trial(on_device, validity=seen))
    assert found.verdict == "fail"
    assert "1 process held 8 GiB" in found.answer
    assert step("others", make_trial(on_device)).verdict == "cannot_tell"
    assert step("others", make_current()).verdict == "pass"


def test_weights_wider_than_the_checkpoint() -> None:
    wide = make_trial(make_baseline_result("float32"), settings=EngineSettings(dtype="float32"))
    found = step("weights", wide)
    assert (found.verdict, found.cause) == (
        "fail",
        "Weights are held in float32, wider than the checkpoint's bfloat16",
    )


def test_weights_at_the_tolerance_and_above() -> None:
    own = make_shape().weight_bytes("bfloat16")
    for factor, verdict in ((1.05, "pass"), (1.06, "fail")):
        loaded = make_loaded("bfloat16", stored_weight_bytes=int(own * factor))
        assert step("weights", make_current(loaded=loaded)).verdict == verdict, factor
    assert step("weights", make_current(), shape=None).verdict == "cannot_tell"


def test_a_cache_above_its_formula() -> None:
    assert step("cache", make_current(), make_kv_trial()).verdict == "pass"
    large = step("cache", make_current(), make_kv_trial(bytes_per_token=2 * 23_040))
    assert large.verdict == "fail"
    assert "static cache" in (large.fix or "")
    assert step("cache", make_current()).verdict == "cannot_tell"


def test_a_reserved_cache_that_the_load_does_not_use() -> None:
    for peak, verdict in ((0.49, "fail"), (0.5, "pass")):
        trial = make_current(server=make_counters(kv_peak_frac=peak))
        assert step("cache", trial).verdict == verdict, peak
    cause = step("cache", make_current(server=make_counters(kv_peak_frac=0.1))).cause
    assert cause is not None
    assert "by design, not by need" in cause


def test_activations_that_grow_beyond_the_formula() -> None:
    cells = (make_cell(1, 32), make_cell(4, 64, peak_memory_bytes=30e9))
    assert step("activations", make_current(cells=cells)).verdict == "fail"
    assert step("activations", make_current()).verdict == "pass"
    bare = (make_cell(1, 32, peak_memory_bytes=None), make_cell(4, 64))
    assert step("activations", make_current(cells=bare)).verdict == "cannot_tell"


def test_graphs_are_compared_where_only_they_differ() -> None:
    on = EngineSettings(cuda_graphs=True)
    off = EngineSettings(cuda_graphs=False)
    spec = make_study_spec().model_copy(update={"engine": "vllm"})
    fields = {"spec": spec, "device": make_device("gpu")}
    for without, verdict in ((9.6e9, "pass"), (9.4e9, "fail")):
        trials = (
            make_trial(make_baseline_result(peak_memory_bytes=10e9), settings=on),
            make_trial(
                make_baseline_result(peak_memory_bytes=without),
                ordinal=2,
                role="variant",
                settings=off,
            ),
        )
        assert step("graphs", *trials, **fields).verdict == verdict, without
    assert step("graphs", trials[0], **fields).verdict == "cannot_tell"
    assert step("graphs", make_current()).verdict == "pass"


def test_a_leak_and_an_unexplained_peak_are_the_rules_answers() -> None:
    leaking = step("leak", make_current(), make_kv_trial(details=held(0, 5e6, 1e7, 1.5e7)))
    assert (leaking.verdict, leaking.rule_id) == ("fail", "kv-cache-leak")
    rest = step("rest", make_current(peak_memory_bytes=15e9))
    assert (rest.verdict, rest.rule_id) == ("fail", "memory-above-formula")


def test_several_causes_name_the_first_and_list_the_others() -> None:
    wide = make_trial(
        make_baseline_result("float32", peak_memory_bytes=15e9),
        settings=EngineSettings(dtype="float32"),
    )
    found = memory(make_evidence(wide))
    assert found.conclusion.startswith("Weights are held in float32")
    assert "Also failing: “Do weights, cache and overheads explain the peak?”" in found.conclusion


def test_a_simulated_study_sees_no_host() -> None:
    spec = make_study_spec(engine="simulated", model=SimulatedModel(name="qwen3-32b-2xh100"))
    found = memory(make_evidence(make_current(), spec=spec))
    assert "Intel" not in found.model_dump_json()
    assert next(s for s in found.steps if s.id == "weights").verdict == "cannot_tell"


def test_every_diagnosis_answers_an_empty_study() -> None:
    for name, walk in DIAGNOSES.items():
        found = walk(make_evidence())
        assert found.id == name
        assert found.outcome == "cannot_tell"
