"""The estimate command: promised keys, exit codes, one sentence per mistake, batches."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from advisor.cli.main import main

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 25600,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_json_holds_the_promised_keys(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["estimate", str(config), "--gpu", "H100 SXM", "--tp", "2", "--json"]
    assert main(args) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["params_total"] == 32_762_123_264
    assert result["kv_bytes_per_token"] == 262_144
    assert result["fits"] is True
    assert set(result["tpot_s"]) == {"value", "low", "high"}
    assert result["basis"] == "calibrated"


def test_a_folder_a_file_and_a_known_name_agree(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for model in (str(config), str(config.parent), "Qwen/Qwen3-32B"):
        assert main(["estimate", model, "--gpu", "h100_sxm", "--tp", "2", "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1] == answers[2]


def test_text_output_shows_fit_memory_and_units(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", str(config), "--gpu", "H100 SXM"]) == 0
    text = capsys.readouterr().out
    assert "Dense, 64 layers, 32.76 B parameters" in text
    for word in ("weights", "KV cache", "activation peak", "graphs", "runtime overhead", "TTFT"):
        assert word in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["estimate", "--gpu", "H100"], "name a model"),
        (["estimate", "Qwen/Qwen3-8B"], "--gpu is missing"),
        (["estimate", "Qwen/Qwen3-8B", "--gpu", "H1000"], "close names"),
        (["estimate", "nobody/nothing", "--gpu", "H100"], "not in the catalogue"),
        (["estimate", "/tmp", "--gpu", "H100"], "without a config.json"),
        (["estimate", "Qwen/Qwen3-8B", "--gpu", "H100", "--tp", "-2"], "tp"),
        (["estimate", "Qwen/Qwen3-8B", "--gpu", "H100", "--quant", "magic"], "quant"),
        (["estimate", "Qwen/Qwen3-8B", "--gpu", "H100", "--rate", "1e9"], "queue"),
        (["estimate", "Qwen/Qwen3-8B", "--gpu", "H100", "--price", "0"], "--price"),
        (["estimate", "--batch", "nothing.csv", "--out", "out.csv"], "not a file"),
        (["estimate", "--batch", "nothing.csv"], "--out"),
    ],
)
def test_mistakes_exit_2_with_one_sentence(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "not valid JSON"),
        ('{"_class_name": "FluxPipeline"}', "diffusion"),
        ('{"model_type": "bert"}', "encoder"),
        ('{"model_type": "llama", "num_hidden_layers": 2}', "hidden_size"),
        (json.dumps({**CONFIG, "num_hidden_layers": -3}), "num_hidden_layers"),
        (json.dumps({**CONFIG, "num_attention_heads": 60, "num_key_value_heads": 7}), "divide"),
        (json.dumps({**CONFIG, "quantization_config": {"quant_method": "x"}}), "quant_method"),
    ],
)
def test_bad_configs_exit_2_naming_the_key(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main(["estimate", str(path), "--gpu", "H100 SXM"]) == 2
    assert words in capsys.readouterr().err


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


ROW = {
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "backend": "vllm",
    "backend_version": "0.12.0",
    "precision": "bf16",
    "isl": "1024",
    "osl": "512",
    "batch_size": "16",
    "tp_size": "4",
    "pp_size": "1",
}


def test_a_batch_keeps_the_order_and_marks_the_rows_it_cannot_read(tmp_path: Path) -> None:
    source, target = tmp_path / "rows.csv", tmp_path / "out.csv"
    (tmp_path / "local.json").write_text(json.dumps(CONFIG))
    _write(
        source,
        [
            ROW,
            {**ROW, "model_path": "local.json"},
            {**ROW, "isl": "many"},
            {**ROW, "system": "nothing"},
            {**ROW, "precision": "fp3"},
        ],
    )
    assert main(["estimate", "--batch", str(source), "--out", str(target)]) == 0
    with target.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert float(rows[0]["tpot_s_low"]) < float(rows[0]["tpot_s"]) < float(rows[0]["tpot_s_high"])
    assert rows[0]["tpot_s"] == rows[1]["tpot_s"]
    assert rows[0]["in_domain"] == "true"
    assert [bool(row["error"]) for row in rows] == [False, False, True, True, True]
    assert "isl" in rows[2]["error"]
    assert rows[2]["tpot_s"] == ""


def test_a_batch_row_equals_the_single_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "rows.csv", tmp_path / "out.csv"
    _write(source, [ROW])
    assert main(["estimate", "--batch", str(source), "--out", str(target)]) == 0
    capsys.readouterr()
    single = ["estimate", ROW["model_path"], "--gpu", "H100 SXM", "--tp", "4", "--isl", "1024"]
    single += ["--osl", "512", "--concurrency", "16", "--engine-version", "0.12.0", "--json"]
    assert main(single) == 0
    result = json.loads(capsys.readouterr().out)
    with target.open(newline="") as handle:
        row = next(csv.DictReader(handle))
    assert float(row["ttft_s"]) == result["ttft_s"]["value"]
    assert float(row["usd_per_million_tokens"]) == result["usd_per_million_tokens"]["value"]


def test_a_batch_without_the_needed_columns_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("a,b\n1,2\n")
    target = tmp_path / "out.csv"
    assert main(["estimate", "--batch", str(source), "--out", str(target)]) == 2
    assert "model_path" in capsys.readouterr().err
    assert not target.exists()
    assert list(tmp_path.iterdir()) == [source]
