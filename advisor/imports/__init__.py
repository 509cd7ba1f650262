"""Results of other load tools as trials of ours, each number with the definition behind it. Pure.

One file a format; `read_import` finds the right one. What a file does not hold is None with a
reason, and what the tool defines otherwise says so.
"""

from advisor.imports.errors import ImportRefused
from advisor.imports.judge import ImportedStatus, judge_import
from advisor.imports.model import ImportedMetric, ImportedTrial
from advisor.imports.read import FORMATS, KEPT_BYTES, MAX_BYTES, read_import, too_large

__all__ = [
    "FORMATS",
    "KEPT_BYTES",
    "MAX_BYTES",
    "ImportRefused",
    "ImportedMetric",
    "ImportedStatus",
    "ImportedTrial",
    "judge_import",
    "read_import",
    "too_large",
]
