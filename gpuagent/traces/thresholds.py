"""Every number that turns a measurement into a finding or a verdict, with its source.

Fractions are of the analysis window W (first to last GPU event of a device) unless stated.
"""

from __future__ import annotations

IDLE_WARN = 0.15  # TraceLens and nsys-ai both flag idle above 15 %
IDLE_STRONG = 0.40
BUSY_ENOUGH = 0.80  # gpu-idle, measured on an A100: no starvation verdict at 80 % busy or more
RECOVERABLE_MIN = 0.02  # a finding must be worth 2 % of the window
INITIALISATION = 0.20  # allocation and module loading; AlexNet start-up trace: 66 %
TRANSFER_VERDICT = 0.20
TRANSFER_WARN, TRANSFER_STRONG = 0.05, 0.10  # TraceLens 5 % per direction, gpu-idle 10 %
COMM_VERDICT = 0.15
COMM_WARN = 0.05  # TraceLens
COMM_OVERLAP_WARN = 0.70  # TraceLens
SYNC_WARN = 0.15  # nsys-ai; per thread, and only with idle above IDLE_WARN
TENSOR_CORE_MIN = 0.90  # of the GEMM time whose name decides
GEMM_MATTERS = 0.10
GEMV_DOMINATES = 0.20  # RTX 5090 batch-1 decode: 49 %
UNFUSED_ATTENTION = 0.10
TINY_KERNEL_S = 10e-6  # HTA, TraceLens, nsys-ai
TINY_COUNT = 0.50
TINY_TIME = 0.20
LIGHT_SHARE = 0.40  # of GPU time in kernels a compiler can merge
PAGEABLE = 0.10  # of exposed copy time
LINK_SATURATED = 0.70  # of the achievable link rate: pinning cannot help any more
ALLOC_TIME = 0.01
QUEUE_WAIT_S = 50e-6  # a launch call this long while the GPU is busy waits for a full queue
MIN_STEPS = 3
MIN_KERNELS = 5
LINKED_MIN = 0.80
REPLAY_RECORDED_MIN = 0.80  # vLLM and Hyperloom reports: 1 of N replays recorded looks 87-99 % idle
CAPTURE_RECORDED_MIN = 0.20
UNRECORDED_WAIT_NS = 1_000_000
UNRECORDED_WAIT = 0.50  # host waits on the device this long while nothing is recorded on it
OTHER_MAX = 0.05
VARIANCE_COV, VARIANCE_COUNT, VARIANCE_TIME = 1.0, 10, 0.05  # TraceLens
FUSION_SAVED_PER_KERNEL_S = 1e-6
SYNC_TAIL_NS = 5_000_000  # host work after a wait that still counts as its consequence
DEVICE_GAP_NS = 10_000  # a gap this short between queued kernels is launch latency, not a cause
EPSILON_S = 1e-9

LINK_GB_S: tuple[tuple[str, float], ...] = (
    # Achievable host link, GB/s, one direction: PCIe 3 x16 about 12.5, 4 x16 25, 5 x16 50.
    ("B200", 50.0),
    ("B300", 50.0),
    ("GB200", 50.0),
    ("H100", 50.0),
    ("H200", 50.0),
    ("H20", 50.0),
    ("L40", 25.0),
    ("L4", 12.5),
    ("A100", 25.0),
    ("A10", 25.0),
    ("A30", 25.0),
    ("A40", 25.0),
    ("RTX 50", 50.0),
    ("RTX 40", 25.0),
    ("RTX 30", 25.0),
    ("RTX PRO", 50.0),
    ("V100", 12.5),
    ("T4", 12.5),
    ("P100", 12.5),
    ("MI300", 50.0),
    ("MI325", 50.0),
    ("MI35", 50.0),
    ("MI2", 25.0),
)


def link_gb_s(device_name: str | None) -> float | None:
    """Achievable host-link rate of a GPU in GB/s by name; None where the name is not known."""
    if device_name is None:
        return None
    name = device_name.upper()
    return next((rate for part, rate in LINK_GB_S if part in name), None)
