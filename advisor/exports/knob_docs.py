"""`docs/knobs.md`, written from the knob table; a test holds the file against it."""

from __future__ import annotations

from advisor.exports.knob_table import KNOBS, Setting, Switch
from advisor.flags import versions


def knobs_markdown() -> str:
    """The whole page."""
    newest = ", ".join(f"{name} {versions()[name][0]}" for name in ("vllm", "sglang"))
    return "\n".join(
        [
            "# Settings by their names",
            "",
            "Written from `advisor/exports/knob_table.py` (`UPDATE_GOLDEN=1 pytest"
            " tests/advisor/exports` writes it anew).",
            f"Flags are checked against the engines' own parsers: {newest}. The first name is the"
            " one that studies, API and",
            "JSON use; the others are what tutorials call it.",
            "",
            "| Setting | Also called | vLLM | SGLang | transformers | Note |",
            "|---|---|---|---|---|---|",
            *(
                f"| `{row.knob}` | {', '.join(row.tutorial)} | {_cell(row.vllm)} |"
                f" {_cell(row.sglang)} | {row.code} | {row.note or '–'} |"
                for row in KNOBS
            ),
            "",
        ]
    )


def _cell(setting: Setting) -> str:
    if isinstance(setting, Switch):
        words = [words for words in (setting.on, setting.off) if words]
        return " / ".join(f"`{' '.join(w)}`" for w in words)
    return f"`{setting.text}`" if setting.text.startswith("--") else setting.text
