"""What the rules on several GPUs share: degrees, the link of a split, where a model fits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.catalog import GpuSpec
from advisor.costs import gpus_of
from advisor.estimates.memory import allowed_tp, plan_memory
from advisor.estimates.roofline import Placement, Roofline
from advisor.estimates.service import Estimate
from advisor.estimates.serving import NEW_HARDWARE
from advisor.evidence import StudyEvidence, TrialEvidence
from advisor.measures import resolved_dtype
from advisor.rules.rule import Change
from advisor.rules.support import current_baseline, hurts, longest_tokens, predict
from advisor.shapes import ModelShape
from advisor.targets import trial_metrics
from advisor.thresholds import LINK_MAX_SHARE
from gpuagent.wire import EngineSettings
from gpuagent.wire.settings import MANAGED_SERVERS, PARALLEL_KNOBS, PARALLEL_SERVERS
from gpuagent.wire.trial import BaselineResult

MOST_HOSTS = 4


@dataclass(frozen=True, slots=True)
class Split:
    """How one copy of a model lies on devices: tensor × pipeline parallel degree."""

    tp: int
    pp: int

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def text(self) -> str:
        if self.pp == 1:
            return f"tensor parallel size {self.tp}"
        if self.tp == 1:
            return f"pipeline parallel size {self.pp}"
        return f"tensor parallel size {self.tp} and pipeline parallel size {self.pp}"


@dataclass(frozen=True, slots=True)
class LinkShare:
    """Share of a split prefill that the all-reduces take.

    measured: at the calibrated rate. pcie: the GPUs have no links of their own.
    """

    share: float
    busy_s: float
    comm_s: float
    measured: bool
    pcie: bool

    @property
    def basis(self) -> str:
        return "calibrated all-reduce" if self.measured else "link of the data sheet"

    @property
    def slow(self) -> bool:
        """Whether it takes too much, and not by two data sheets alone.

        Kernels reach a part of the stated arithmetic, so a fast link looks worse than it is.
        """
        return self.share > LINK_MAX_SHARE.value and (self.measured or self.pcie)


@dataclass(frozen=True, slots=True)
class Use:
    """What the current settings take of a host with several GPUs.

    each: GPUs of one copy. where: in words. needed: whether more copies bring what the study lacks.
    """

    trial: TrialEvidence
    count: int
    used: int
    each: int
    where: str
    needed: bool

    @property
    def idle(self) -> int:
        return self.count - self.used

    @property
    def copies(self) -> int:
        """As many as the whole host holds."""
        return self.count // self.each

    @property
    def more_frac(self) -> float:
        return self.copies * self.each / self.used - 1

    @property
    def copies_help(self) -> bool:
        return self.idle > 0 and self.more_frac > 0 and self.needed


def use_of(evidence: StudyEvidence) -> Use | None:
    """None without a valid baseline on a host with two GPUs or more."""
    found, device = current_baseline(evidence), evidence.device
    if found is None or device is None or device.kind != "gpu" or device.count < 2:
        return None
    trial, result = found
    used = each = gpus_of(evidence, trial)
    where = result.model.device
    if evidence.spec.engine in MANAGED_SERVERS:
        each = split_of(trial.settings).gpus
        where = "one GPU" if used == 1 else f"{used} GPUs"
    targets = {target.metric for target in evidence.spec.targets}
    rate = evidence.spec.workload.request_rate_per_s
    short = hurts(evidence, "output_tok_s", *(("ttft_s", "e2e_s") if rate else ()))
    needed = short and bool(rate or not targets or "output_tok_s" in targets)
    return Use(trial, device.count, used, each, where, needed)


def split_of(settings: EngineSettings) -> Split:
    """The degrees that the settings name, 1 where they name none."""
    return Split(settings.tensor_parallel or 1, settings.pipeline_parallel or 1)


def parallel_change(evidence: StudyEvidence, text: str, **knobs: int | bool) -> Change:
    """The advice, with the knobs that the study's engine has and that differ from today's.

    A degree of 1 that no setting names today is what the engine does anyway.
    """
    if not set(knobs) <= set(PARALLEL_KNOBS):
        raise ValueError(f"not degrees of a server: {sorted(set(knobs) - set(PARALLEL_KNOBS))}")
    if evidence.spec.engine not in PARALLEL_SERVERS:
        return Change(text=text)
    now = evidence.spec.current
    new = {
        knob: value
        for knob, value in knobs.items()
        if value != (getattr(now, knob) or (False if isinstance(value, bool) else 1))
    }
    return Change(text=text, settings=new)


def copies_change(evidence: StudyEvidence, text: str, copies: int, tp: int | None = None) -> Change:
    """So many copies, of tensor parallel size `tp` where that is to change, else `text`.

    Data parallel ranks of vLLM share the experts of a model that has them: there, copies are
    servers of their own.
    """
    shape = evidence.shape
    if evidence.spec.engine == "vllm" and shape is not None and shape.is_moe:
        size = tp or split_of(evidence.spec.current).tp
        return Change(
            text=f"Start {copies} servers of tensor parallel size {size} behind a load balancer: "
            "vLLM's data parallel ranks would share the experts of such a model."
        )
    knobs = {"data_parallel": copies} | ({"tensor_parallel": tp} if tp is not None else {})
    return parallel_change(evidence, text, **knobs)


def split_change(evidence: StudyEvidence, text: str, split: Split) -> Change:
    return parallel_change(evidence, text, tensor_parallel=split.tp, pipeline_parallel=split.pp)


def weights_in(evidence: StudyEvidence, shape: ModelShape) -> str:
    """The name under which the study's weights are loaded."""
    return "auto" if shape.quant is not None else resolved_dtype(evidence.spec.current, shape)


def link_share(evidence: StudyEvidence, shape: ModelShape, spec: GpuSpec, count: int) -> LinkShare:
    """Work and all-reduce of a prefill of the workload's mean prompt on `count` GPUs."""
    tokens = evidence.spec.workload.input_tokens.mean
    place = Placement(spec, gpus=count, tp=count, dtype=weights_in(evidence, shape))
    roofline = Roofline(shape, place)
    floor = roofline.prefill(tokens)
    ceilings = evidence.device.ceilings if evidence.device is not None else None
    rate = ceilings.rate("all_reduce") if ceilings is not None else None
    # The ring factor is in the model's bytes; the calibrated rate counts one buffer.
    plain_bytes = roofline.comm_bytes(tokens) / (2 * (count - 1) / count)
    comm_s = plain_bytes / rate if rate else floor.comm_s
    busy_s = max(floor.memory_s, floor.compute_s + floor.attention_s)
    share = comm_s / (comm_s + busy_s) if comm_s + busy_s > 0 else 0.0
    return LinkShare(share, busy_s, comm_s, bool(rate), spec.link_bytes_s is None)


def within_layers(evidence: StudyEvidence, shape: ModelShape, spec: GpuSpec) -> Split | None:
    """The smallest tensor parallel size whose GPUs hold the model and its longest request."""
    sizes = allowed_tp(shape, _most(evidence, spec))
    return next((Split(n, 1) for n in sizes if _holds(evidence, shape, spec, Split(n, 1))), None)


def smallest_split(evidence: StudyEvidence, shape: ModelShape, spec: GpuSpec) -> Split | None:
    """The fewest GPUs that hold the model and its longest request, and how; None where none do.

    Layers are split where no size divides the heads, or the link is too slow to split within them.
    """
    within = within_layers(evidence, shape, spec)
    if within is not None and (
        within.tp == 1 or not link_share(evidence, shape, spec, within.tp).slow
    ):
        return within
    sizes = range(2, min(_most(evidence, spec), shape.layers) + 1)
    layers = (Split(1, n) for n in sizes)
    return next((s for s in layers if _holds(evidence, shape, spec, s)), within)


def hosts_split(evidence: StudyEvidence, shape: ModelShape, spec: GpuSpec) -> Split | None:
    """The fewest hosts that hold the model: within the layers on each, one stage a host.

    Only full hosts whose GPUs divide the heads; more than `MOST_HOSTS` ask for another GPU.
    """
    each = spec.gpus_per_node
    if each < 2 or each not in allowed_tp(shape, each):
        return None
    splits = (Split(each, n) for n in range(2, MOST_HOSTS + 1))
    return next((s for s in splits if _holds(evidence, shape, spec, s)), None)


def _most(evidence: StudyEvidence, spec: GpuSpec) -> int:
    return max(evidence.device.count if evidence.device is not None else 1, spec.gpus_per_node)


def _holds(evidence: StudyEvidence, shape: ModelShape, spec: GpuSpec, split: Split) -> bool:
    weights = weights_in(evidence, shape)
    place = Placement(spec, gpus=split.gpus, tp=split.tp, pp=split.pp, dtype=weights)
    context = longest_tokens(evidence.spec.workload)
    return plan_memory(Roofline(shape, place), engine="transformers", context=context).fits


def split_needed(evidence: StudyEvidence) -> bool:
    """Whether the model fits no single GPU by prediction, and none was measured to hold it."""
    alone = predict(evidence, context=longest_tokens(evidence.spec.workload))
    return alone is not None and not alone.memory.fits and current_baseline(evidence) is None


def requests_in_flight(trial: TrialEvidence, result: BaselineResult) -> tuple[float, int] | None:
    """(mean requests in flight over the window, requests) by the client's own clock, or None."""
    metrics = trial_metrics(trial)
    if metrics is None or not metrics.succeeded or result.window_s <= 0:
        return None
    busy_s = sum(r.token_s[-1] - r.sent_s for r in result.requests if r.token_s and r.error is None)
    return busy_s / result.window_s, metrics.succeeded


def is_calibrated(found: Estimate) -> bool:
    """Whether the times rest on measurements of this very GPU."""
    return found.basis == "calibrated" and found.domain not in (NEW_HARDWARE, "roofline")


def expert_columns(shape: ModelShape) -> int | None:
    """Columns of one expert's gate and up matrices; None where its size does not tell."""
    sizes = {layer.expert_params for _, layer in shape.groups if layer.experts}
    if len(sizes) != 1:
        return None
    columns, rest = divmod(sizes.pop(), 3 * shape.hidden_size)
    return columns if rest == 0 and columns > 0 else None
