"""The rule catalogue: one line here for each file in `checks`. Pure.

The order is that of the catalogue page and breaks ties between findings of equal gain.
"""

from __future__ import annotations

from advisor.rules.checks import (
    k001_decode_below_roofline,
    m001_kv_cache_ineffective,
    p001_dtype_slower,
    s001_prefill_dominant,
    t001_target_missed,
    v001_measurement_invalid,
    v002_trial_failed,
)
from advisor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    v002_trial_failed.RULE,
    v001_measurement_invalid.RULE,
    m001_kv_cache_ineffective.RULE,
    p001_dtype_slower.RULE,
    k001_decode_below_roofline.RULE,
    s001_prefill_dominant.RULE,
    t001_target_missed.RULE,
)

__all__ = ["RULES"]
