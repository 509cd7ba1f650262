"""Turns planned trials into rows."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Sequence

from advisor.studies.models import Study, Trial
from advisor.studies.planner import PlannedTrial
from gpuagent.wire import TrialSpec

TIMEOUT_FACTOR = 6
TIMEOUT_MIN_S = 600.0
TIMEOUT_MAX_S = 2 * 3600.0


def trials_add(study: Study, planned: Sequence[PlannedTrial]) -> list[Trial]:
    """Append trials to a study. Two writers at once collide on the ordinal and one is refused."""
    first = study.trials.count() + 1
    trials = []
    for ordinal, item in enumerate(planned, start=first):
        trial_id = uuid.uuid4()
        timeout_s = min(max(item.estimate_s * TIMEOUT_FACTOR, TIMEOUT_MIN_S), TIMEOUT_MAX_S)
        spec = TrialSpec(
            trial_id=str(trial_id),
            model=study.spec.model,
            engine=study.spec.engine,
            endpoint=study.spec.endpoint,
            settings=item.settings,
            workload=study.spec.workload,
            config=item.config,
            # Fresh per trial, so that no cache can be warm from an earlier one; stable on retry.
            seed=zlib.crc32(trial_id.bytes) & 0x7FFFFFFF,
            timeout_s=timeout_s,
        )
        trials.append(
            Trial(
                id=trial_id,
                study=study,
                agent=study.agent,
                ordinal=ordinal,
                role=item.role,
                title=item.title,
                reason=item.reason,
                estimate_s=item.estimate_s,
                spec_json=spec.model_dump(mode="json"),
            )
        )
    return Trial.objects.bulk_create(trials)
