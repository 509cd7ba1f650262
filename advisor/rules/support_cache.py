"""What a cache in fewer bits was found to cost, for the rules that would advise one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.thresholds import MAX_PERPLEXITY_INCREASE
from gpuagent.wire.inside import CacheDtype, CacheForm
from gpuagent.wire.trial import KvCacheResult, VerifyResult


@dataclass(frozen=True, slots=True)
class NarrowCache:
    """A cache that takes fewer bytes than the model's own.

    bytes_frac: of the own cache's bytes. perplexity, reference: of it and of the own one, over
    `tokens`; None with a reason.
    """

    name: str
    trial: TrialEvidence
    bytes_frac: float
    perplexity: float | None = None
    reference: float | None = None
    tokens: int = 0
    reason: str | None = None

    @property
    def increase(self) -> float | None:
        """Relative increase of perplexity."""
        if self.perplexity is None or self.reference is None:
            return None
        return self.perplexity / self.reference - 1


def narrow_caches(evidence: StudyEvidence) -> tuple[str, list[NarrowCache]] | None:
    """The model's own dtype and the narrower caches that ran, fewest bytes last.

    None without a kv_cache trial that can be used and ran forms of the cache.
    """
    for trial in reversed(evidence.succeeded(KvCacheResult)):
        result = trial.measured(KvCacheResult)
        if result is None or not trial.usable or result.details is None:
            continue
        own = next((f for f in result.details.forms if f.form == "dynamic"), None)
        if own is None or not own.cache_bytes.value:
            continue
        others = [("4 bits", f) for f in result.details.forms if f.form == "quantised"]
        named: list[tuple[str, CacheForm | CacheDtype]] = [
            *((d.dtype, d) for d in result.details.dtypes),
            *others,
        ]
        found = [
            _narrow(name, trial, form, own, form.cache_bytes.value / own.cache_bytes.value)
            for name, form in named
            if form.cache_bytes.value and form.cache_bytes.value < own.cache_bytes.value
        ]
        found.sort(key=lambda cache: -cache.bytes_frac)
        return result.model.dtype, found
    return None


def _narrow(
    name: str,
    trial: TrialEvidence,
    form: CacheForm | CacheDtype,
    own: CacheForm,
    bytes_frac: float,
) -> NarrowCache:
    value, reference = form.perplexity, own.perplexity
    if value is None or reference is None:
        reason = form.perplexity_reason or own.perplexity_reason or "not measured"
        return NarrowCache(name, trial, bytes_frac, reason=reason)
    return NarrowCache(name, trial, bytes_frac, value.value, reference.value, tokens=value.tokens)


def fp8_cache_quality(evidence: StudyEvidence) -> str | None:
    """What to say in brackets beside the advice to store the cache in fp8; None advises against.

    "check quality" where nothing was measured.
    """
    verified = _verified_fp8(evidence)
    if verified is not None:
        trial, increase = verified
        return _quality(trial, increase)
    found = narrow_caches(evidence)
    fp8 = next((c for c in found[1] if c.name == "float8_e4m3fn"), None) if found else None
    if fp8 is None or fp8.increase is None:
        return "check quality"
    return _quality(fp8.trial, fp8.increase)


def _verified_fp8(evidence: StudyEvidence) -> tuple[TrialEvidence, float] | None:
    """The newest verification that scored a cache in fp8 against the model's own: (trial, relative
    increase of perplexity). A server's cache is scored there alone."""
    for trial in reversed(evidence.succeeded(VerifyResult)):
        result = trial.measured(VerifyResult)
        if result is None or not trial.usable or result.model_a.dtype != result.model_b.dtype:
            continue
        a, b = result.perplexity_a, result.perplexity_b
        caches = (trial.settings.kv_dtype, result.candidate.kv_dtype)
        if a is not None and b is not None and caches == ("auto", "fp8"):
            return trial, b.value / a.value - 1
    return None


def _quality(trial: TrialEvidence, increase: float) -> str | None:
    if increase > MAX_PERPLEXITY_INCREASE.value:
        return None
    return f"perplexity {increase:+.1%} in trial {trial.ordinal}"
