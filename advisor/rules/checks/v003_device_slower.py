"""The device's ceilings against those of its last calibration."""

from __future__ import annotations

from advisor import units
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import missing_trial
from advisor.thresholds import CEILING_DRIFT
from gpuagent.wire.ceilings import CEILING_UNITS, Ceiling, Ceilings
from gpuagent.wire.inside import CalibrateResult

ID = "device-slower"


def check(evidence: StudyEvidence) -> list[Finding]:
    trials = [t for t in evidence.succeeded(CalibrateResult) if t.usable]
    result = trials[-1].measured(CalibrateResult) if trials else None
    if result is None:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.NOT_APPLICABLE,
                title="The ceilings of the device are not measured",
                missing=missing_trial(evidence, "calibrate"),
            )
        ]
    trial, found = trials[-1], result.ceilings
    earlier = _earlier(evidence, found)
    if earlier is None:
        return [
            Finding(
                rule_id=ID,
                verdict=Verdict.INFORMATIVE,
                title="These are the first ceilings of this device",
                evidence=tuple(
                    _item(trial, entry, rate_text(entry))
                    for entry in found.entries
                    if entry.rate.value is not None
                ),
            )
        ]
    return [_compared(trial, found, earlier)]


def _earlier(evidence: StudyEvidence, found: Ceilings) -> Ceilings | None:
    """The latest calibration of the same device before this one."""
    device = evidence.device
    known = [] if device is None else [device.ceilings, device.ceilings_before]
    same = [
        c
        for c in known
        if c is not None and c.device == found.device and c.measured_at_s < found.measured_at_s
    ]
    return max(same, key=lambda c: c.measured_at_s, default=None)


def _compared(trial: TrialEvidence, found: Ceilings, earlier: Ceilings) -> Finding:
    slower, items = [], []
    for entry in found.entries:
        now, before = entry.rate.value, earlier.rate(entry.kind, entry.variant)
        if now is None or before is None:
            continue
        # Launch is seconds: less is better.
        change = before / now - 1 if entry.kind == "launch" else now / before - 1
        item = _item(trial, entry, f"{rate_text(entry)}, {units.percent(change)} against before")
        items.append(item.model_copy(update={"value": change, "unit": "share"}))
        # Launch latency jitters by more than bandwidth; it is shown and does not decide.
        if change < -CEILING_DRIFT.value and entry.kind != "launch":
            slower.append((change, entry))
    if not items:
        return Finding(
            rule_id=ID,
            verdict=Verdict.CANNOT_TELL,
            title="The two calibrations share no ceiling",
        )
    if not slower:
        return Finding(
            rule_id=ID,
            verdict=Verdict.PASS,
            title=f"The device reaches its earlier ceilings within {units.percent(0.1)}",
            evidence=tuple(items),
        )
    change, worst = min(slower, key=lambda pair: pair[0])
    return Finding(
        rule_id=ID,
        verdict=Verdict.FAIL,
        title=f"Find out why the device is slower: {ceiling_name(worst)} fell by "
        f"{units.percent(-change)}",
        summary="A ceiling moves with clocks, power limits, other load and versions, not with the "
        "model. Until it is back, compare nothing with earlier trials.",
        evidence=tuple(items),
        change=Change(
            text="Look at clocks, temperature, power limit and other processes, and at the "
            "versions of driver and torch; then calibrate again."
        ),
        confidence="medium",
        confidence_reason="each ceiling is the best of several runs, at two moments",
    )


def ceiling_name(entry: Ceiling) -> str:
    words = {
        "read": "read bandwidth",
        "copy": "copy bandwidth",
        "gemm": "the matrix rate in",
        "launch": "launch latency",
        "host_to_device": "host to device,",
        "device_to_host": "device to host,",
        "all_reduce": "all-reduce",
    }
    return f"{words[entry.kind]} {entry.variant}".strip()


def rate_text(entry: Ceiling) -> str:
    """The rate with its unit."""
    unit, value = CEILING_UNITS.get(entry.kind), entry.rate.value
    if unit == "s":
        return units.seconds(value)
    if unit == "FLOP/s" and value is not None:
        return f"{units.number(value / 1e12)}{units.NBSP}TFLOP/s"
    return units.bandwidth(value)


def _item(trial: TrialEvidence, entry: Ceiling, text: str) -> EvidenceItem:
    name = ceiling_name(entry)
    return EvidenceItem(
        text=f"{name[:1].upper()}{name[1:]}: {text}",
        value=entry.rate.value,
        unit=CEILING_UNITS.get(entry.kind, "B/s"),
        n=entry.seconds.n,
        trial_id=trial.trial_id,
        chart="ceilings",
    )


RULE = Rule(
    id=ID,
    code="v003",
    group="measurement",
    title="The device is as fast as it was",
    failing_title="Find out why the device is slower than before",
    why="Every efficiency is relative to what the device can do. A device that became slower makes "
    "all later trials look worse than the settings are.",
    how_measured="Large sequential reads and copies, square matrix products per dtype, an empty "
    "launch, transfers; the best of seven runs each, with clocks and versions.",
    threshold=f"Fails when a bandwidth or matrix rate is more than {CEILING_DRIFT.value:.0%} below "
    "the last calibration of the same device.",
    source=CEILING_DRIFT.source,
    when_not="After a deliberate change of power limit, clocks or versions: calibrate once more "
    "and go on from there.",
    needs=("a calibrate trial", "an earlier calibration"),
    knobs=(),
    check=check,
)
