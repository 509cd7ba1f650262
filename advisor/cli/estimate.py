"""`tuning-advisor estimate`: memory, times and cost of a model on a GPU; needs neither."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from advisor.catalog import MARKETS, UnknownNameError, find_gpu
from advisor.cli.errors import CliError
from advisor.estimates.batch import estimate_csv
from advisor.estimates.models import resolve_model
from advisor.estimates.rows import RowError
from advisor.estimates.service import (
    ENGINES,
    Estimate,
    EstimateRequest,
    estimate,
    estimate_at_rate,
)
from advisor.estimates.serving import Interval
from advisor.shapes import ShapeError

HELP = "predict memory, latency and cost of a model on a GPU"
GIB = 1024**3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", metavar="MODEL_OR_CONFIG", help="folder, config.json or known model id"
    )
    parser.add_argument("--gpu", help='for example "H100 SXM"')
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel size")
    parser.add_argument("--pp", type=int, default=1, help="pipeline-parallel size")
    parser.add_argument("--expert-parallel", action="store_true")
    parser.add_argument("--attention-dp", action="store_true", help="attention data parallelism")
    parser.add_argument("--dtype", default=None, help="bf16, fp16, fp32; default as published")
    parser.add_argument(
        "--quant", default=None, help="none, fp8, awq, gptq, nvfp4, int8 and others"
    )
    parser.add_argument("--kv-dtype", default="auto", help="auto, fp8, bf16 and others")
    parser.add_argument("--isl", type=int, default=1000, help="input tokens")
    parser.add_argument("--osl", type=int, default=256, help="output tokens")
    parser.add_argument("--concurrency", type=int, default=16, help="requests in flight")
    parser.add_argument("--rate", type=float, help="requests per second, instead of --concurrency")
    parser.add_argument("--engine", default="vllm", choices=ENGINES)
    parser.add_argument("--engine-version", default="", help="for example 0.33.0")
    parser.add_argument("--context", type=int, help="longest sequence to hold; default isl + osl")
    parser.add_argument("--memory-fraction", type=float, help="share of the GPU the engine fills")
    parser.add_argument("--market", default="on-demand", choices=MARKETS)
    parser.add_argument("--price", type=float, help="own price in USD per GPU and hour")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--batch", type=Path, metavar="ROWS.csv", help="estimate every row of a CSV"
    )
    parser.add_argument("--out", type=Path, metavar="OUT.csv", help="where --batch writes")


def run(args: argparse.Namespace) -> int:
    try:
        if args.batch is not None:
            return _run_batch(args)
        return _run_one(args)
    except (ShapeError, RowError, UnknownNameError) as error:
        raise CliError(str(error)) from None


def _run_one(args: argparse.Namespace) -> int:
    if not args.model:
        raise CliError("name a model folder, a config.json or a known model id, or use --batch")
    if not args.gpu:
        raise CliError('--gpu is missing; name one, for example --gpu "H100 SXM"')
    gpu = find_gpu(args.gpu)
    if args.price is not None and not args.price > 0:
        raise CliError("--price must be above 0 USD per GPU and hour")
    request = EstimateRequest(
        model=resolve_model(args.model),
        gpu=gpu,
        engine=args.engine,
        engine_version=args.engine_version,
        tp=args.tp,
        pp=args.pp,
        expert_parallel=args.expert_parallel,
        attention_dp=args.attention_dp,
        dtype=args.dtype,
        quant=args.quant,
        kv_dtype=args.kv_dtype,
        isl=args.isl,
        osl=args.osl,
        concurrency=args.concurrency,
        context=args.context,
        memory_fraction=args.memory_fraction,
        market=args.market,
        prices={gpu.name: args.price} if args.price is not None else {},
    )
    concurrency = args.concurrency
    if args.rate is not None:
        settled = estimate_at_rate(request, args.rate)
        if settled is None:
            raise CliError(
                f"{args.rate:g} requests per second are more than this placement serves: the queue "
                "grows without end. Lower --rate, raise --tp or add replicas"
            )
        result, concurrency = settled
    else:
        result = estimate(request)
    if args.json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        print("\n".join(_lines(result, args.model, gpu.name, args.tp * args.pp, concurrency)))
    return 0


def _run_batch(args: argparse.Namespace) -> int:
    if args.out is None:
        raise CliError("--batch needs --out OUT.csv")
    if not args.batch.is_file():
        raise CliError(f"--batch {args.batch} is not a file")
    folder = args.batch.resolve().parent
    try:
        with (
            args.batch.open(newline="", encoding="utf-8-sig") as source,
            # Written beside the target and moved: a failed run leaves no half file.
            tempfile.NamedTemporaryFile(
                "w", newline="", encoding="utf-8", dir=args.out.resolve().parent, delete=False
            ) as target,
        ):
            try:
                count, failed = estimate_csv(source, target, folder=folder)
            except BaseException:
                Path(target.name).unlink(missing_ok=True)
                raise
        Path(target.name).chmod(0o644)
        Path(target.name).replace(args.out)
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"--batch: {error}") from None
    print(f"{count} rows, {failed} with an error, written to {args.out}", file=sys.stderr)
    return 0


def _lines(result: Estimate, model: str, gpu: str, gpus: int, concurrency: int) -> list[str]:
    """The estimate for a person to read."""
    memory = result.memory
    lines = [
        f"{model} on {gpus} × {gpu}: {result.shape.summary()}",
        "",
        f"Fits: {'yes' if result.fits else 'no'}    attention: {result.shape.attention}",
        "Memory per GPU:",
        *(f"  {name:17s}{size / GIB:9.2f} GiB" for name, size in memory.lines()),
        f"  {'total':17s}{memory.total / GIB:9.2f} of {memory.usable / GIB:.2f} GiB usable",
        f"KV cache holds {memory.kv_capacity_tokens:,} tokens, "
        f"{memory.max_concurrency:,} sequences of the asked length",
        "",
        f"At {concurrency} requests in flight ({result.basis}"
        f"{'' if result.in_domain else ', outside the measured domain'}), 90 % intervals:",
        f"  TTFT        {_band(result.ttft_s, 1e3, 'ms')}",
        f"  TPOT        {_band(result.tpot_s, 1e3, 'ms')}",
        f"  throughput  {_band(result.throughput_tok_s, 1, 'output tokens/s')}",
        f"  cost        {_band(result.usd_per_million_tokens, 1, 'USD per million output tokens')}",
    ]
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    return lines


def _band(interval: Interval | None, scale: float, unit: str) -> str:
    if interval is None:
        return "–"
    value = interval.scaled(scale)
    return f"{value.value:,.4g} ({value.low:,.4g} to {value.high:,.4g}) {unit}"
