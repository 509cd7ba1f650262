"""Facts about GPUs, prices and models, with their sources. Pure; no network, no clock."""

from advisor.catalog.gpus import GpuSpec, cpu_host, find_gpu, list_gpus
from advisor.catalog.models import KnownModel, find_model, list_models
from advisor.catalog.names import UnknownNameError
from advisor.catalog.prices import MARKETS, Price, PriceBasis, list_prices, price_basis

__all__ = [
    "MARKETS",
    "GpuSpec",
    "KnownModel",
    "Price",
    "PriceBasis",
    "UnknownNameError",
    "cpu_host",
    "find_gpu",
    "find_model",
    "list_gpus",
    "list_models",
    "list_prices",
    "price_basis",
]
