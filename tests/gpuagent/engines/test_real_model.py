"""SmolLM2-135M-Instruct, the demo model: skipped with the reason where its package is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent import demo_model, text
from gpuagent.engines.transformers_engine import TransformersEngine
from gpuagent.experiments.quality import measure_perplexity
from gpuagent.models import resolve, scan_models
from gpuagent.wire import EngineSettings, LocalModel
from tests.shared_data import SHARED, needs_shared

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root() -> Path:
    """A cache that outlives the test run: the conversion takes half a minute."""
    cache = os.environ.get("ADVISOR_MODEL_CACHE")
    folder = Path(cache) if cache else Path.home() / ".cache" / "gpuagent" / "models"
    try:
        demo_model.prepare(folder)
    except demo_model.DemoModelError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(scope="module")
def engine(root: Path) -> Iterator[TransformersEngine]:
    loaded = TransformersEngine()
    model = resolve(LocalModel(name=demo_model.NAME), [root])
    loaded.load(model, EngineSettings(), seed=0, tick=lambda: None)
    yield loaded
    loaded.close()


def test_the_converted_folder_is_usable_and_making_it_again_changes_nothing(root: Path) -> None:
    (found,) = [m for m in scan_models([root]) if m.name == demo_model.NAME]
    assert found.problem is None
    assert found.weights == "safetensors"
    before = (root / demo_model.NAME / "config.json").stat().st_mtime_ns
    assert demo_model.prepare(root) == root / demo_model.NAME
    assert (root / demo_model.NAME / "config.json").stat().st_mtime_ns == before
    assert not list(root.glob(f".{demo_model.NAME}-*"))


def test_it_knows_the_capital_of_france(engine: TransformersEngine) -> None:
    prompt = engine.encode("The capital of France is")
    assert prompt is not None
    batch = engine.prefill([prompt], use_cache=True)
    assert engine.decode(engine.tokens(batch)[0][len(prompt) :]) == " Paris"


def test_its_size_and_cache_are_those_of_its_config(engine: TransformersEngine) -> None:
    batch = engine.prefill([[1] * 64], use_cache=True)
    # 30 layers, 3 KV heads of 64, keys and values, 2 bytes.
    assert engine.cache_bytes(batch) == 64 * 2 * 30 * 3 * 64 * 2
    assert sum(p.numel() for p in set(engine._model.parameters())) == 134_515_008


@needs_shared
def test_its_perplexity_on_wikitext_is_that_of_a_working_model(
    root: Path, engine: TransformersEngine
) -> None:
    assert SHARED is not None
    passage = text.load(str(SHARED / "data" / "wikitext-2" / "test.txt"))
    report = TransformersEngine().load(
        resolve(LocalModel(name=demo_model.NAME), [root]),
        EngineSettings(),
        seed=0,
        tick=lambda: None,
    )
    value, reason = measure_perplexity(
        engine, report, passage, engine.encode(passage.text[:6000]), tokens=1024, tick=lambda: None
    )
    assert reason is None
    assert value is not None
    assert value.text == "wikitext-2/test.txt"
    # A damaged conversion has hundreds; the vocabulary's uniform value is 49,152.
    assert 10 < value.value < 60


@pytest.mark.services  # half a minute of dequantising: too long for every run of the suite
def test_a_gguf_folder_loads_as_it_is(tmp_path: Path) -> None:
    try:
        source = demo_model.gguf_path()
    except demo_model.DemoModelError as error:
        pytest.skip(str(error))
    folder = tmp_path / "root" / "smol-gguf"
    folder.mkdir(parents=True)
    os.link(source, folder / source.name) if source.stat().st_dev == folder.stat().st_dev else (
        folder / source.name
    ).write_bytes(source.read_bytes())
    engine = TransformersEngine()
    model = resolve(LocalModel(name="smol-gguf"), [tmp_path / "root"])
    report = engine.load(model, EngineSettings(), seed=0, tick=lambda: None)
    prompt = engine.encode("The capital of France is")
    assert prompt is not None
    batch = engine.prefill([prompt], use_cache=True)
    assert engine.decode(engine.tokens(batch)[0][len(prompt) :]) == " Paris"
    assert report.model.params > 0
    assert not report.model.random_weights
