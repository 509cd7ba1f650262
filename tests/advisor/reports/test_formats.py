"""One study through all formats: the same words and the same numbers, and nothing that runs."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from markdown_it import MarkdownIt

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.reports import EXPORTERS, RECORDS, ReportDocument
from advisor.reports.as_md import code, text
from advisor.reports.browser import PdfUnavailable, find_browser, print_pdf
from advisor.reports.csv_text import csv_bytes
from advisor.reports.schema import report_schema
from tests.advisor.reports.test_reports import MARKUP, report
from tests.builders import (
    make_baseline_result,
    make_current,
    make_evidence,
    make_failure,
    make_kv_trial,
    make_request,
    make_study_spec,
    make_trial,
    make_variant,
    make_verification,
)

SCHEMA = Path(__file__).parents[3] / "docs" / "report.schema.json"


@pytest.fixture(scope="module")
def evidence() -> StudyEvidence:
    failed = make_trial(failure=make_failure(), ordinal=5, role="variant", title="float16 | a*b*")
    return make_evidence(
        make_current(), make_kv_trial(), make_variant(), make_verification(), failed
    )


@pytest.fixture(scope="module")
def document(evidence: StudyEvidence) -> ReportDocument:
    return report(evidence)


class Page(HTMLParser):
    """The tables, headings and list items of a page as text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.parts: dict[str, list[str]] = {"h1": [], "h2": [], "h3": [], "li": []}
        self._open: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th", *self.parts):
            self._open.append([])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", *self.parts):
            words = " ".join(" ".join(self._open.pop()).split())
            (self.tables[-1][-1] if tag in ("td", "th") else self.parts[tag]).append(words)

    def handle_data(self, data: str) -> None:
        for kept in self._open:
            kept.append(data)


def read_html(document: ReportDocument) -> Page:
    raw = EXPORTERS["html"].render(document).decode()
    return Page(re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", raw, flags=re.DOTALL))


def read_md(document: ReportDocument) -> Page:
    return Page(
        MarkdownIt("commonmark").enable("table").render(EXPORTERS["md"].render(document).decode())
    )


def read_csv(raw: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(raw.decode(), newline="")))


# --- the same in all ---------------------------------------------------------------------------


def test_markdown_holds_every_table_heading_and_line_of_the_html(document: ReportDocument) -> None:
    page, md = read_html(document), read_md(document)
    by_caption = sorted(page.tables)
    assert sorted(md.tables) == by_caption
    assert len(by_caption) > 5
    for part in ("h1", "h2", "h3"):
        assert md.parts[part] == page.parts[part]
    assert [item for item in page.parts["li"] if item not in md.parts["li"]] == []


def test_every_number_of_a_trial_is_the_same_in_csv_json_html_and_markdown(
    document: ReportDocument,
) -> None:
    data = json.loads(EXPORTERS["json"].render(document))
    lines = read_csv(EXPORTERS["csv"].render(document))
    assert [int(line["trial"]) for line in lines] == [t["ordinal"] for t in data["trials"]]
    shown = 0
    for line, trial in zip(lines, data["trials"], strict=True):
        assert line["state"] == trial["state"]
        assert line["failure"] == (trial["failure"] or "")
        for target, measured in zip(data["targets"], trial["targets"], strict=True):
            name = f"{target['metric']}_{target['statistic']}"
            assert float(line[f"{name}_limit"]) == target["limit"]
            for part in ("low", "high", "n", "headroom_frac"):
                cell = line[f"{name}_{part}"]
                assert (float(cell) if cell else None) == measured[part]
            assert line[f"{name}_verdict"] == measured["verdict"]
            value = float(line[name]) if line[name] else None
            assert value == measured["value"]
            words = " ".join(units.metric(target["metric"], value).split())
            for page in (read_html(document), read_md(document)):
                table = next(t for t in page.tables if t[0][0] == "Trial" and "Outcome" in t[0])
                row = table[trial["ordinal"]]
                assert row[table[0].index(target["name"])] == words
            shown += value is not None
    assert shown >= 4
    best = data["verdict"]["best_trial"]
    assert [line["trial"] for line in lines if line["best"] == "true"] == [str(best)]


def test_the_request_records_give_the_values_of_the_report(
    evidence: StudyEvidence, document: ReportDocument
) -> None:
    lines = read_csv(RECORDS["requests"].render(evidence))
    mine = [float(line["ttft_s"]) for line in lines if line["trial"] == "1" and line["ttft_s"]]
    target = next(t for t in document.targets if t.metric == "ttft_s")
    measured = document.trials[0].targets[document.targets.index(target)]
    assert measured.n == len(mine)
    assert measured.low is not None
    assert measured.high is not None
    assert measured.low <= np.quantile(mine, 0.95) <= measured.high
    runs = {(line["run"], line["side"]) for line in lines if line["trial"] == "4"}
    assert {side for _, side in runs} == {"a", "b"}
    assert len(runs) == 12


def test_a_failed_request_has_an_error_and_no_latency() -> None:
    requests = (make_request(), make_request(1.0, error="=cmd|'/c calc'!A1"))
    trial = make_trial(make_baseline_result(requests=requests))
    lines = read_csv(RECORDS["requests"].render(make_evidence(trial)))
    assert lines[-1]["error"].startswith("'=cmd")
    assert lines[-1]["ttft_s"] == lines[-1]["e2e_s"] == ""
    assert lines[0]["error"] == ""


def test_a_study_without_trials_has_a_file_in_every_format() -> None:
    empty = make_evidence(spec=make_study_spec(targets=(), agent=None), device=None)
    document = report(empty)
    assert read_csv(EXPORTERS["csv"].render(document)) == []
    assert read_csv(RECORDS["requests"].render(empty)) == []
    assert read_md(document).parts["h1"] == [document.verdict.sentence]


# --- schema ------------------------------------------------------------------------------------


def test_the_published_schema_is_that_of_the_report(document: ReportDocument) -> None:
    schema = report_schema()
    text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        SCHEMA.write_text(text)
    assert SCHEMA.read_text() == text, "UPDATE_GOLDEN=1 writes it anew; a change of meaning counts"
    validator = jsonschema.Draft202012Validator(schema)
    found = json.loads(EXPORTERS["json"].render(document))
    validator.validate(found)
    for wrong in ({"report_version": 99}, {"verdict": None}, {"trials": [{}]}):
        assert not validator.is_valid({**found, **wrong}), wrong


# --- text that is none of ours -----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [MARKUP, "a | b", "**bold** _x_ `c`", "[x](javascript:alert(1))", "# no heading", "1. no list",
     "- no list", "&lt;b&gt;", "اسم النموذج", "two\nlines", "a" * 200, "\\| \\"],
)  # fmt: skip
def test_markdown_prints_any_name_as_it_is(name: str) -> None:
    for block in (text(name), f"| {text(name)} |\n| --- |\n| {text(name)} |"):
        page = Page("<h1>" + MarkdownIt("commonmark").enable("table").render(block) + "</h1>")
        assert " ".join(name.split()) in page.parts["h1"][0]
        assert page.tags <= {"h1", "p", "table", "thead", "tbody", "tr", "th", "td"}


def test_code_spans_hold_backticks() -> None:
    assert code("plain") == "`plain`"
    assert "<code>a `b`` c</code>" in MarkdownIt().render(code("a `b`` c"))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+cmd", "@SUM(A1)", "\t=1", "\r=1", " =1"])
def test_no_csv_cell_is_a_formula(text: str) -> None:
    line = read_csv(csv_bytes(["a", "b"], [{"a": text, "b": -1.5}]))[0]
    assert line["a"] == f"'{text}"
    assert line["b"] == "-1.5"


def test_csv_cells_are_empty_where_nothing_was_measured() -> None:
    assert csv_bytes(["a", "b"], [{"a": None}, {"a": True, "b": ("x", "y")}]) == (
        b'a,b\r\n,\r\ntrue,"[""x"", ""y""]"\r\n'
    )


# --- the browser -------------------------------------------------------------------------------


def fake_browser(folder: Path, body: str) -> str:
    path = folder / "chromium"
    path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_without_a_browser_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_CHROMIUM", "/nowhere/chromium")
    assert find_browser() is None
    with pytest.raises(PdfUnavailable, match="ADVISOR_CHROMIUM"):
        print_pdf(b"<p>x</p>")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("time.sleep(60)", "within 0 s"),
        ("sys.stderr.write('no sandbox')", "no sandbox"),
        ("sys.exit(3)", "exited with 3"),
    ],
)
def test_a_browser_that_hangs_or_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.setenv("ADVISOR_CHROMIUM", fake_browser(tmp_path, body))
    timeout_s = 0.3 if "sleep" in body else 20.0
    with pytest.raises(PdfUnavailable, match=words):
        print_pdf(b"<p>x</p>", timeout_s=timeout_s)


def test_a_browser_that_prints_gets_a_profile_of_its_own_and_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "args = dict(a.partition('=')[::2] for a in sys.argv[1:])\n"
        "assert args['--user-data-dir'].startswith(sys.path[0]) is False\n"
        "assert 'NOTFOUND' in args['--host-resolver-rules']\n"
        "open(args['--print-to-pdf'], 'w').write('%PDF-' + sys.argv[-1])"
    )
    monkeypatch.setenv("ADVISOR_CHROMIUM", fake_browser(tmp_path, body))
    found = print_pdf(b"<p>x</p>").decode()
    assert found.startswith("%PDF-file://")
    assert not Path(found.removeprefix("%PDF-file://")).parent.exists()
