"""Guided diagnoses of the two classic complaints: a walk over evidence to a named cause. Pure.

A new one is one file, one line in DIAGNOSES and one test file.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.diagnoses.memory import memory
from advisor.diagnoses.throughput import throughput_walk
from advisor.diagnoses.walk import Diagnosis, Step
from advisor.evidence import StudyEvidence

DIAGNOSES: dict[str, Callable[[StudyEvidence], Diagnosis]] = {
    "throughput": throughput_walk,
    "memory": memory,
}

__all__ = ["DIAGNOSES", "Diagnosis", "Step", "memory", "throughput_walk"]
