"""The form of "what if": rows of targets and a price, in the address, so that it can be shared."""

from __future__ import annotations

import re
from typing import Any

from django.http import QueryDict
from pydantic import ValidationError

from advisor.evidence import StudyEvidence
from advisor.pages.forms.targets import MAX_TARGETS, TargetRow, target_rows
from advisor.what_if import WhatIf, WhatIfQuery, what_if
from advisor.wire_errors import fields_from_validation_error
from gpuagent.wire import StudySpec


class WhatIfForm:
    """Without data it shows the study's own targets. errors: those that belong to no row."""

    max_targets = MAX_TARGETS

    def __init__(self, spec: StudySpec, data: QueryDict | None = None) -> None:
        self.sent = data is not None and any(key in data for key in ("action", "t0-metric"))
        self.rows: list[TargetRow] = target_rows(data if self.sent else None, spec.targets)
        self.price = data.get("price", "").strip() if data is not None else ""
        self.price_errors: list[str] = []
        self.errors: list[str] = []
        # Adding or removing a row asks for no answer yet.
        self.asks = self.sent and data is not None and data.get("action", "") in ("", "judge")

    def answer(self, evidence: StudyEvidence) -> WhatIf | None:
        """The answer, or None with every error beside its field."""
        payload: dict[str, Any] = {"targets": [row.payload() for row in self.rows]}
        if self.price:
            payload["usd_per_hour"] = self.price
        try:
            return what_if(evidence, WhatIfQuery.model_validate(payload))
        except ValidationError as error:
            for path, messages in fields_from_validation_error(error).items():
                for message in messages:
                    self._add(path, message)
            return None

    def _add(self, path: str, message: str) -> None:
        row = re.match(r"targets\.(\d+)(?:\.(\w+))?$", path)
        if row and int(row[1]) < len(self.rows):
            self.rows[int(row[1])].add_error(row[2] or "limit", message)
        elif path == "usd_per_hour":
            self.price_errors.append(message)
        else:
            self.errors.append(message)
