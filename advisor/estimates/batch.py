"""Many estimates from a CSV file: models and placements are built once, not per row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from advisor.catalog import UnknownNameError, find_gpu
from advisor.estimates.models import ResolvedModel, model_from_config, resolve_model
from advisor.estimates.rows import (
    MAX_TOKENS,
    RowError,
    placement_of,
    read_parallelism,
    row_dtype,
    row_int,
)
from advisor.estimates.service import EstimateRequest, estimate
from advisor.shapes import ShapeError, parse_config_text

# Columns added to each row, in this order; intervals as value, low and high.
_INTERVALS = ("ttft_s", "tpot_s", "throughput_tok_s", "usd_per_million_tokens")
_PLAIN = (
    "params_total",
    "params_active",
    "weight_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_token_growing",
    "state_bytes_per_seq",
    "attention",
    "fits",
    "kv_capacity_tokens",
    "max_concurrency",
)
RESULT_COLUMNS: tuple[str, ...] = (
    *_PLAIN,
    *(f"{name}{end}" for name in _INTERVALS for end in ("", "_low", "_high")),
    "basis",
    "in_domain",
    "notes",
    "error",
)


class Batch:
    """Estimates rows one after another; keeps the models and placements it has met."""

    def __init__(
        self, folder: Path | None = None, prices: Mapping[str, float] | None = None
    ) -> None:
        self._folder = folder
        self._prices = dict(prices or {})
        self._models: dict[str, ResolvedModel] = {}

    def row(self, row: Mapping[str, str]) -> dict[str, Any]:
        """Result columns of one row; a row that cannot be read has only `error`."""
        try:
            request = self._request(row)
            result = estimate(request).as_dict()
        except (RowError, ShapeError, UnknownNameError) as error:
            return {**dict.fromkeys(RESULT_COLUMNS), "error": str(error)}
        flat: dict[str, Any] = {name: result[name] for name in _PLAIN}
        for name in _INTERVALS:
            value = result[name]
            flat[name] = None if value is None else value["value"]
            flat[f"{name}_low"] = None if value is None else value["low"]
            flat[f"{name}_high"] = None if value is None else value["high"]
        flat["basis"], flat["in_domain"] = result["basis"], result["in_domain"]
        flat["notes"] = "; ".join(result["notes"])
        flat["error"] = None
        return flat

    def _request(self, row: Mapping[str, str]) -> EstimateRequest:
        model = self._model(row)
        name = (row.get("system") or row.get("gpu") or "").strip()
        if not name:
            raise RowError("gpu", "is missing; name a GPU in column gpu or system")
        gpu = _gpu(name)
        plan = read_parallelism(row, gpus_per_node=gpu.gpus_per_node)
        place = placement_of(model.shape, gpu, plan, row_dtype(row))
        note = plan.note
        if place.tp != plan.tp:
            note = f"tp_size {plan.tp} read as expert parallelism over {place.gpus} GPUs"
        return EstimateRequest(
            model=model,
            gpu=gpu,
            engine=(row.get("backend") or row.get("engine") or "vllm").strip().lower(),
            engine_version=(row.get("backend_version") or row.get("engine_version") or "").strip(),
            tp=place.tp,
            pp=place.pp,
            gpus=place.gpus,
            expert_parallel=place.expert_parallel,
            attention_dp=place.attention_dp,
            dtype=place.dtype,
            kv_dtype=(row.get("kv_dtype") or "auto").strip(),
            isl=row_int(row, "isl", None, MAX_TOKENS),
            osl=row_int(row, "osl", None, MAX_TOKENS),
            concurrency=plan.concurrency,
            prices=self._prices,
            notes=(note,) if note else (),
        )

    def _model(self, row: Mapping[str, str]) -> ResolvedModel:
        config = (row.get("config") or "").strip()
        name = (row.get("model_path") or row.get("model") or "").strip()
        key = config or name
        if not key:
            raise RowError("model_path", "is missing; give a path, a known model id or a config")
        if key not in self._models:
            if config.startswith("{"):
                self._models[key] = model_from_config(parse_config_text(config))
            else:
                local = self._folder / key if self._folder is not None else None
                found = local is not None and local.exists()
                self._models[key] = resolve_model(str(local) if found else key)
        return self._models[key]


@lru_cache(maxsize=128)
def _gpu(name: str) -> Any:
    return find_gpu(name)


def estimate_rows(
    rows: Iterable[Mapping[str, str]],
    *,
    folder: Path | None = None,
    prices: Mapping[str, float] | None = None,
) -> Iterator[dict[str, Any]]:
    """Result columns per row, in order. Paths in the rows are relative to `folder`."""
    batch = Batch(folder, prices)
    for row in rows:
        yield batch.row(row)


def estimate_csv(
    source: IO[str], target: IO[str], *, folder: Path | None = None
) -> tuple[int, int]:
    """Copy a CSV with the result columns added; returns (rows, rows with an error).

    Raises `RowError` when the file has no header with the needed columns.
    """
    reader = csv.DictReader(source)
    columns = reader.fieldnames or []
    if not {"model_path", "model", "config"} & set(columns):
        raise RowError("model_path", "no such column: the file needs model_path or config")
    for name in ("isl", "osl"):
        if name not in columns:
            raise RowError(name, "no such column; give the tokens of the workload")
    extra = [name for name in RESULT_COLUMNS if name not in columns]
    writer = csv.DictWriter(target, [*columns, *extra], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    batch, count, failed = Batch(folder), 0, 0
    for row in reader:
        result = batch.row({k: v for k, v in row.items() if k is not None and isinstance(v, str)})
        count += 1
        failed += result["error"] is not None
        writer.writerow({**row, **{k: _text(v) for k, v in result.items()}})
    return count, failed


def _text(value: Any) -> str:
    """Numbers as they print in JSON; None as an empty field: not known is never 0."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
