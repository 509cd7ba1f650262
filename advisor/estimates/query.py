"""What a person or a script asks of an estimate, as plain values; checked by field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from advisor.estimates.rows import MAX_CONCURRENCY, MAX_GPUS, MAX_TOKENS

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Word = Annotated[str, StringConstraints(max_length=40, strip_whitespace=True)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Gpus = Annotated[int, Field(ge=1, le=MAX_GPUS)]
Rate = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class EstimateQuery(BaseModel):
    """One question; the names are those of `tuning-advisor estimate`.

    model: a model id of the catalogue or a folder that an agent offers; or `config`, the parsed
    config.json. gpu: a GPU of the catalogue; or `agent`, whose hardware is taken.
    rate: requests per second, instead of `concurrency`. day_req_s: request rate per equal slice
    of a day, for replicas and the cost of a day.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: Name | None = None
    config: dict[str, Any] | None = None
    gpu: Name | None = None
    agent: Annotated[str, Field(max_length=64)] | None = None
    engine: Literal["vllm", "sglang", "trtllm", "transformers"] = "vllm"
    engine_version: Word = ""
    tp: Gpus = 1
    pp: Gpus = 1
    expert_parallel: bool = False
    attention_dp: bool = False
    dtype: Word = "auto"
    quant: Word = "auto"
    kv_dtype: Word = "auto"
    isl: Tokens = 1000
    osl: Tokens = 256
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 16
    rate: Annotated[Rate, Field(gt=0)] | None = None
    context: Tokens | None = None
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    market: Literal["on-demand", "reserved", "spot", "marketplace", "community"] = "on-demand"
    day_req_s: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=288)] | None = None
    headroom: Annotated[float, Field(ge=0, lt=1)] = 0.2
    interruptions_per_hour: Annotated[float, Field(ge=0, le=60)] = 0.05
    reload_s: Annotated[float, Field(ge=0, le=86_400)] = 300

    @model_validator(mode="after")
    def _one_model_on_one_device(self) -> Self:
        if (self.model is None) == (self.config is None):
            raise ValueError("give either model or config")
        if (self.gpu is None) == (self.agent is None):
            raise ValueError("give either gpu or agent")
        return self
