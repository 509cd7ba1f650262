"""The knob table: names that people look for, what a study says of each, and the page of docs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.exports.knob_docs import knobs_markdown
from advisor.exports.knob_lines import KnobLine, knob_lines
from advisor.exports.knob_table import KNOBS
from advisor.knobs import KNOB_NAMES
from advisor.rules.engine import evaluate
from advisor.verdict import study_verdict
from gpuagent.wire import EngineSettings
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_trial,
    make_variant,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "knobs.md"


def lines(*trials: object, **fields: object) -> dict[str, KnobLine]:
    evidence = make_evidence(*trials, **fields)  # type: ignore[arg-type]
    findings = evaluate(evidence)
    found = knob_lines(evidence, study_verdict(evidence, findings), findings)
    return {line.knob: line for line in found}


@pytest.mark.parametrize(
    "name",
    [
        "cache block size",
        "max cache length",
        "KV heads",
        "attention dropout",
        "tensor parallel degree",
        "pipeline parallel degree",
        "max batch size",
        "prefill chunk size",
        "GPU memory fraction",
        "swap space",
        "speculative decoding",
    ],
)
def test_a_name_from_a_tutorial_leads_to_a_flag_or_to_the_reason(name: str) -> None:
    (row,) = (row for row in KNOBS if name in row.tutorial)
    for setting in (row.vllm, row.sglang):
        assert setting.text.startswith(("--", "not a serving setting, because "))


def test_every_row_has_names_of_its_own() -> None:
    assert {row.knob for row in KNOBS} <= set(KNOB_NAMES)
    for names in ([row.name for row in KNOBS], [n for row in KNOBS for n in row.tutorial]):
        assert len({name.lower() for name in names}) == len(names)


def test_a_changed_setting_stands_first_with_its_finding() -> None:
    found = lines(make_current(), make_variant())
    first = next(iter(found.values()))
    assert (first.knob, first.today, first.advised, first.changed) == (
        "dtype",
        "bfloat16",
        "float32",
        True,
    )
    assert first.reason.startswith("Serve in float32")


def test_a_setting_that_did_not_help_says_where_it_was_tried() -> None:
    slower = make_trial(
        make_baseline_result(itl_s=0.06),
        ordinal=2,
        role="variant",
        settings=EngineSettings(dtype="bfloat16", attention="eager"),
    )
    found = lines(make_current(itl_s=0.03), slower)
    assert found["attention"].reason == "Tried eager in trial 2; not advised."
    assert found["threads"].reason == "Not tried."
    assert "no such setting" in found["max_running"].reason
    assert found["kv_heads"].today == "3"


def test_without_trials_or_shape_the_table_still_stands() -> None:
    found = lines(shape=None)
    assert set(found) == {row.knob for row in KNOBS}
    assert not any(line.changed for line in found.values())
    assert found["kv_heads"].today is None


def test_the_page_of_docs_is_the_tables() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(knobs_markdown())
    assert PAGE.read_text() == knobs_markdown(), "UPDATE_GOLDEN=1 writes it anew"
