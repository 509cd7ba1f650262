"""The real engine on a two-layer Llama with random weights, on the CPU."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpuagent.engines import create_engine
from gpuagent.engines.transformers_engine import TransformersEngine
from gpuagent.errors import AgentError
from gpuagent.models import ResolvedModel, resolve
from gpuagent.wire import ConfigModel, EngineSettings, FailureReason, LocalModel
from tests.gpuagent.fakes import TINY_CONFIG, write_tiny_folder

ONE_THREAD = EngineSettings(threads=1)
PROMPT = [5, 6, 7, 8, 9, 10, 11, 12]


def no_tick() -> None:
    return


def load(model: ResolvedModel, settings: EngineSettings = ONE_THREAD) -> TransformersEngine:
    engine = create_engine("transformers")
    assert isinstance(engine, TransformersEngine)
    engine.device = torch.device("cpu")
    engine.memory_kind = "process_rss"
    engine.load(model, settings, seed=0, tick=no_tick)
    return engine


def random_model(**changes: Any) -> ResolvedModel:
    return resolve(ConfigModel(name="tiny", config={**TINY_CONFIG, **changes}), [])


@pytest.fixture(scope="module")
def engine() -> Iterator[TransformersEngine]:
    loaded = load(random_model())
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("models") / "tiny")


def generated(engine: TransformersEngine, *, use_cache: bool, steps: int = 6) -> list[list[int]]:
    batch = engine.prefill([PROMPT, PROMPT[::-1]], use_cache=use_cache)
    for _ in range(steps - 1):
        engine.step(batch)
    return [row[len(PROMPT) :] for row in engine.tokens(batch)]


def test_tokens_with_and_without_the_cache_are_the_same(folder: Path) -> None:
    engine = load(resolve(LocalModel(name="tiny"), [folder.parent]))
    assert generated(engine, use_cache=True) == generated(engine, use_cache=False)


def test_tokens_are_those_of_transformers_own_greedy_decoding(folder: Path) -> None:
    engine = load(resolve(LocalModel(name="tiny"), [folder.parent]))
    batch = engine.prefill([PROMPT], use_cache=True)
    for _ in range(5):
        engine.step(batch)
    expected = engine._model.generate(
        torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False, eos_token_id=None
    )
    assert engine.tokens(batch) == expected.tolist()


def test_cache_bytes_are_those_of_the_formula(engine: TransformersEngine) -> None:
    batch = engine.prefill([PROMPT, PROMPT], use_cache=True)
    layers, kv_heads, head_dim, itemsize = 2, 2, 16, 4
    per_token = 2 * layers * kv_heads * head_dim * itemsize
    assert engine.cache_bytes(batch) == 2 * len(PROMPT) * per_token
    engine.step(batch)
    assert engine.cache_bytes(batch) == 2 * (len(PROMPT) + 1) * per_token
    engine.release(batch)
    assert engine.cache_bytes(batch) == 0


def test_a_batch_without_a_cache_holds_none(engine: TransformersEngine) -> None:
    batch = engine.prefill([PROMPT], use_cache=False)
    engine.step(batch)
    assert engine.cache_bytes(batch) == 0
    assert batch.length == len(PROMPT) + 2


def test_log_likelihood_is_that_of_a_direct_computation(engine: TransformersEngine) -> None:
    tokens = [index * 7 % 256 for index in range(300)]
    with torch.no_grad():
        logits = engine._model(torch.tensor([tokens])).logits[0, :-1].double()
    expected = -sum(
        torch.log_softmax(row, -1)[token].item()
        for row, token in zip(logits, tokens[1:], strict=True)
    )
    assert engine.negative_log_likelihood(tokens) == pytest.approx(expected, rel=1e-4)


def test_random_weights_follow_the_seed_and_stay_finite() -> None:
    deep = random_model(num_hidden_layers=12)
    first, again = load(deep), load(deep)
    assert generated(first, use_cache=True) == generated(again, use_cache=True)
    assert math.isfinite(first.negative_log_likelihood(PROMPT))


def test_a_tied_head_counts_once() -> None:
    report = create_engine("transformers").load(random_model(), ONE_THREAD, seed=0, tick=no_tick)
    untied = create_engine("transformers").load(
        random_model(tie_word_embeddings=False), ONE_THREAD, seed=0, tick=no_tick
    )
    assert untied.model.params - report.model.params == 256 * 64
    assert report.model.stored_weight_bytes == report.model.params * 4
    assert report.model.random_weights
    assert report.max_context == 512
    assert report.vocab_size == 256
    assert report.threads == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_dtype_asked_for_is_the_dtype_loaded(folder: Path, dtype: str) -> None:
    settings = EngineSettings.model_validate({"dtype": dtype, "threads": 1})
    engine = load(resolve(LocalModel(name="tiny"), [folder.parent]), settings)
    assert str(engine._model.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_asked_for_is_the_one_that_runs(attention: str) -> None:
    settings = EngineSettings.model_validate({"attention": attention, "threads": 1})
    engine = create_engine("transformers")
    report = engine.load(random_model(), settings, seed=0, tick=no_tick)
    assert report.model.attention == attention


def test_without_a_tokenizer_there_is_no_text(engine: TransformersEngine) -> None:
    assert engine.encode("some text") is None


def test_the_read_bandwidth_is_of_a_plausible_size(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuagent.engines.bandwidth.CPU_BYTES", 64 * 2**20)
    assert 1e8 < engine.read_bandwidth_bytes_s(no_tick) < 1e13


def test_memory_is_read_and_its_peak_is_not_below_it(engine: TransformersEngine) -> None:
    engine.reset_peak_memory()
    held = engine.memory_bytes()
    peak = engine.peak_memory_bytes()
    assert held is not None
    assert peak is not None
    assert 50e6 < held <= peak * 1.01


# --- refusals ----------------------------------------------------------------------------------


def refused(model: ResolvedModel, settings: EngineSettings = ONE_THREAD) -> AgentError:
    with pytest.raises(AgentError) as caught:
        load(model, settings)
    return caught.value


def test_an_unknown_architecture_is_unsupported() -> None:
    error = refused(random_model(model_type="no_such_model"))
    assert error.reason is FailureReason.MODEL_UNSUPPORTED
    assert "no_such_model" in error.message


def test_a_config_without_a_type_is_unsupported() -> None:
    model = resolve(ConfigModel(name="bare", config={"hidden_size": 64}), [])
    assert refused(model).reason is FailureReason.MODEL_UNSUPPORTED


def test_an_encoder_is_unsupported() -> None:
    config = {"model_type": "vit", "hidden_size": 64}
    error = refused(resolve(ConfigModel(name="vit", config=config), []))
    assert error.reason is FailureReason.MODEL_UNSUPPORTED


def test_a_config_that_contradicts_itself_is_broken() -> None:
    error = refused(random_model(hidden_size=-3))
    assert error.reason is FailureReason.MODEL_BROKEN


def test_weights_that_do_not_fit_are_refused_before_anything_is_allocated() -> None:
    huge = random_model(hidden_size=65_536, intermediate_size=262_144, num_attention_heads=64)
    error = refused(huge)
    assert error.reason is FailureReason.OUT_OF_MEMORY
    assert "GiB" in error.message
    assert "are free" in error.message


def test_a_failed_allocation_is_out_of_memory(engine: TransformersEngine) -> None:
    # 2**47 bytes exceed the address space, so the allocator refuses without touching a page.
    def allocate(*_: Any, **__: Any) -> None:
        torch.empty(2**47, dtype=torch.uint8)

    original = engine._model.forward
    engine._model.forward = allocate
    try:
        with pytest.raises(AgentError) as caught:
            engine.prefill([PROMPT], use_cache=False)
    finally:
        engine._model.forward = original
    assert caught.value.reason is FailureReason.OUT_OF_MEMORY


def test_missing_tensors_are_refused_and_never_filled_with_random_numbers(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "holey")
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    error = refused(resolve(LocalModel(name="holey"), [tmp_path]))
    assert error.reason is FailureReason.MODEL_BROKEN
    assert "layers.2" in error.message


def test_tensors_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "bent")
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] = 96
    (folder / "config.json").write_text(json.dumps(config))
    assert refused(resolve(LocalModel(name="bent"), [tmp_path])).reason is (
        FailureReason.MODEL_BROKEN
    )


def test_a_torn_weight_file_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "torn")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert refused(resolve(LocalModel(name="torn"), [tmp_path])).reason is (
        FailureReason.MODEL_BROKEN
    )


def test_a_pickled_folder_is_refused_and_its_pickle_never_opened(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (canary,))

    folder = tmp_path / "root" / "bomb"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG))
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(AgentError) as caught:
        load(resolve(LocalModel(name="bomb"), [tmp_path / "root"]))
    assert caught.value.reason is FailureReason.MODEL_UNSAFE
    assert not canary.exists()


def test_own_code_is_refused_and_never_imported(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    folder = tmp_path / "root" / "own"
    folder.mkdir(parents=True)
    config = {**TINY_CONFIG, "model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"x")
    (folder / "own.py").write_text(f"open({str(canary)!r}, 'w')")
    with pytest.raises(AgentError) as caught:
        load(resolve(LocalModel(name="own"), [tmp_path / "root"]))
    assert caught.value.reason is FailureReason.MODEL_UNSAFE
    assert not canary.exists()
