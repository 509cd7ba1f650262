from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpuagent.errors import AgentError
from gpuagent.models import resolve, scan_models
from gpuagent.wire import ConfigModel, FailureReason, LocalModel

CONFIG: dict[str, Any] = {"model_type": "llama", "hidden_size": 64}


def make(folder: Path, *, config: Any = CONFIG, weights: str | None = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text)
    if weights:
        (folder / weights).write_bytes(b"x" * 100)
    return folder


def problem_of(root: Path, name: str) -> str | None:
    return {model.name: model.problem for model in scan_models([root])}[name]


def test_folders_one_and_two_levels_down_are_found_by_their_names(tmp_path: Path) -> None:
    make(tmp_path / "small")
    make(tmp_path / "org" / "large")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not a model")
    empty, large, small = scan_models([tmp_path])
    assert (large.name, small.name) == ("org/large", "small")
    assert small.config == CONFIG
    assert small.weights == "safetensors"
    assert small.weight_bytes == 100
    assert small.problem is None
    assert (empty.name, empty.problem) == ("empty", "holds no config.json")


def test_a_root_that_is_missing_holds_no_models(tmp_path: Path) -> None:
    assert scan_models([tmp_path / "nowhere"]) == ()


def test_the_first_root_wins_a_doubled_name(tmp_path: Path) -> None:
    make(tmp_path / "a" / "same", config={"model_type": "first"})
    make(tmp_path / "b" / "same", config={"model_type": "second"})
    (found,) = scan_models([tmp_path / "a", tmp_path / "b"])
    assert found.config == {"model_type": "first"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"config": None}, "no config.json"),
        ({"config": "{not json"}, "is not JSON"),
        ({"config": "[1, 2]"}, "not a JSON object"),
        ({"config": '{"a": NaN}'}, "not finite"),
        ({"config": '{"a": ' + "[" * 5000 + "]" * 5000 + "}"}, "JSON"),
        ({"config": json.dumps({"pad": "x" * 1_100_000})}, "more than 1,000,000"),
        ({"weights": None}, "no weights"),
        ({"weights": "pytorch_model.bin"}, "pickled"),
        ({"weights": "model.pt"}, "pickled"),
        ({"config": {**CONFIG, "auto_map": {"AutoModel": "modeling.Own"}}}, "auto_map"),
        ({"config": {"text_config": {"auto_map": {"AutoModel": "x.Y"}}}}, "auto_map"),
        ({"config": {**CONFIG, "_attn_implementation": "someone/kernel"}}, "kernel"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    make(tmp_path / "model", **arguments)
    assert words in (problem_of(tmp_path, "model") or "")


def test_a_gguf_folder_needs_no_config(tmp_path: Path) -> None:
    make(tmp_path / "model", config=None, weights="model.Q4.gguf")
    (found,) = scan_models([tmp_path])
    assert (found.weights, found.problem) == ("gguf", None)


def test_a_tokenizer_with_own_code_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "model")
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["t.Own"]}}')
    assert "tokenizer_config.json has auto_map" in (problem_of(tmp_path, "model") or "")


def test_a_missing_shard_and_one_outside_the_folder_are_named(tmp_path: Path) -> None:
    index = "model.safetensors.index.json"
    missing = make(tmp_path / "missing")
    (missing / index).write_text('{"weight_map": {"a": "model-2.safetensors"}}')
    outside = make(tmp_path / "outside")
    (outside / index).write_text('{"weight_map": {"a": "../../secret.safetensors"}}')
    assert "model-2.safetensors is missing" in (problem_of(tmp_path, "missing") or "")
    assert "outside the folder" in (problem_of(tmp_path, "outside") or "")


def test_a_link_put_into_the_root_is_followed_and_one_deeper_is_refused(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", make(tmp_path / "elsewhere" / "model")
    (root / "org").mkdir(parents=True)
    (root / "linked").symlink_to(elsewhere)
    (root / "org" / "sneaky").symlink_to(elsewhere)
    assert problem_of(root, "linked") is None
    assert "leaves the model root" in (problem_of(root, "org/sneaky") or "")


def test_a_config_that_links_out_of_the_root_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": "hunter2"}')
    folder = make(tmp_path / "root" / "model", config=None)
    (folder / "config.json").symlink_to(secret)
    (found,) = scan_models([tmp_path / "root"])
    assert "leaves the model root" in (found.problem or "")
    assert found.config is None


def test_a_scan_of_many_folders_is_quick(tmp_path: Path) -> None:
    for index in range(100):
        make(tmp_path / f"model-{index:03d}")
    began = time.perf_counter()
    assert len(scan_models([tmp_path])) == 100
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("name", ["../other", "/etc", "model/../../x", "absent"])
def test_a_name_is_looked_up_and_never_joined_to_a_path(tmp_path: Path, name: str) -> None:
    make(tmp_path / "root" / "model")
    make(tmp_path / "other")
    with pytest.raises(AgentError) as caught:
        resolve(LocalModel(name=name), [tmp_path / "root"])
    assert caught.value.reason is FailureReason.MODEL_NOT_FOUND


def test_what_would_run_code_is_refused_as_unsafe(tmp_path: Path) -> None:
    make(tmp_path / "pickled", weights="pytorch_model.bin")
    with pytest.raises(AgentError, match="pickled") as caught:
        resolve(LocalModel(name="pickled"), [tmp_path])
    assert caught.value.reason is FailureReason.MODEL_UNSAFE
    config = {**CONFIG, "auto_map": {"AutoModelForCausalLM": "x.Y"}}
    with pytest.raises(AgentError, match="auto_map") as caught:
        resolve(ConfigModel(name="own", config=config), [])
    assert caught.value.reason is FailureReason.MODEL_UNSAFE


def test_a_usable_folder_resolves_to_its_path(tmp_path: Path) -> None:
    folder = make(tmp_path / "model")
    model = resolve(LocalModel(name="model"), [tmp_path])
    assert model.folder == folder
    assert model.weight_bytes == 100
    assert not model.random_weights
