"""The rule catalogue: one line here for each file in `checks`. Pure.

The order is that of the catalogue page and breaks ties between findings of equal gain.
"""

from __future__ import annotations

from advisor.rules.checks import (
    a001_attention_slower,
    k001_decode_below_roofline,
    k003_step_recoverable,
    m001_kv_cache_ineffective,
    m002_kv_cache_leak,
    p001_dtype_slower,
    p002_format_faster,
    s001_prefill_dominant,
    s002_padding_waste,
    t001_target_missed,
    v001_measurement_invalid,
    v002_trial_failed,
    v003_device_slower,
)
from advisor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    v002_trial_failed.RULE,
    v001_measurement_invalid.RULE,
    v003_device_slower.RULE,
    m001_kv_cache_ineffective.RULE,
    m002_kv_cache_leak.RULE,
    p001_dtype_slower.RULE,
    k001_decode_below_roofline.RULE,
    k003_step_recoverable.RULE,
    a001_attention_slower.RULE,
    p002_format_faster.RULE,
    s001_prefill_dominant.RULE,
    s002_padding_waste.RULE,
    t001_target_missed.RULE,
)

__all__ = ["RULES"]
