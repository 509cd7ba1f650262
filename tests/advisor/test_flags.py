"""Launch commands against the catalogue of an engine's version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cli.main import main
from advisor.exports.launch import launch_lines
from advisor.flags import CommandError, Problem, catalogue, check, read_command, versions
from gpuagent.wire import EngineSettings, SimulatedModel

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "engines"


def problems(text: str, version: str | None = None) -> list[Problem]:
    command = read_command(text)
    assert command.engine is not None
    return check(command, catalogue(command.engine, version))


def said(text: str, version: str | None = None) -> list[str]:
    return [
        f"{p.level}: {p.flag} {p.message} {p.fix or ''}".strip() for p in problems(text, version)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve Qwen/Qwen3-8B --max-num-seqs 256 --gpu-memory-utilization 0.9",
        "vllm serve m --max-model-len 8k --max-num-batched-tokens 8K -tp 2 -O3",
        "vllm serve m --max_num_seqs=8 --no-enforce-eager --disable-chunked-prefill",
        "vllm serve m --compilation-config '{\"level\": 3}' --compilation-config.level 2",
        "vllm serve m --max-model-len auto --max-num-scheduled-tokens None",
        "HF_HUB_OFFLINE=1 python -m vllm.entrypoints.openai.api_server --model m \\\n  --port 8000",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.33.0 --model m --dtype bfloat16",
        "vllm serve m --port 8000 > serve.log 2>&1",
        "# today\nvllm serve m",
        "python -m sglang.launch_server --model-path m --tp-size 2 --mem-fraction-static 0.85",
    ],
)
def test_a_command_that_starts_has_no_problem(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "vllm serve m --swap-space 4",
            "error: --swap-space does not exist in vllm 0.33.0.",
        ),
        ("vllm serve m --task embed", "Use --runner / --convert."),
        ("vllm serve m --enforce-eagr", "Did you mean --enforce-eager?"),
        ("vllm serve m --gpu-memory-util 0.9", "only a prefix of --gpu-memory-utilization"),
        ("vllm serve m --max 3", "the parser refuses it"),
        ("vllm serve m --max-num-seqs 1k", "takes a whole number, not 1k"),
        ("vllm serve m --max-num-seqs", "needs a value"),
        ("vllm serve m --gpu-memory-utilization ninety", "takes a number"),
        ("vllm serve m --dtype bf16", "has no value bf16. It takes"),
        ("vllm serve m --kv-cache-dtype fp9", "warning: --kv-cache-dtype has no known value"),
        ("vllm serve m --compilation-config {level:3}", "takes JSON"),
        ("vllm serve m --disable-cascade-attn", "warning: --disable-cascade-attn is deprecated."),
        ("vllm serve m --enable-chunked-prefill false", "false would become the model's name"),
        ("vllm serve m --enforce-eager=true", "Write --enforce-eager alone."),
        ("vllm serve m other --port 1", "stands behind m"),
        ("vllm serve m --port 1 --port 2", "is given twice"),
        ("vllm serve m --gpu-memory-utilization 1.5", "a share of the memory"),
        ("vllm serve m --max-num-seqs 0", "must be 1 or more"),
        (
            "vllm serve m --max-num-seqs 512 --max-num-batched-tokens 256",
            "fewer than --max-num-seqs 512",
        ),
        (
            "vllm serve m --disable-chunked-prefill --max-num-batched-tokens 2048 "
            "--max-model-len 8k",
            "a prompt of 8,000 fits no step",
        ),
        (
            "vllm serve m --enforce-eager --max-cudagraph-capture-size 64",
            "has no effect with --enforce-eager",
        ),
        ("vllm serve m --enable-expert-parallel", "has no effect on one rank"),
        ("sglang serve --model-path m --tp 2", "Use --tp-size."),
        ("sglang serve --model-path m --max_running_requests 3", "refuses underscores"),
        ("sglang serve --model-path m --mem-fraction-static 1.5", "a share of the memory"),
        ("sglang serve --model-path m --cuda-graph-max-bs 8", "Use --cuda-graph-max-bs-decode."),
        ("sglang serve m --port 1", "belongs to no option"),
    ],
)
def test_each_kind_of_mistake_is_named_with_its_fix(text: str, words: str) -> None:
    (only,) = said(text)
    assert words in only


def test_an_unknown_flag_takes_its_value_along() -> None:
    assert [p.flag for p in problems("vllm serve m --swap-space 4 --port 8000")] == ["--swap-space"]


def test_versions_differ() -> None:
    assert said("vllm serve m --disable-chunked-prefill", "0.33.0") == []
    assert (
        "does not exist in vllm 0.32.0"
        in said("vllm serve m --disable-chunked-prefill", "0.32.0")[0]
    )


@pytest.mark.parametrize("text", ["hello", "", "vllm serve m --x 'open", "a" * 20_001])
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        read_command(text)


def test_an_unknown_version_names_those_that_are_known() -> None:
    with pytest.raises(KeyError, match=r"0\.33\.0, 0\.32\.0"):
        catalogue("vllm", "9.9")
    assert versions()["sglang"] == ("0.5.23",)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="-abc=. '\"\\{}0k_>|", max_size=60))
def test_any_text_is_checked_or_refused(text: str) -> None:
    try:
        command = read_command(f"vllm serve {text}")
    except CommandError:
        return
    check(command, catalogue("vllm"))
    check(command, catalogue("sglang"))


@pytest.mark.parametrize("version", versions()["vllm"])
@given(
    changes=st.fixed_dictionaries(
        {
            "max_running": st.sampled_from([None, 8, 1024]),
            "max_batched_tokens": st.sampled_from([None, 2048, 16384]),
            "chunked_prefill": st.sampled_from([None, True, False]),
            "memory_share_frac": st.sampled_from([None, 0.6, 0.92]),
            "kv_dtype": st.sampled_from(["auto", "fp8"]),
            "cuda_graphs": st.sampled_from([None, True, False]),
        }
    )
)
@settings(max_examples=60, deadline=None)
def test_every_command_that_is_printed_is_right_for_each_version(
    version: str, changes: dict[str, object]
) -> None:
    lines = launch_lines(
        SimulatedModel(name="qwen3-32b-2xh100"),
        EngineSettings().model_copy(update=changes),
        EngineSettings(),
    )
    assert said("\n".join(line.text for line in lines), version) == []


@pytest.mark.parametrize("engine", ["vllm-0.33.0", "vllm-0.32.0", "sglang-0.5.23"])
def test_the_catalogue_has_every_spelling_of_the_engines_parser(engine: str) -> None:
    source = SHARED / f"{engine}.json"
    if not source.exists():
        pytest.skip(f"{source.name} is not on this machine")
    facts = json.loads(source.read_text(encoding="utf-8"))
    known = catalogue(*engine.split("-"))
    wanted = {
        flag
        for option in facts["options"]
        for flag in (*option["flags"], *option.get("hidden_flags", []))
    }
    assert wanted == set(known.by_flag)


class TestCommandLine:
    def test_errors_exit_1_and_warnings_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["flags", "--check", "vllm serve m --swap-space 4"]) == 1
        assert "error: --swap-space" in capsys.readouterr().out
        assert main(["flags", "--check", "vllm serve m --gpu-memory-util 0.9"]) == 0
        assert "warning" in capsys.readouterr().out

    def test_json_has_the_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["flags", "--json", "--version", "0.32.0", "--check", "vllm serve m"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer == {"engine": "vllm", "version": "0.32.0", "ok": True, "problems": []}

    def test_a_file_and_bare_arguments(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "serve.sh"
        path.write_text("#!/bin/sh\nexec vllm serve m --max-num-seqs 8\n")
        assert main(["flags", "--check", str(path)]) == 0
        assert main(["flags", "--engine", "sglang", "--check", "--tp-size 2"]) == 0
        assert main(["flags", "--engine", "vllm", "--list"]) == 0
        assert "--max-num-seqs" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--check", "hello"],
            ["--check", "--port 1"],
            ["--check", "vllm serve m", "--version", "9"],
        ],
    )
    def test_what_cannot_be_checked_exits_2(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["flags", *arguments]) == 2
        assert "Traceback" not in capsys.readouterr().err
