"""CSV after RFC 4180, safe to open in a spreadsheet: no text cell is taken for a formula."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_bytes(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> bytes:
    """UTF-8 with one header line. A column that a row lacks, and None, is an empty cell."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return out.getvalue().encode()


def _cell(value: object) -> str:
    """Numbers as JSON writes them; text that a spreadsheet would calculate gets a leading `'`."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
