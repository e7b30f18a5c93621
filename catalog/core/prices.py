"""AWS's list prices: the router compares engines by them, and `strandline cost` estimates with them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

PRICES = Path(__file__).with_name("prices.json")


@cache
def load_prices(path: Path = PRICES) -> dict[str, float]:
    """Name -> dollars for one unit. The file also has the unit of each price, and the month of the prices."""
    return {name: float(entry["dollars"]) for name, entry in json.loads(path.read_text())["prices"].items()}


def dollars_for(name: str) -> float:
    return load_prices()[name]
