from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gpuagent import text
from gpuagent.errors import ConfigError
from gpuagent.load.plan import Asked, FilePrompts, Planner, TextPrompts, read_lengths


def planner(seed: int = 0, **options) -> Planner:
    given = {
        "input_tokens": read_lengths("40"),
        "output_tokens": read_lengths("uniform:2:6"),
        "prompts": TextPrompts(text.built_in().text),
        "asked": Asked("m"),
        "seed": seed,
    }
    return Planner(**given | options)


def test_the_seed_decides_everything_and_another_seed_shares_no_prompt() -> None:
    times = [0.1 * i for i in range(50)]
    first, again, other = (planner(s).at_times(times) for s in (1, 1, 2))
    assert first == again
    prompts = {json.loads(r.body)["prompt"] for r in first}
    assert len(prompts) == 50
    assert not prompts & {json.loads(r.body)["prompt"] for r in other}
    assert {r.output_tokens for r in first} == {2, 3, 4, 5, 6}
    assert [r.intended_s for r in first] == times


def test_bodies_ask_for_a_stream_with_usage() -> None:
    body = json.loads(planner().next().body)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["ignore_eos"] is True
    chat = planner(asked=Asked("m", "chat", ignore_eos=False)).next()
    asked = json.loads(chat.body)
    assert asked["messages"][0]["role"] == "user"
    assert "ignore_eos" not in asked


def test_token_ids_have_exactly_the_length_asked_for() -> None:
    ids = TextPrompts("a b c d", encode=lambda t: [ord(c) for c in t], shared_prefix_frac=0.5)
    rng = random.Random(0)
    first, second = ids.take(100, rng), ids.take(100, rng)
    assert len(first) == len(second) == 100
    assert first[:50] == second[:50]
    assert first[50:66] != second[50:66]
    with pytest.raises(ConfigError, match="chat requests need text"):
        planner(prompts=ids, asked=Asked("m", "chat")).next()


def test_prompts_of_a_file_keep_their_own_length(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "one two three"}\n\n{"messages": [{"content": "four five six"}]}\n')
    made = planner(prompts=FilePrompts(file)).next()
    assert json.loads(made.body)["prompt"] in ("one two three", "four five six")
    assert made.input_tokens == 4
    file.write_text('{"prompt": 3}\n')
    with pytest.raises(ConfigError, match="line 1"):
        FilePrompts(file)


def test_lengths(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("5\n9\n")
    rng = random.Random(0)
    assert read_lengths("7")(rng) == 7
    assert {read_lengths(f"file:{file}")(rng) for _ in range(50)} == {5, 9}
    drawn = [read_lengths("lognormal:100:200")(rng) for _ in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("wrong", ["", "0", "uniform:9:2", "lognormal:10", "file:/nowhere", "x:1"])
def test_a_wrong_length_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError):
        read_lengths(wrong)
