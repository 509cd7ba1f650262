"""Fewer requests are in flight than the pipeline has stages, so that some always wait."""

from __future__ import annotations

from advisor import units
from advisor.estimates.memory import tp_problem
from advisor.estimates.roofline import Placement, Roofline
from advisor.evidence import StudyEvidence
from advisor.rules.checks._parallel import (
    Split,
    link_share,
    requests_in_flight,
    split_change,
    split_of,
    weights_in,
)
from advisor.rules.rule import Change, Effect, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import (
    current_baseline,
    device_spec,
    hurts,
    mean_tokens,
    modelled_gain,
    not_applicable,
    plain,
)
from gpuagent.wire.settings import PARALLEL_SERVERS

ID = "pipeline-starved"


def check(evidence: StudyEvidence) -> list[Finding]:
    split, found = split_of(evidence.spec.current), current_baseline(evidence)
    if evidence.spec.engine not in PARALLEL_SERVERS or split.pp < 2:
        missing = "A vLLM or SGLang server with a pipeline parallel size above 1"
        return not_applicable(ID, "There is no pipeline", missing)
    load = requests_in_flight(*found) if found is not None else None
    if found is None or load is None:
        missing = "A valid trial of the current settings: what runs at once decides"
        return not_applicable(ID, "The use of the pipeline is not known", missing)
    flight, n = load
    # Each copy has a pipeline of its own.
    each = flight / (evidence.spec.current.data_parallel or 1)
    idle = max(0.0, 1 - each / split.pp)
    item = EvidenceItem(
        text=f"{units.number(each)} requests were in flight on average for {split.pp} stages: at "
        f"least {units.percent(idle)} of the stages had nothing to do",
        value=idle,
        unit="share of the stages",
        n=n,
        trial_id=found[0].trial_id,
    )
    if idle <= 0:
        return plain(ID, Verdict.PASS, "Enough requests are in flight for every stage", item)
    if not hurts(evidence, "itl_s", "e2e_s", "output_tok_s"):
        title = f"{units.percent(idle)} of the pipeline's stages are idle, within the targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    instead, effect = _instead(evidence, split, each)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"{'Split within the layers' if instead else 'Keep the pipeline full'}: "
            f"{units.percent(idle)} of its stages are idle",
            summary="A token passes the stages one after the other, so a pipeline makes no single "
            "request faster; it gains only while every stage has a request of its own.",
            evidence=(item,),
            change=Change(
                text=f"Keep {split.pp} requests or more in flight, or use fewer stages where the "
                "model fits them."
            )
            if instead is None
            else split_change(
                evidence,
                f"Serve with {instead.text}, or keep {split.pp} requests or more in flight.",
                instead,
            ),
            effect=effect,
            confidence="medium",
            confidence_reason="requests in flight are measured; what another split gains is not",
            gain=modelled_gain(evidence, {"itl_s": effect.change_frac / 2}) if effect else 0.0,
        )
    ]


def _instead(
    evidence: StudyEvidence, split: Split, each: float
) -> tuple[Split | None, Effect | None]:
    """The same GPUs within the layers, where heads and link allow it, and what a step gains."""
    shape, spec, device = evidence.shape, device_spec(evidence), evidence.device
    whole = Split(split.gpus, 1)
    if shape is None or spec is None or device is None or device.kind != "gpu":
        return None, None
    if device.count < whole.gpus or tp_problem(shape, whole.tp) is not None:
        return None, None
    if link_share(evidence, shape, spec, whole.gpus).slow:
        return None, None
    weights, tokens = weights_in(evidence, shape), mean_tokens(evidence.spec.workload)

    def step_s(gpus: int) -> float:
        place = Placement(spec, gpus=gpus, tp=gpus, dtype=weights)
        return Roofline(shape, place).decode(max(1.0, each), tokens).bound_s

    # A token's way through all stages reads every weight on the GPUs of one stage at a time.
    change = step_s(whole.gpus) / step_s(split.tp) - 1
    if change >= 0:
        return None, None
    effect = Effect(
        metric="itl_s", change_frac=change / 2, low=change, high=0.0, basis="modelled", better=True
    )
    return whole, effect


RULE = Rule(
    id=ID,
    code="d007",
    group="parallelism",
    title="Every stage of the pipeline has work",
    failing_title="Keep the pipeline full or split within the layers",
    why="A pipeline works on as many requests at once as it has stages. With fewer in flight the "
    "other stages wait, and no token comes sooner than on one stage's GPUs.",
    how_measured="Requests in flight by the client's clock, per copy, against the pipeline "
    "parallel size; the floor of a decode step both ways for the range of the effect.",
    threshold="Fails with fewer requests in flight than stages when an ITL, end-to-end or "
    "throughput target is not met; told else. One request per stage is the least that can fill it.",
    source="definition of idle; the bubble of GPipe (arXiv 1811.06965), (K - 1) / (M + K - 1) of "
    "the time with M pieces of work in K stages",
    when_not="Where the stages lie on different hosts or have no fast link: then splitting within "
    "the layers costs more than it brings.",
    needs=("a valid trial of a vLLM or SGLang server with a pipeline parallel size above 1",),
    knobs=("tensor_parallel", "pipeline_parallel"),
    check=check,
)
