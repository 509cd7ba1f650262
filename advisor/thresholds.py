"""Every threshold of rules, verdict and planner: value, unit, meaning, source, date.

A rule never holds a bare number; its page shows these lines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """value in `unit`; `source` names who measured or decided it, `date` when (ISO)."""

    id: str
    value: float
    unit: str
    meaning: str
    source: str
    date: str


KV_CACHE_MIN_GAIN = Threshold(
    id="kv-cache-min-gain",
    value=1.2,
    unit="×",
    meaning="a working cache saves at least this factor per decode step at long context",
    source="own choice: recomputing 256 tokens costs more than 1.2 decode steps wherever the step "
    "is not bound by launch overhead; measured 10 × and more on CPU",
    date="2026-12-02",
)
KV_CACHE_MIN_CONTEXT = Threshold(
    id="kv-cache-min-context",
    value=256,
    unit="tokens",
    meaning="shorter contexts say nothing about the worth of the cache",
    source="own choice: below it one decode step and one prefill both cost one read of the weights",
    date="2026-12-02",
)
KV_CACHE_MAX_STEP_GROWTH = Threshold(
    id="kv-cache-max-step-growth",
    value=1.5,
    unit="×",
    meaning="a cached decode step grows by less than this from the shortest to the longest context",
    source="roofline: up to 512 tokens the cache is under a tenth of the weights for the models "
    "measured, so a step that grows more is recomputing or copying",
    date="2026-12-02",
)
KV_BYTES_TOLERANCE = Threshold(
    id="kv-bytes-tolerance",
    value=0.05,
    unit="share",
    meaning="measured cache bytes per token may differ from the formula by this much",
    source="the formula is exact for dense caches; the rest covers growth in blocks",
    date="2026-12-02",
)
DECODE_MIN_EFFICIENCY = Threshold(
    id="decode-min-efficiency",
    value=0.5,
    unit="share of measured read bandwidth",
    meaning="a well-built decode loop at batch 1 reaches at least this",
    source="gpt-fast README: 1,397 GB/s (16 bit) and 1,069 GB/s (8 bit) of about 1,700 GB/s on "
    "A100-80GB at batch 1, 82 and 63 %; half of the measured bandwidth leaves room for small "
    "models",
    date="2026-12-02",
)
UNVERIFIED_NOISE = Threshold(
    id="unverified-noise",
    value=0.05,
    unit="share",
    meaning="two trials run one after the other count as equal within this",
    source="reliability checklist row 9: CoV up to 5 % between runs is normal",
    date="2026-12-02",
)
MAX_PERPLEXITY_INCREASE = Threshold(
    id="max-perplexity-increase",
    value=0.01,
    unit="share",
    meaning="a change of precision may raise perplexity by at most this",
    source="reliability checklist row 18: at least 99 % of the reference score",
    date="2026-12-02",
)
PROFILE_MAX_OVERHEAD = Threshold(
    id="profile-max-overhead",
    value=1.5,
    unit="×",
    meaning="above it a profiled step is so much slower that host-bound answers lose confidence",
    source="own choice: beyond half a step the profiler's own work on the host may be the delay "
    "that the trace shows; a two-layer model on CPU measured 2.8",
    date="2026-12-02",
)
CEILING_DRIFT = Threshold(
    id="ceiling-drift",
    value=0.10,
    unit="share",
    meaning="a device whose ceiling falls by more than this since its last calibration has changed",
    source="own choice: best-of-seven ceilings of one machine agree within a few per cent",
    date="2026-12-02",
)
ATTENTION_MIN_GAIN = Threshold(
    id="attention-min-gain",
    value=1.2,
    unit="×",
    meaning="another attention implementation is worth a change from this factor on",
    source="own choice: attention is a part of a step, so less would not be seen in a request",
    date="2026-12-02",
)
ATTENTION_MAX_ERROR = Threshold(
    id="attention-max-error",
    value=2.0,
    unit="× the error of plain PyTorch",
    meaning="an implementation further from float64 than this is not exact",
    source="test rule of the flash-attn project: at most twice the error of plain PyTorch",
    date="2026-12-02",
)
KV_LEAK_MAX_SHARE = Threshold(
    id="kv-leak-max-share",
    value=0.10,
    unit="share of one cache per generation",
    meaning="memory that rises by more after each released cache is a leak",
    source="own choice: allocators keep single blocks, a leak keeps whole caches",
    date="2026-12-02",
)
PADDING_MIN_SAVING = Threshold(
    id="padding-min-saving",
    value=0.10,
    unit="share of time",
    meaning="sorting prompts by length is worth a change from this saving on",
    source="own choice: well above the spread of repeated prefills",
    date="2026-12-02",
)
PREFILL_MAX_SHARE = Threshold(
    id="prefill-max-share",
    value=0.5,
    unit="share of end-to-end latency",
    meaning="above it the wait for the first token outweighs all other tokens together",
    source="definition of dominated",
    date="2026-12-02",
)
PREFILL_MIN_OUTPUT = Threshold(
    id="prefill-min-output",
    value=8,
    unit="tokens",
    meaning="shorter answers are prefill by nature",
    source="own choice: with fewer tokens no setting moves the share",
    date="2026-12-02",
)

THRESHOLDS: tuple[Threshold, ...] = (
    KV_CACHE_MIN_GAIN,
    KV_CACHE_MIN_CONTEXT,
    KV_CACHE_MAX_STEP_GROWTH,
    KV_BYTES_TOLERANCE,
    DECODE_MIN_EFFICIENCY,
    UNVERIFIED_NOISE,
    MAX_PERPLEXITY_INCREASE,
    PROFILE_MAX_OVERHEAD,
    CEILING_DRIFT,
    ATTENTION_MIN_GAIN,
    ATTENTION_MAX_ERROR,
    KV_LEAK_MAX_SHARE,
    PADDING_MIN_SAVING,
    PREFILL_MAX_SHARE,
    PREFILL_MIN_OUTPUT,
)
