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

MEMORY_MAX_SHARE = Threshold(
    id="memory-max-share",
    value=0.9,
    unit="share of the device's memory",
    meaning="above it a longer prompt or one request more ends in out of memory",
    source="defaults of the engines' argument parsers: vLLM fills 0.9 to 0.92, SGLang 0.88",
    date="2026-12-02",
)
WEIGHTS_MAX_SHARE = Threshold(
    id="weights-max-share",
    value=0.6,
    unit="share of the device's memory",
    meaning="above it less than a third is left for cache and activations",
    source="own choice: a tenth stays free, so 0.6 leaves 0.3",
    date="2026-12-02",
)
KV_IDLE = Threshold(
    id="kv-idle",
    value=10,
    unit="×",
    meaning="a cache that holds more than this many times the tokens in flight is idle",
    source="own choice; vllm-omni pull request 4279 shows a cache for 851 times the load",
    date="2026-12-02",
)
PEAK_MAX_EXCESS = Threshold(
    id="peak-max-excess",
    value=1.25,
    unit="×",
    meaning="peak memory above this factor of the predicted upper end needs an explanation",
    source="own choice: the upper end of the formula already holds the widest overheads seen",
    date="2026-12-02",
)
FRAGMENTATION_MAX = Threshold(
    id="fragmentation-max",
    value=0.1,
    unit="share of the device's memory",
    meaning="memory that the allocator holds and cannot use, above which it costs capacity",
    source="own choice: a tenth is what engines leave free for everything else",
    date="2026-12-02",
)
WEIGHTS_TOLERANCE = Threshold(
    id="weights-tolerance",
    value=0.05,
    unit="share",
    meaning="loaded weights may exceed the config's by this much",
    source="parameter counts are exact; scales and padding of quantised formats stay within it",
    date="2026-12-02",
)
KV_RESERVED_MIN_USE = Threshold(
    id="kv-reserved-min-use",
    value=0.5,
    unit="share of the cache",
    meaning="a reserved cache of which less was ever used is larger than the load needs",
    source="own choice: bursts need headroom, twice the measured peak is enough of it",
    date="2026-12-02",
)
GRAPHS_MAX_SHARE = Threshold(
    id="graphs-max-share",
    value=0.05,
    unit="share of the peak",
    meaning="captured graphs that hold more are worth capturing fewer of",
    source="own choice; vLLM logs show 0.65 GiB of 80 GiB, issues 27951 and 45178",
    date="2026-12-02",
)
DEMAND_MET = Threshold(
    id="demand-met",
    value=0.95,
    unit="share of what is asked",
    meaning="an engine that serves this share of the load's tokens is limited by the load",
    source="own choice: arrivals drawn at random miss their mean rate by a few per cent",
    date="2026-12-02",
)
KV_HEADS_MANY = Threshold(
    id="kv-heads-many",
    value=8,
    unit="heads",
    meaning="ungrouped models with more K/V heads carry a cache several times their peers'",
    source="grouped models published since 2023 keep 8 or fewer (Llama 3, Qwen 3, Mistral)",
    date="2026-12-02",
)
EAGER_MIN_PROMPT = Threshold(
    id="eager-min-prompt",
    value=512,
    unit="tokens",
    meaning="from this prompt on written-out attention scores matter",
    source="own measurement: at 2,048 tokens eager took 313 ms a layer and sdpa 46 ms on two CPU "
    "cores; the scores grow with the square of the prompt",
    date="2026-12-02",
)
ATTENTION_MAX_SHARE = Threshold(
    id="attention-max-share",
    value=0.5,
    unit="share of prefill arithmetic",
    meaning="above it attention, not the weights, sets the time of prefill",
    source="definition of dominated",
    date="2026-12-02",
)
WINDOW_MIN_SAVING = Threshold(
    id="window-min-saving",
    value=0.1,
    unit="share of the cache",
    meaning="engines that page all layers alike waste at least this much",
    source="own choice: less disappears in block rounding and overheads",
    date="2026-12-02",
)
QUEUE_MAX_SHARE = Threshold(
    id="queue-max-share",
    value=0.5,
    unit="share of TTFT",
    meaning="above it waiting outweighs prefill in the time to first token",
    source="definition of dominated",
    date="2026-12-02",
)
LOAD_NEAR_CAPACITY = Threshold(
    id="load-near-capacity",
    value=0.8,
    unit="share of capacity",
    meaning="above it the queue dominates: random arrivals wait ρ/(1 - ρ) services on average",
    source="queueing theory, M/M/1: four services of waiting at 0.8",
    date="2026-12-02",
)
BATCH_MIN_GAIN = Threshold(
    id="batch-min-gain",
    value=1.5,
    unit="× tokens per second",
    meaning="a larger batch is worth a change of serving from this gain on",
    source="own choice: batching costs every sequence some latency",
    date="2026-12-02",
)
STALL_MAX_RATIO = Threshold(
    id="stall-max-ratio",
    value=3.0,
    unit="× the median gap",
    meaning="a p99 gap between tokens above it is a stall, not spread",
    source="own choice: warm decode steps of one length differ by a few per cent",
    date="2026-12-02",
)
STALL_MIN_GAPS = Threshold(
    id="stall-min-gaps",
    value=200,
    unit="gaps",
    meaning="fewer cannot show a p99 with two samples beyond it",
    source="two of 200 are the hundredth part",
    date="2026-12-02",
)
LINK_MAX_SHARE = Threshold(
    id="link-max-share",
    value=0.3,
    unit="share of prefill",
    meaning="communication above it eats what more GPUs bring",
    source="own choice: two GPUs then gain less than 1.4 × of the 2 × paid for",
    date="2026-12-02",
)
IDLE_ENERGY_MAX = Threshold(
    id="idle-energy-max",
    value=0.5,
    unit="share of energy",
    meaning="above it more energy keeps the device on than computes",
    source="definition of dominated",
    date="2026-12-02",
)
ENERGY_MIN_SAVING = Threshold(
    id="energy-min-saving",
    value=0.2,
    unit="share of J/token",
    meaning="a batch that saves less is within what single readings differ by",
    source="twice the noise of 5 % between runs on each side",
    date="2026-12-02",
)
COLD_START_MAX = Threshold(
    id="cold-start-max",
    value=30,
    unit="s",
    meaning="a start that takes longer needs a startup probe or a warm replica",
    source="Kubernetes probe defaults: every 10 s, three failures, then a restart",
    date="2026-12-02",
)
FIRST_REQUEST_MAX = Threshold(
    id="first-request-max",
    value=3.0,
    unit="× the warm median",
    meaning="a first request that is slower must not be a user's",
    source="own choice: compilation and allocation cost whole factors, noise does not",
    date="2026-12-02",
)
WARM_UP_OUTLIER = Threshold(
    id="warm-up-outlier",
    value=3.0,
    unit="× the median of the others",
    meaning="first requests of a window slower than this are warm-up",
    source="field cases of vLLM and evalscope: 1.3 to 3 times over several warm-ups",
    date="2026-12-02",
)
LENGTH_TOLERANCE = Threshold(
    id="length-tolerance",
    value=0.05,
    unit="share",
    meaning="real token counts may differ from the asked mean by this much",
    source="public benchmarks average 0.90 of the nominal length and must say so",
    date="2026-12-02",
)

BATCH_FULL_MAX = Threshold(
    id="batch-full-max",
    value=0.05,
    unit="share of steps",
    meaning="above it requests regularly wait for a place in the batch",
    source="own choice: one step in twenty is what a burst alone causes",
    date="2026-12-02",
)
CACHE_STARVED_MAX = Threshold(
    id="cache-starved-max",
    value=0.02,
    unit="share of steps",
    meaning="above it requests regularly wait for room in the cache",
    source="vLLM's tuning guide: preemptions mean a cache that is too small; 2 % leaves out bursts",
    date="2026-12-02",
)
STEPS_EAGER_MAX = Threshold(
    id="steps-eager-max",
    value=0.1,
    unit="share of steps",
    meaning="above it launches of single kernels shape the gap between tokens",
    source="own choice: a tail of large batches may exceed the largest captured one",
    date="2026-12-02",
)
STEPS_MIXED_MAX = Threshold(
    id="steps-mixed-max",
    value=0.3,
    unit="share of steps",
    meaning="above it the token budget of a step shapes the gap between tokens",
    source="own choice: near a third of the gaps a percentile from p70 on sees the mixed steps",
    date="2026-12-02",
)
COUNT_TOLERANCE = Threshold(
    id="count-tolerance",
    value=0.01,
    unit="share",
    meaning="token counts of client and server may differ by this much; requests not at all",
    source="own choice: tokens at the border of the window, special tokens of a chat template",
    date="2026-12-03",
)
PREFIX_HIT_MIN = Threshold(
    id="prefix-hit-min",
    value=0.5,
    unit="share of what the prompts share",
    meaning="a prefix cache that answers for less than this of the shared tokens is hardly used",
    source="own choice: whole blocks and a few evictions leave far more than half",
    date="2026-12-03",
)
SPEC_ACCEPTANCE_MIN = Threshold(
    id="spec-acceptance-min",
    value=0.3,
    unit="share of drafted tokens",
    meaning="below it speculation repeats more work than it saves once requests share steps",
    source="own choice after Leviathan et al. 2023 (arXiv 2211.17192), corollary 3.9: speculation "
    "helps where a draft is accepted more often than it costs; the drafts of the paper cost 0.02 "
    "to 0.11 of a step, and their check is not free once steps are full. Engines set no limit of "
    "their own: acceptance_rate_threshold of TensorRT-LLM, which switches speculation off below "
    "it, has no default (reference of 1.3.0rc29)",
    date="2026-12-03",
)
SPEC_ACCEPTANCE_GOOD = Threshold(
    id="spec-acceptance-good",
    value=0.6,
    unit="share of drafted tokens",
    meaning="from it on speculation pays at a low load",
    source="own choice after table 2 of the same paper: speed-ups of 1.4 to 3.4 came with "
    "acceptance of 0.53 to 0.82 per token",
    date="2026-12-03",
)
FRONT_END_MAX_SHARE = Threshold(
    id="front-end-max-share",
    value=0.3,
    unit="share of the requests in flight",
    meaning="above it requests spend much of their life outside of the engine's scheduler",
    source="own choice, no published limit was found: gauges lag by a step and a network adds its "
    "way, and a third is neither; in vLLM issue 580 a front end of its time halved the use of the "
    "GPU, which this share would have shown",
    date="2026-12-03",
)
FRONT_END_MIN_SAMPLES = Threshold(
    id="front-end-min-samples",
    value=10,
    unit="samples",
    meaning="fewer samples of the gauges say nothing about a mean",
    source="own choice: ten seconds of load, one sample a second; the mean of fewer moves by a "
    "third of itself with one burst",
    date="2026-12-03",
)
CONTEXT_SPARE = Threshold(
    id="context-spare",
    value=2.0,
    unit="× the longest request",
    meaning="a context limit beyond it is not what the workload needs",
    source="own choice: lengths are rounded up to the next power of two, which is less than twice; "
    "no published limit was found",
    date="2026-12-03",
)
PLACEMENT_MIN_GAIN = Threshold(
    id="placement-min-gain",
    value=1.1,
    unit="× tokens per second",
    meaning="another placement of the model is worth a trial from this predicted gain on",
    source="own count over the public tables that the predictor is fitted on "
    "(ai-dynamo/aiconfigurator): of 674 pairs of one model, GPU, engine and load that differ in "
    "the size of the group alone, copies gave more in 47 %; where 1.1 × or more was predicted, in "
    "173 of 174; where 1 to 1.1 × was, in 127 of 159",
    date="2026-12-03",
)
EXPERT_BLOCK = Threshold(
    id="expert-block",
    value=128,
    unit="columns",
    meaning="a slice of an expert in block-wise FP8 must be a multiple of it",
    source="weight_block_size [128, 128] of published FP8 checkpoints; vLLM issues 17569, 25292 "
    "and 54178, QwenLM/Qwen3 issue 1485 and SGLang issue 10852: the load ends in an error",
    date="2026-12-03",
)
EXPERT_SLICES_GAIN = Threshold(
    id="expert-slices-gain",
    value=0.11,
    unit="share of the throughput",
    meaning="what slices of experts served more than whole ones, the median of public pairs",
    source="own count over public tables (ai-dynamo/aiconfigurator): 34 pairs of one model, GPU, "
    "engine and load on one host without attention data parallelism, five models; whole experts "
    "served less in 32, the same or more in 2, 4 % more at most",
    date="2026-12-03",
)
EXPERT_SLICES_GAIN_HIGH = Threshold(
    id="expert-slices-gain-high",
    value=0.45,
    unit="share of the throughput",
    meaning="the same at the upper end: one pair in ten shows more",
    source=EXPERT_SLICES_GAIN.source,
    date="2026-12-03",
)
AUTOSCALE_MIN_SAVING = Threshold(
    id="autoscale-min-saving",
    value=0.2,
    unit="share of the replica hours",
    meaning="following the day is worth its machinery from this saving on",
    source="own choice: as much as the headroom of each replica, which a wrong guess of the day "
    "takes; no published limit was found",
    date="2026-12-03",
)
REPLICA_HEADROOM = Threshold(
    id="replica-headroom",
    value=0.2,
    unit="share of a replica's highest rate",
    meaning="what is left free for the spread of arrivals",
    source="queueing theory, M/M/1: four services of waiting at 0.8 of the capacity, and the same "
    "default as the estimate of a day",
    date="2026-12-03",
)
SPOT_MIN_SAVING = Threshold(
    id="spot-min-saving",
    value=0.2,
    unit="share of the on-demand cost",
    meaning="spot capacity with its spare replica is worth the interruptions from this saving on",
    source="own choice, about half of what was seen: SkyServe (arXiv 2411.01438) saves 43 % on "
    "average with more spot replicas than the load needs",
    date="2026-12-03",
)
SPOT_BREAK_EVEN_MIN = Threshold(
    id="spot-break-even-min",
    value=1.0,
    unit="interruptions of a replica per hour",
    meaning="a start so long that fewer interruptions eat the saving is too long for spot",
    source="own choice, since providers publish no rate per hour: 20 times the one in 20 hours "
    "that the estimate of a day assumes",
    date="2026-12-03",
)
HEALTH_BAD_MAX = Threshold(
    id="health-bad-max",
    value=2,
    unit="health checks",
    meaning="so many may fail under load; the third in a row restarts a container",
    source="Kubernetes probe defaults: timeoutSeconds 1, failureThreshold 3",
    date="2026-12-03",
)
OVERLOAD_MAX_WAIT = Threshold(
    id="overload-max-wait",
    value=60,
    unit="s",
    meaning="a request that waits longer is cut off on its way, and is computed for nobody",
    source="nginx documentation: proxy_read_timeout is 60 s by default",
    date="2026-12-03",
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
    MEMORY_MAX_SHARE,
    WEIGHTS_MAX_SHARE,
    KV_IDLE,
    PEAK_MAX_EXCESS,
    FRAGMENTATION_MAX,
    WEIGHTS_TOLERANCE,
    KV_RESERVED_MIN_USE,
    GRAPHS_MAX_SHARE,
    DEMAND_MET,
    KV_HEADS_MANY,
    EAGER_MIN_PROMPT,
    ATTENTION_MAX_SHARE,
    WINDOW_MIN_SAVING,
    QUEUE_MAX_SHARE,
    LOAD_NEAR_CAPACITY,
    BATCH_MIN_GAIN,
    STALL_MAX_RATIO,
    STALL_MIN_GAPS,
    LINK_MAX_SHARE,
    IDLE_ENERGY_MAX,
    ENERGY_MIN_SAVING,
    COLD_START_MAX,
    FIRST_REQUEST_MAX,
    WARM_UP_OUTLIER,
    LENGTH_TOLERANCE,
    BATCH_FULL_MAX,
    CACHE_STARVED_MAX,
    STEPS_EAGER_MAX,
    STEPS_MIXED_MAX,
    COUNT_TOLERANCE,
    PREFIX_HIT_MIN,
    SPEC_ACCEPTANCE_MIN,
    SPEC_ACCEPTANCE_GOOD,
    FRONT_END_MAX_SHARE,
    FRONT_END_MIN_SAMPLES,
    CONTEXT_SPARE,
    PLACEMENT_MIN_GAIN,
    EXPERT_BLOCK,
    EXPERT_SLICES_GAIN,
    EXPERT_SLICES_GAIN_HIGH,
    AUTOSCALE_MIN_SAVING,
    REPLICA_HEADROOM,
    SPOT_MIN_SAVING,
    SPOT_BREAK_EVEN_MIN,
    HEALTH_BAD_MAX,
    OVERLOAD_MAX_WAIT,
)
