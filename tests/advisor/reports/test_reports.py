from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import advisor.reports as reports
from advisor.charts import CHARTS
from advisor.evidence import StudyEvidence
from advisor.exports.launch import launch_lines
from advisor.knobs import settings_text
from advisor.reports import EXPORTERS, ReportContext, ReportDocument, report_document
from advisor.reports.as_html import report_css, style_source, to_html
from advisor.reports.markup import Html, el, join
from advisor.rules import engine
from advisor.verdict import study_verdict
from gpuagent.wire import ConfigModel, EngineSettings, LocalModel, SimulatedModel
from gpuagent.wire.serving import ServeConfig
from tests.builders import (
    SMOLLM2_CONFIG,
    make_current,
    make_evidence,
    make_failure,
    make_kv_trial,
    make_served,
    make_study_spec,
    make_trial,
    make_variant,
    make_verification,
)

NOW = datetime(2026, 12, 2, 10, 0, tzinfo=UTC)
MARKUP = "<script>alert('x')</script>"


def report(evidence: StudyEvidence, **context: Any) -> ReportDocument:
    findings = engine.evaluate(evidence)
    fields: dict[str, Any] = {
        "organisation": "Northwind",
        "created_at": NOW,
        "finished_at": NOW,
        "generated_at": NOW,
        "advisor_version": "0.1.0",
        "url": "http://127.0.0.1:8000/studies/1/",
        **context,
    }
    return report_document(
        evidence, findings, study_verdict(evidence, findings), ReportContext(**fields)
    )


@pytest.fixture(scope="module")
def full() -> ReportDocument:
    failed = make_trial(failure=make_failure(), ordinal=5, role="variant", title="float16")
    trials = (make_current(), make_kv_trial(), make_variant(), make_verification(), failed)
    return report(make_evidence(*trials))


def test_every_exporter_file_is_registered() -> None:
    folder = Path(reports.__file__).parent
    files = {path.stem.removeprefix("as_") for path in folder.glob("as_*.py")}
    assert files == set(EXPORTERS)


def test_json_reads_back_as_the_same_document(full: ReportDocument) -> None:
    raw = EXPORTERS["json"].render(full)
    assert ReportDocument.model_validate_json(raw) == full
    keys = json.loads(raw)
    assert keys["report_version"] == 1
    assert keys["verdict"]["sentence"]
    assert [trial["ordinal"] for trial in keys["trials"]] == [1, 2, 3, 4, 5]


def test_the_document_carries_what_a_reader_doubts(full: ReportDocument) -> None:
    assert {row.name for row in full.targets} == {"TTFT p95", "ITL p95"}
    best = full.targets[1].best
    assert best is not None
    assert best.n == 1500
    assert best.low is not None
    assert any("closed loop" in line for line in full.method)
    assert any(fact.name == "Software" for fact in full.environment)
    assert any("one stream" in line for line in full.limits)
    assert full.trials[4].failure == (
        "The model and its cache do not fit in memory: cannot allocate 2.1 GiB"
    )
    assert {chart.id for chart in full.charts} <= set(CHARTS)


def test_a_served_study_does_not_say_that_one_stream_was_measured() -> None:
    trial = make_trial(make_served(), config=ServeConfig(streams=8))
    found = report(make_evidence(trial, spec=make_study_spec(engine="vllm")))
    assert not any("one stream" in line for line in found.limits)
    assert any("judged with 8 requests in flight" in line for line in found.limits)


def test_html_opens_offline_and_stays_small(full: ReportDocument) -> None:
    page = to_html(full).decode()
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!http://127\.0\.0\.1:8000/studies/1/"|data:,")', page)
    assert "default-src 'none'" in page
    assert "url(" not in report_css()
    assert "@import" not in report_css()
    assert len(page) < 2_000_000
    assert page.count("<svg") == sum(chart.figure is not None for chart in full.charts)


def test_html_shows_every_section_of_a_finished_study(full: ReportDocument) -> None:
    page = to_html(full).decode()
    for heading in (
        "Targets", "What to change", "Recommended settings", "Evidence",
        "Trials", "How it was measured", "Environment", "Limits of validity",
    ):  # fmt: skip
        assert f"<h2>{heading}</h2>" in page, heading
    assert full.verdict.sentence.split(":")[0] in page
    assert 'class="new">    dtype=torch.float32,' in page


def test_html_has_no_inline_style_and_names_its_own_hash(full: ReportDocument) -> None:
    page = to_html(full).decode()
    assert " style=" not in page
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert style_source() == f"'sha256-{digest}'"


def test_markup_in_names_is_text_everywhere() -> None:
    # A name like this is refused at the door; a report must not rest on that.
    spec = make_study_spec(model=LocalModel(name="m")).model_copy(
        update={"name": MARKUP, "model": LocalModel.model_construct(name=MARKUP)}
    )
    trial = make_trial(
        failure=make_failure(message=MARKUP), title=MARKUP, role="current", ordinal=1
    )
    document = report(make_evidence(trial, spec=spec, name=MARKUP), organisation=MARKUP)
    page = to_html(document).decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert EXPORTERS["html"].filename(document) == "study-7-script-alert-x-script.html"


@pytest.mark.parametrize("fmt", ["html", "md", "json"])
def test_an_unfinished_study_has_a_report_that_says_so(fmt: str) -> None:
    document = report(make_evidence(make_trial(state="running"), finished=False), finished_at=None)
    raw = EXPORTERS[fmt].render(document).decode()
    assert "No verdict" in raw
    if fmt == "html":
        assert "Not finished" in raw


def test_a_study_without_targets_or_trials_has_a_report() -> None:
    document = report(make_evidence(spec=make_study_spec(targets=(), agent=None), device=None))
    page = to_html(document).decode()
    assert "<h2>Targets</h2>" not in page
    assert "<h2>Trials</h2>" not in page


def test_not_measured_is_a_dash_with_its_reason(full: ReportDocument) -> None:
    spec = make_study_spec(
        targets=({"metric": "joules_per_token", "statistic": "mean", "limit": 2},)
    )
    page = to_html(report(make_evidence(make_current(), spec=spec))).decode()
    assert "no energy counter on this device" in page
    assert re.search(r"<b>–</b>", page)


# --- launch ------------------------------------------------------------------------------------


def launch(settings: EngineSettings, current: EngineSettings | None = None) -> str:
    model = LocalModel(name='it\'s a "model"')
    lines = launch_lines(model, settings, current or EngineSettings())
    return "\n".join(line.text for line in lines)


@pytest.mark.parametrize(
    "chosen",
    [
        EngineSettings(),
        EngineSettings(dtype="float32", kv_cache=False, attention="eager", threads=4),
    ],
)
def test_launch_lines_are_python(chosen: EngineSettings) -> None:
    compile(launch(chosen), "launch", "exec")


def test_launch_lines_mark_what_differs() -> None:
    lines = launch_lines(
        LocalModel(name="m"),
        EngineSettings(dtype="float32", threads=4),
        EngineSettings(dtype="bfloat16", threads=4),
    )
    assert [line.text.strip() for line in lines if line.changed] == ["dtype=torch.float32,"]


def test_launch_of_a_bare_config_builds_from_the_config() -> None:
    model = ConfigModel(name="bare", config=SMOLLM2_CONFIG)
    text = "\n".join(line.text for line in launch_lines(model, EngineSettings(), EngineSettings()))
    compile(text, "launch", "exec")
    assert "from_config(" in text


def test_settings_in_words() -> None:
    assert settings_text(EngineSettings()) == "engine defaults"
    assert settings_text(EngineSettings(kv_cache=False, threads=2)) == "KV cache off, CPU threads 2"


# --- markup ------------------------------------------------------------------------------------


def test_elements_escape_text_and_attributes() -> None:
    assert el("a", "<b>", href='"x"') == '<a href="&quot;x&quot;">&lt;b&gt;</a>'
    assert join("1 < 2", Html("<br>"), None) == "1 &lt; 2<br>"
    assert el("td", "x", class_="num", aria_label="y") == '<td class="num" aria-label="y">x</td>'


def test_settings_of_the_simulator_are_shown_as_flags_of_a_real_engine() -> None:
    current = EngineSettings(max_running=8, cuda_graphs=False)
    wanted = EngineSettings(max_running=64, max_batched_tokens=2048, cuda_graphs=True)
    lines = launch_lines(SimulatedModel(name="qwen3-32b-2xh100"), wanted, current)
    text = "\n".join(line.text for line in lines)
    assert text.startswith("# Found on a simulator")
    command = text.partition("\n")[2].replace(" \\\n   ", "")
    assert command == (
        "vllm serve YOUR_MODEL --max-num-seqs 64 --max-num-batched-tokens 2048 --no-enforce-eager"
    )
    assert [line.changed for line in lines] == [False, False, True, True, True]
