"""The demo model's parts: quality beside speed. Skipped with the reason where it is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuagent import demo_model
from gpuagent.runner import run_trial
from gpuagent.wire import EngineSettings, LocalModel
from gpuagent.wire.inside import (
    AttentionConfig,
    AttentionResult,
    QuantisationConfig,
    QuantisationResult,
)
from gpuagent.wire.trial import ExperimentConfig
from tests.gpuagent.fakes import tiny_spec

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root() -> Path:
    cache = os.environ.get("ADVISOR_MODEL_CACHE")
    folder = Path(cache) if cache else Path.home() / ".cache" / "gpuagent" / "models"
    try:
        demo_model.prepare(folder)
    except demo_model.DemoModelError as error:
        pytest.skip(str(error))
    return folder


def measured(root: Path, config: ExperimentConfig) -> Any:
    spec = tiny_spec(
        model=LocalModel(name=demo_model.NAME),
        settings=EngineSettings(dtype="float32"),
        config=config,
    )
    return run_trial(
        spec, emit=lambda *a, **k: None, should_cancel=lambda: False, model_roots=[root]
    ).measurements


def test_pooled_heads_cost_quality_and_a_wide_window_costs_none(root: Path) -> None:
    config = AttentionConfig(context_tokens=(64,), window=512, perplexity_tokens=128)
    result = measured(root, config)
    assert isinstance(result, AttentionResult)
    own, mqa, window = [v for v in result.variants if v.kind == "structure"]
    assert own.perplexity is not None
    assert mqa.perplexity is not None
    assert window.perplexity is not None
    assert 5 < own.perplexity.value < 200
    assert mqa.perplexity.value > 10 * own.perplexity.value
    # The text is shorter than the window, so nothing is cut.
    assert window.perplexity.value == pytest.approx(own.perplexity.value, rel=1e-4)


@pytest.mark.services
def test_eight_bit_weights_keep_the_perplexity_of_the_original(root: Path) -> None:
    config = QuantisationConfig(
        methods=("bfloat16", "int8_weight_only"),
        prompts=3,
        answer_tokens=4,
        decode_steps=2,
        perplexity_tokens=128,
    )
    result = measured(root, config)
    assert isinstance(result, QuantisationResult)
    base, int8 = result.variants
    assert base.perplexity is not None
    assert int8.perplexity is not None
    assert int8.perplexity.value == pytest.approx(base.perplexity.value, rel=0.05)
    assert sum(int8.agreed_tokens) >= 6
