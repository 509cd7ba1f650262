from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent import environment
from gpuagent.wire import WIRE_VERSION, EngineSettings


def test_the_hello_names_the_host_versions_engines_and_experiments(tmp_path: Path) -> None:
    hello = environment.build_hello([tmp_path])
    assert hello.wire_version == WIRE_VERSION
    assert hello.host.logical_cores >= 1
    assert hello.host.memory_bytes > 2**28
    assert hello.versions["python"].startswith("3.")
    assert hello.engines == ("transformers", "simulated")
    assert hello.models == ()


def test_architectures_are_those_of_transformers_itself() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    assert set(environment.architectures()) == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def test_a_missing_model_root_and_a_missing_package_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environment.ENGINE_PACKAGES, "transformers", ("no_such_package",))
    hello = environment.build_hello([tmp_path / "absent"])
    assert hello.engines == ("simulated",)
    assert any("no_such_package" in problem for problem in hello.problems)
    assert any("absent does not exist" in problem for problem in hello.problems)


def test_a_snapshot_holds_the_settings_and_what_the_engine_said() -> None:
    snapshot = environment.snapshot(
        device="cpu",
        engine_versions={"torch": "9.9"},
        threads=3,
        settings=EngineSettings(dtype="bfloat16", kv_cache=False),
    )
    assert snapshot.versions["torch"] == "9.9"
    assert snapshot.settings["dtype"] == "bfloat16"
    assert snapshot.settings["kv_cache"] == "False"
    assert snapshot.threads == 3
