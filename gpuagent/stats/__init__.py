"""Statistics of measurements: intervals, proofs, comparisons. Pure: numpy and nothing else.

Used on both sides: the agent judges its own measurement with it, the server computes every number
it shows from raw samples with it, so one definition holds everywhere.
"""

from gpuagent.stats.compare import Comparison, compare, compare_pairs, noise_floor
from gpuagent.stats.quantiles import Quantile, quantile, samples_needed
from gpuagent.stats.sla import Proof, prove_quantile, samples_to_prove
from gpuagent.stats.steady import Steady, steady
from gpuagent.stats.summary import Summary, clustered_mean, summarise

__all__ = [
    "Comparison",
    "Proof",
    "Quantile",
    "Steady",
    "Summary",
    "clustered_mean",
    "compare",
    "compare_pairs",
    "noise_floor",
    "prove_quantile",
    "quantile",
    "samples_needed",
    "samples_to_prove",
    "steady",
    "summarise",
]
