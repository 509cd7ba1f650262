"""Requests wait in front of the engine: HTTP, tokenizer and detokenizer are the limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor import units
from advisor.evidence import StudyEvidence
from advisor.rules.rule import Change, EvidenceItem, Finding, Rule, Verdict
from advisor.rules.support import current_baseline, hurts, not_applicable, plain
from advisor.thresholds import FRONT_END_MAX_SHARE, FRONT_END_MIN_SAMPLES
from gpuagent.wire.measure import RequestRecord
from gpuagent.wire.serving import ServerTimeline
from gpuagent.wire.trial import ServeResult

ID = "front-end-bound"
# Its gauges are refreshed after each step, those of others now and then.
PROMPT_GAUGES = frozenset({"vllm"})


def check(evidence: StudyEvidence) -> list[Finding]:
    found = current_baseline(evidence)
    result = found[1] if found is not None else None
    if found is None or not isinstance(result, ServeResult) or result.served.timeline is None:
        missing = "A valid trial on a server that shows its running and waiting requests"
        return not_applicable(ID, "The front end was not watched", missing)
    if evidence.spec.engine == "simulated":
        missing = "A server that really runs"
        return not_applicable(ID, "A simulated engine has no front end", missing)
    client, server = in_flight(result.requests, result.served.timeline)
    if len(client) < FRONT_END_MIN_SAMPLES.value:
        title = "Too few samples to tell front end and engine apart"
        summary = (
            f"{len(client)} samples under load, {FRONT_END_MIN_SAMPLES.value:g} are needed: more "
            "requests give them."
        )
        return plain(ID, Verdict.CANNOT_TELL, title, summary=summary)
    outside = max(0.0, (sum(client) - sum(server)) / sum(client))
    item = EvidenceItem(
        text=f"Of {units.number(float(np.mean(client)))} requests in flight on average, "
        f"{units.percent(outside)} were neither running nor waiting in the engine",
        value=outside,
        unit="share of the requests in flight",
        n=len(client),
        trial_id=found[0].trial_id,
    )
    if outside <= FRONT_END_MAX_SHARE.value:
        return plain(ID, Verdict.PASS, "Requests are in the engine, not in front of it", item)
    if result.served.engine not in PROMPT_GAUGES:
        title = "The engine saw fewer requests than were in flight, by gauges that may lag"
        return plain(ID, Verdict.CANNOT_TELL, title, item)
    if not hurts(evidence, "ttft_s", "e2e_s", "output_tok_s"):
        title = "Requests spend time in front of the engine, within the targets"
        return plain(ID, Verdict.INFORMATIVE, title, item)
    return [
        Finding(
            rule_id=ID,
            verdict=Verdict.FAIL,
            title=f"Widen the front end: {units.percent(outside)} of the requests in flight are "
            "not in the engine",
            summary="They are in HTTP, tokenizer, detokenizer or on the network. Which of these "
            "the counters do not tell; settings of the engine change nothing about it.",
            evidence=(item,),
            change=Change(
                text="Give the server more processes in front of the engine (--api-server-count in "
                "vLLM, --tokenizer-worker-num in SGLang) and cores of its own, send token ids, and "
                "measure from the same host to leave the network out."
            ),
            confidence="medium",
            confidence_reason="two counts at the same moments; the gauges lag by a step",
        )
    ]


def in_flight(
    records: Sequence[RequestRecord], timeline: ServerTimeline
) -> tuple[list[int], list[float]]:
    """(client, server): requests in flight at each sample that has any and shows both gauges.

    Requests that failed are left out at the client, since their end is not known.
    """
    spans = [(r.sent_s, r.token_s[-1]) for r in records if r.token_s and r.error is None]
    client, server = [], []
    for at_s, running, waiting in zip(
        timeline.at_s, timeline.running, timeline.waiting, strict=True
    ):
        mine = sum(1 for start, end in spans if start <= at_s < end)
        if mine and running is not None and waiting is not None:
            client.append(mine)
            server.append(running + waiting)
    return client, server


RULE = Rule(
    id=ID,
    code="s013",
    group="scheduling",
    title="Requests wait for the engine alone",
    failing_title="Widen the front end",
    why="Tokenizing, HTTP and streaming run on processor cores in front of the engine. Where they "
    "are the limit the GPU idles, and no setting of the scheduler helps.",
    how_measured="Requests that were in flight at the client when the gauges were read, against "
    "running and waiting ones in the engine at that moment.",
    threshold=f"Fails when more than {FRONT_END_MAX_SHARE.value:.0%} are in neither, over "
    f"{FRONT_END_MIN_SAMPLES.value:g} samples or more, and a target is not met. Both figures are "
    "our own choice.",
    source=FRONT_END_MAX_SHARE.source,
    when_not="Over a long network, whose way is counted with it.",
    needs=("a valid trial on a server that shows its running and waiting requests",),
    knobs=(),
    check=check,
)
