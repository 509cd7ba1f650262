from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent import text
from gpuagent.errors import AgentError
from gpuagent.wire import FailureReason


def test_the_built_in_passage_is_long_enough_and_always_the_same() -> None:
    passage = text.built_in()
    assert len(passage.text.split()) > 3000
    assert passage.text.startswith("ACT I.")
    assert passage.sha256 == "fe1fb018eda54e89b423e6b5a06660b6ca4f8cd7ef4a18a1373a407ab63faee6"


def test_a_file_is_named_by_its_folder_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "wikitext-2" / "test.txt"
    path.parent.mkdir()
    path.write_text(" = Title = \n Some text .\n")
    passage = text.load(str(path))
    assert passage.name == "wikitext-2/test.txt"
    assert len(passage.sha256) == 64


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no file"), (b"", "empty"), (b"  \n", "empty"), (b"\xff\xfe\x00", "not UTF-8")],
)
def test_a_file_that_cannot_be_used_is_a_field_error(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AgentError, match=words) as caught:
        text.load(str(path))
    assert caught.value.reason is FailureReason.CONFIG_ERROR
    assert caught.value.message.startswith("text_path: ")


def test_a_folder_is_not_a_text(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="no file"):
        text.load(str(tmp_path))


def test_the_agents_own_text_replaces_the_built_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wikitext-2" / "test.txt"
    path.parent.mkdir()
    path.write_text("Robert Boulter is an English actor.")
    monkeypatch.setenv("GPUAGENT_TEXT", str(path))
    assert text.load(None).name == "wikitext-2/test.txt"
    other = tmp_path / "other.txt"
    other.write_text("Something else.")
    assert text.load(str(other)).text == "Something else."
    monkeypatch.setenv("GPUAGENT_TEXT", str(tmp_path / "missing.txt"))
    with pytest.raises(AgentError, match="no file"):
        text.load(None)
