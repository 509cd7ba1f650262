"""Every config of the shared collection: parameters, cache bytes and state, exact."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from advisor.shapes import ModelShape, read_config, shape_from_config
from tests.shared_data import SHARED, needs_shared

FOLDER = SHARED / "data" / "model-configs" if SHARED else None


def _rows() -> list[dict[str, str]]:
    if FOLDER is None:
        return []
    with (FOLDER / "INDEX.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


ROWS = _rows()
pytestmark = needs_shared


def _shape(row: dict[str, str]) -> ModelShape:
    assert FOLDER is not None
    return shape_from_config(read_config(FOLDER / row["file"]))


def _cases(column: str) -> list[Any]:
    return [pytest.param(row, id=row["file"]) for row in ROWS if row[column]]


@pytest.mark.parametrize("row", _cases("params_computed"))
def test_parameters_equal_the_count_of_the_class(row: dict[str, str]) -> None:
    shape = _shape(row)
    assert shape.params_total == int(row["params_computed"])
    assert sum(shape.params_by_group().values()) == shape.params_total


@pytest.mark.parametrize("row", _cases("active_computed"))
def test_active_parameters_leave_out_the_experts_that_are_not_chosen(row: dict[str, str]) -> None:
    assert _shape(row).params_active == int(row["active_computed"])


@pytest.mark.parametrize("row", _cases("kv_bytes_per_token_bf16"))
def test_cache_bytes_per_token_are_exact(row: dict[str, str]) -> None:
    shape = _shape(row)
    assert shape.kv_bytes_per_token() == int(row["kv_bytes_per_token_bf16"])
    growing = int(row["kv_growth_bytes_per_token_beyond_window"])
    assert shape.kv_bytes_per_token_growing() == growing
    assert shape.state_bytes_per_seq() == int(row["fixed_state_bytes_per_seq_bf16"] or 0)


@pytest.mark.parametrize("row", _cases("attention"))
def test_attention_is_named_as_in_the_index(row: dict[str, str]) -> None:
    shape = _shape(row)
    assert shape.attention == row["attention"]
    assert shape.known
    if row["kv_heads_effective"]:
        assert shape.kv_heads == int(row["kv_heads_effective"])


def test_models_without_a_class_match_their_published_counts() -> None:
    published = {
        # safetensors headers of the model pages
        "Qwen__Qwen-7B.json": 7_721_324_544,
        "THUDM__chatglm3-6b.json": 6_243_584_000,
        "internlm__internlm2-7b.json": 7_737_708_544,
        "nvidia__Llama-3_3-Nemotron-Super-49B-v1.json": 49_867_145_216,
        "tiiuae__Falcon-H1-0.5B-Base.json": 521_411_104,
    }
    by_file = {row["file"]: row for row in ROWS}
    found = {name: _shape(by_file[name]).params_total for name in published}
    assert found == published


def test_kimi_is_counted_by_architecture_not_by_packed_integers() -> None:
    row = next(row for row in ROWS if row["model"] == "moonshotai/Kimi-K2.5")
    shape = _shape(row)
    # The published header also holds one routing bias per expert and layer: 60 × 384.
    assert shape.params_total == int(row["params_published"]) - 60 * 384
    assert shape.weight_bytes() < 0.65 * 1.03e12
