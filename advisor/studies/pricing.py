"""What an organisation pays for GPUs, as estimates and rules take it."""

from __future__ import annotations

from advisor.accounts.models import Org
from advisor.accounts.selectors import prices_of


def own_prices(org: Org) -> dict[str, float]:
    """USD per GPU and hour that the organisation pays, by GPU."""
    return {price.gpu: price.usd_per_gpu_hour for price in prices_of(org)}
