"""Models known by name give the same shape as their published config."""

from __future__ import annotations

import csv

import pytest

from advisor.catalog import UnknownNameError, find_model, list_models
from advisor.shapes import read_config, shape_from_config
from tests.shared_data import SHARED, needs_shared


def test_every_known_model_has_a_shape_and_a_source() -> None:
    for name in list_models():
        known = find_model(name)
        assert known.source, name
        assert shape_from_config(known.config).known, name


@pytest.mark.parametrize(
    ("asked", "found", "weight_format"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B", ""),
        ("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3", ""),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-ai/DeepSeek-V3", "nvfp4"),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B", "fp8"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B", ""),
        ("someone/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B", "awq"),
    ],
)
def test_variants_take_the_shape_of_their_base(asked: str, found: str, weight_format: str) -> None:
    known = find_model(asked)
    assert (known.id, known.weight_format) == (found, weight_format)


def test_an_unknown_model_lists_close_names_and_fetches_nothing() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_model("Qwen/Qwen3-33B")
    assert any(name.startswith("Qwen/Qwen3") for name in caught.value.suggestions)


@needs_shared
def test_known_models_equal_their_full_configs() -> None:
    assert SHARED is not None
    folder = SHARED / "data" / "model-configs"
    known = set(list_models())
    checked = 0
    with (folder / "INDEX.csv").open(newline="") as handle:
        for row in csv.DictReader(handle):
            if row["model"] not in known:
                continue
            full = shape_from_config(read_config(folder / row["file"]))
            brief = shape_from_config(find_model(row["model"]).config)
            assert brief.params_total == full.params_total, row["model"]
            assert brief.weight_bytes() == full.weight_bytes(), row["model"]
            assert brief.groups == full.groups, row["model"]
            checked += 1
    assert checked > 50
