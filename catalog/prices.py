"""AWS's list prices, stated once: the router weighs engines by them, and `strandline cost` adds them up."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

PRICES = Path(__file__).with_name("prices.json")


@cache
def load_prices(path: Path = PRICES) -> dict[str, float]:
    """Name -> dollars for one unit. The file also says each one's unit, and of which month it is."""
    return {name: float(entry["dollars"]) for name, entry in json.loads(path.read_text())["prices"].items()}


def dollars_for(name: str) -> float:
    return load_prices()[name]
