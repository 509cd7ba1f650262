"""Where a step loses time, from a kernels trial: one list for rule, chart and report. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from advisor import units
from advisor.measures import median_s, times
from gpuagent.wire.inside import FusedOperator, GemmShape, KernelsResult, StepForm

LARGEST = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """recoverable_s of one forward pass. `step`: "decode" at one row, "prefill" at many.

    basis: "ceiling" is a bound that no kernel may reach, "measured" was really run faster here.
    """

    name: str
    step: str
    recoverable_s: float
    basis: str
    text: str
    n: int


def largest_losses(result: KernelsResult) -> tuple[Loss, ...]:
    """The five largest recoverable times, largest first; only of the dtype that was loaded."""
    found = [
        *_gemm_losses(result),
        *(loss for operator in result.fused if (loss := _fusion_loss(operator)) is not None),
        *_step_losses(result),
    ]
    return tuple(sorted(found, key=lambda loss: -loss.recoverable_s)[:LARGEST])


def step_form(result: KernelsResult, form: str) -> StepForm | None:
    return next((s for s in result.steps if s.form == form), None)


def best_form(result: KernelsResult) -> StepForm | None:
    """The fastest form of a decode step other than eager; None where none ran."""
    ran = [s for s in result.steps if s.form != "eager" and s.seconds.n]
    return min(ran, key=lambda s: median_s(s.seconds) or 0.0, default=None)


def efficiency(gemm: GemmShape) -> float | None:
    """Ceiling over measured time; above 1 where the matrix stays in a cache."""
    took = median_s(gemm.seconds)
    return gemm.ceiling_s.value / took if gemm.ceiling_s.value is not None and took else None


@dataclass(frozen=True, slots=True)
class StepParts:
    """An eager decode step at one row as parts that sum to it, all in s.

    floor_s: its products at their ceilings; products_s: what they take above that; between_s: what
    is no product (attention, norms, launches, allocations). floor_share: of the products' own time.
    """

    step_s: float
    floor_s: float
    products_s: float
    between_s: float
    n: int

    @property
    def floor_share(self) -> float:
        return self.floor_s / (self.floor_s + self.products_s)


def step_parts(result: KernelsResult) -> StepParts | None:
    """None where a product or its ceiling is missing, or where products that were timed one kind
    after another take longer than the whole step does."""
    eager = step_form(result, "eager")
    step_s = median_s(eager.seconds) if eager is not None else None
    own = [g for g in result.gemms if g.rows == 1 and g.dtype == result.model.dtype]
    if eager is None or not step_s or not own:
        return None
    floor_s = total_s = 0.0
    for gemm in own:
        took, ceiling = median_s(gemm.seconds), gemm.ceiling_s.value
        if took is None or ceiling is None:
            return None
        total_s += gemm.per_step * took
        # A matrix that stays in a cache is read faster than the ceiling of memory.
        floor_s += gemm.per_step * min(took, ceiling)
    if total_s > step_s:
        return None
    n = min(eager.seconds.n, *(g.seconds.n for g in own))
    return StepParts(step_s, floor_s, total_s - floor_s, step_s - total_s, n)


def _gemm_losses(result: KernelsResult) -> list[Loss]:
    rows = sorted({g.rows for g in result.gemms})
    found = []
    for gemm in result.gemms:
        took, share = median_s(gemm.seconds), efficiency(gemm)
        # Rows between one and the prompt are other batch sizes: not a step of their own here.
        if gemm.dtype != result.model.dtype or gemm.rows not in (rows[0], rows[-1]):
            continue
        if took is None or share is None or share >= 1:
            continue
        step = "decode" if gemm.rows == rows[0] else "prefill"
        lost = took * (1 - share) * gemm.per_step
        found.append(
            Loss(
                name=f"{gemm.name} ({step})",
                step=step,
                recoverable_s=lost,
                basis="ceiling",
                text=f"{gemm.name}, {gemm.rows} × {gemm.k} × {gemm.n}, {gemm.per_step} times a "
                f"{step}: {units.percent(share)} of its ceiling",
                n=gemm.seconds.n,
            )
        )
    return found


def _fusion_loss(operator: FusedOperator) -> Loss | None:
    eager, compiled = median_s(operator.eager_s), median_s(operator.compiled_s)
    if eager is None or compiled is None or compiled >= eager:
        return None
    return Loss(
        name=f"{operator.name} (prefill)",
        step="prefill",
        recoverable_s=(eager - compiled) * operator.per_step,
        basis="measured",
        text=f"{operator.name}, {operator.per_step} times a prefill: {times(eager / compiled)} "
        "as long eager as fused",
        n=operator.eager_s.n,
    )


def _step_losses(result: KernelsResult) -> list[Loss]:
    eager, best = step_form(result, "eager"), best_form(result)
    if eager is None or best is None:
        return []
    slow, fast = median_s(eager.seconds), median_s(best.seconds)
    if not slow or not fast or fast >= slow:
        return []
    return [
        Loss(
            name="between kernels (decode)",
            step="decode",
            recoverable_s=slow - fast,
            basis="measured",
            text=f"A decode step takes {times(slow / fast)} as long eager as {FORMS[best.form]}: "
            "launches, allocations and unfused operators",
            n=eager.seconds.n,
        )
    ]


FORMS = {"eager": "eager", "compiled": "compiled", "cuda_graph": "as a CUDA graph"}
