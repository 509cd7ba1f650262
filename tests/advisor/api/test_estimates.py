"""POST /api/v1/estimates and /api/v1/gpus: promised keys, own prices, own measurements."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from advisor.accounts.models import GpuPrice, Org
from advisor.fleet.models import Agent
from advisor.studies.estimating import device_of, own_measurements
from gpuagent.wire import EngineSettings
from tests import builders, factories

QUESTION = {"model": "Qwen/Qwen3-32B", "gpu": "H100 SXM", "tp": 2, "isl": 1024, "osl": 512}
PROMISED = [
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
    "ttft_s",
    "tpot_s",
    "throughput_tok_s",
    "usd_per_million_tokens",
    "basis",
    "in_domain",
    "notes",
]


def ask(client: Client, **changes: Any) -> Any:
    body = {**QUESTION, **changes}
    body = {key: value for key, value in body.items() if value is not None}
    return client.post("/api/v1/estimates", body, content_type="application/json")


def told(client: Client, **changes: Any) -> dict[str, Any]:
    response = ask(client, **changes)
    assert response.status_code == 200, response.content
    return response.json()


def test_the_answer_has_the_promised_keys_and_what_they_rest_on(reader: Client) -> None:
    answer = told(reader)
    assert list(answer)[: len(PROMISED)] == PROMISED
    assert answer["params_total"] == 32_762_123_264
    assert (answer["basis"], answer["in_domain"], answer["gpu"]) == ("calibrated", True, "H100 SXM")
    memory = answer["memory"]
    parts = [memory["weights"], memory["kv"]]
    parts += [memory[name]["value"] for name in ("activation", "graphs", "runtime")]
    assert sum(parts) == memory["total"]
    assert answer["cost"]["usd_per_hour"] == pytest.approx(2 * answer["price"]["usd_per_gpu_hour"])
    assert answer["energy"]["joules_per_token"] is None
    assert answer["day"] == []
    assert answer["day_reason"]


def test_a_config_gives_the_same_as_its_folder(reader: Client, agent: Agent) -> None:
    changes = {"tp": 1, "gpu": "L4", "dtype": "bf16"}
    by_name = told(reader, model="SmolLM2-135M-Instruct", **changes)
    by_config = told(reader, model=None, config=builders.SMOLLM2_CONFIG, **changes)
    assert by_name["params_total"] == by_config["params_total"] == builders.SMOLLM2_PARAMS
    assert by_name["tpot_s"] == by_config["tpot_s"]


def test_a_day_gives_replicas_and_three_ways_to_buy_them(reader: Client) -> None:
    answer = told(reader, day_req_s=[1.0] * 18 + [20.0] * 6, headroom=0.25)
    kinds = {day["kind"]: day["usd_per_day"] for day in answer["day"]}
    assert set(kinds) == {"fixed", "autoscaled", "spot"}
    assert kinds["spot"] < kinds["autoscaled"] < kinds["fixed"]
    replicas = answer["replicas"]
    assert replicas["replicas"] * answer["capacity_req_s"] * 0.75 >= 20
    assert (replicas["replicas"] - 1) * answer["capacity_req_s"] * 0.75 < 20


def test_a_rate_settles_at_a_concurrency(reader: Client) -> None:
    assert 1 < told(reader, rate=1.0)["concurrency"] < 64


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": "nobody/nothing"}, "model"),
        ({"model": "/etc/passwd"}, "model"),
        ({"model": None}, "__all__"),
        ({"model": None, "config": {"model_type": "bert"}}, "config"),
        ({"model": None, "config": {}}, "config"),
        ({"gpu": "H1000"}, "gpu"),
        ({"agent": "bench-1"}, "__all__"),
        ({"gpu": None, "agent": "elsewhere"}, "agent"),
        ({"tp": 0}, "tp"),
        ({"isl": "many"}, "isl"),
        ({"isl": 10**12}, "isl"),
        ({"quant": "magic"}, "quant"),
        ({"kv_dtype": "fp3"}, "kv_dtype"),
        ({"pp": 65}, "pp"),
        ({"rate": 1e6}, "rate"),
        ({"day_req_s": [-1.0]}, "day_req_s.0"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_bad_input_is_400_with_the_field(
    reader: Client, changes: dict[str, Any], field: str
) -> None:
    response = ask(reader, **changes)
    assert response.status_code == 400
    assert field in response.json()["fields"]


def test_the_gpu_list_has_sources_and_prices(reader: Client) -> None:
    gpus = {gpu["name"]: gpu for gpu in reader.get("/api/v1/gpus").json()["results"]}
    h100 = gpus["H100 SXM"]
    assert h100["source"]
    assert h100["price"]["own"] is False
    assert h100["price"]["n"] > 1
    assert gpus["CPU server (DDR5, 8 channels)"]["vendor"] == "CPU"


def test_an_own_price_wins_until_it_is_removed(api: Client, reader: Client, org: Org) -> None:
    before = told(reader)["usd_per_million_tokens"]["value"]
    price = told(reader)["price"]["usd_per_gpu_hour"]
    body = {"usd_per_gpu_hour": price / 2, "reason": "Reserved, 12 months"}
    path = "/api/v1/gpus/h100_sxm/price"
    set_ = api.put(path, body, content_type="application/json")
    assert set_.status_code == 200
    assert set_.json()["price"]["own"] is True
    assert told(reader)["usd_per_million_tokens"]["value"] == pytest.approx(before / 2)
    assert org.audit_events.filter(action="price.set", target="H100 SXM").exists()
    assert reader.delete(path).status_code == 403
    assert api.delete(path).json()["price"]["own"] is False
    assert told(reader)["usd_per_million_tokens"]["value"] == pytest.approx(before)


@pytest.mark.parametrize("price", [0, -1, 1e9, "much", None])
def test_a_price_that_cannot_be_is_refused(api: Client, org: Org, price: Any) -> None:
    body = {"usd_per_gpu_hour": price}
    response = api.put("/api/v1/gpus/L4/price", body, content_type="application/json")
    assert response.status_code == 400
    assert "usd_per_gpu_hour" in response.json()["fields"]
    assert not GpuPrice.objects.exists()


def test_a_price_of_an_unknown_gpu_is_404_with_close_names(api: Client) -> None:
    body = {"usd_per_gpu_hour": 1.0}
    response = api.put("/api/v1/gpus/H1000/price", body, content_type="application/json")
    assert response.status_code == 404
    assert "H100" in response.json()["message"]


OWN = {
    "model": "SmolLM2-135M-Instruct",
    "gpu": None,
    "agent": "bench-1",
    "engine": "transformers",
    "tp": 1,
    "isl": 64,
    "osl": 16,
    "concurrency": 1,
}


def test_finished_trials_recalibrate_the_prediction_on_their_own_hardware(
    reader: Client, agent: Agent, org: Org
) -> None:
    before = told(reader, **OWN)
    assert before["basis"] == "roofline"
    study = factories.create_study(org, agent=agent)
    baseline = builders.make_baseline_result("bfloat16", ttft_s=0.15, itl_s=0.06)
    factories.create_trial(study, builders.make_trial(baseline))
    after = told(reader, **OWN)
    assert after["basis"] == "calibrated"
    assert any("own measurements of this model" in note for note in after["notes"])
    assert after["tpot_s"]["value"] == pytest.approx(0.06, rel=0.3)
    assert abs(after["tpot_s"]["value"] - 0.06) < abs(before["tpot_s"]["value"] - 0.06)
    assert told(reader, **{**OWN, "engine": "vllm"})["basis"] == "roofline"


def test_trials_that_say_nothing_about_serving_do_not_count(agent: Agent, org: Org) -> None:
    study = factories.create_study(org, agent=agent)
    baseline = builders.make_baseline_result()
    uncached = builders.make_trial(baseline, settings=EngineSettings(kv_cache=False))
    invalid = builders.make_trial(baseline, validity=builders.make_validity("invalid"))
    for trial in (uncached, invalid):
        factories.create_trial(study, trial)
    factories.create_trial(study, builders.make_trial(builders.make_kv_result()))
    foreign = factories.create_org("Elsewhere")
    there = factories.create_agent(foreign, "bench-9")
    theirs = factories.create_study(foreign, agent=there)
    factories.create_trial(theirs, builders.make_trial(baseline))
    device = device_of(agent.hello)
    assert device is not None
    assert own_measurements(org=org, gpu=device, engine="transformers") == ()
