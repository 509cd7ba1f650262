"""A serving engine that is simulated step by step: for demos, CI and benchmarks of the search.

Pure: standard library and the wire types. Whatever it yields is labelled "simulated"; no number of
it says anything about a real device.
"""

from gpuagent.simulator.knobs import ServingKnobs
from gpuagent.simulator.machine import KV_BLOCK_TOKENS, MACHINES, Machine, StartRefused
from gpuagent.simulator.scheduler import Arrival, Counters, Gauge, Served, simulate

__all__ = [
    "KV_BLOCK_TOKENS",
    "MACHINES",
    "Arrival",
    "Counters",
    "Gauge",
    "Machine",
    "Served",
    "ServingKnobs",
    "StartRefused",
    "simulate",
]
