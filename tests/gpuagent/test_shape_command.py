"""`python -m gpuagent shape`: parameters by the transformers class, where no formula is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.shapes import shape_from_config
from gpuagent.__main__ import main
from tests.gpuagent.fakes import TINY_CONFIG

# A class that transformers knows and the closed forms do not.
BIOGPT: dict[str, Any] = {
    "model_type": "biogpt",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "intermediate_size": 64,
    "max_position_embeddings": 30,
}


def shown(folder: Path, config: Any, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (folder / "config.json").write_text(json.dumps(config))
    assert main(["shape", str(folder)]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_known_architecture_counts_as_the_formula_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = shown(tmp_path, TINY_CONFIG, capsys)
    assert answer["params"] == shape_from_config(TINY_CONFIG).params_total
    assert answer["weight_bytes"]["bfloat16"] == 2 * answer["params"]


def test_an_architecture_without_a_formula_is_counted_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = shape_from_config(BIOGPT)
    assert not shape.known
    assert shape.params_bounds is not None
    low, high = shape.params_bounds
    answer = shown(tmp_path, BIOGPT, capsys)
    attention, norms, mlp = 4 * (32 * 32 + 32), 4 * 32, 2 * 32 * 64 + 64 + 32
    assert answer["architecture"] == "BioGptForCausalLM"
    assert answer["params"] == (64 + 32) * 32 + 2 * (attention + norms + mlp) + 2 * 32
    assert low <= answer["params"] <= high


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no config.json"),
        ("[1]", "is no config.json"),
        ('{"model_type": "zorp"}', "does not know zorp"),
        ('{"hidden_size": 4}', "no model_type"),
        ('{"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}', "auto_map"),
    ],
)
def test_what_cannot_be_counted_is_one_sentence(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert main(["shape", str(tmp_path / "config.json")]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shape", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
