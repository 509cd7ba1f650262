"""A gate report as JUnit XML for CI servers and as markdown for a pull request. Pure."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree as ET

from advisor.gate import CheckStatus, GateCheck, GateReport

STATUS_WORDS: dict[CheckStatus, str] = {
    "pass": "pass",
    "fail": "**fail**",
    "not_proven": "not proven",
    "error": "error",
}
_NO_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#@])")


def junit(report: GateReport) -> str:
    """One test case a check. "Not proven" is `skipped`, since neither pass nor failure was shown:
    a pipeline that must stop there goes by the exit code."""
    counts = {
        word: sum(check.status == status for check in report.checks)
        for word, status in (("failures", "fail"), ("errors", "error"), ("skipped", "not_proven"))
    }
    totals = {"tests": str(len(report.checks)), **{k: str(v) for k, v in counts.items()}}
    root = ET.Element("testsuites", totals)
    name = f"study {report.study_number}: {report.study_name}"
    suite = ET.SubElement(root, "testsuite", {"name": _xml(name), **totals})
    for check in report.checks:
        _case(suite, check)
    ET.SubElement(suite, "system-out").text = _xml("\n".join((report.sentence, *report.changed)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _case(suite: ET.Element, check: GateCheck) -> None:
    attributes = {"classname": f"tuning-advisor.{check.group}", "name": _xml(check.name)}
    case = ET.SubElement(suite, "testcase", attributes)
    tags = {"fail": "failure", "error": "error", "not_proven": "skipped"}
    if check.status in tags:
        ET.SubElement(case, tags[check.status], {"message": _xml(check.sentence)})
    else:
        ET.SubElement(case, "system-out").text = _xml(check.sentence)


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return _NO_XML.sub("\ufffd", text)


def markdown(report: GateReport) -> str:
    """A heading with the outcome, a table of the checks, and what changed."""
    against = f" against study {report.baseline_number}" if report.baseline_number else ""
    lines = [
        f"### {_cell(report.sentence)}",
        "",
        f"Study {report.study_number}, {_cell(report.study_name)}{against}"
        + (f", on {_cell(report.hardware)}" if report.hardware else ""),
        "",
        "| check | result | evidence |",
        "|---|---|---|",
    ]
    lines += [
        f"| {_cell(check.name)} | {STATUS_WORDS[check.status]} | {_cell(check.sentence)} |"
        for check in report.checks
    ]
    if report.changed:
        lines += ["", "Changed since the baseline:", ""]
        lines += [f"- {_cell(change)}" for change in report.changed]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that stays text: no markup, no mention, one line."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
