"""Which tables a sweep must inspect: those that the catalog lists with another metadata file than the timeline has.

Listing costs one request per hundred tables; a table that did not change costs nothing else. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from catalog.iceberg import TRANSACTION_PREFIX
from catalog.timeline.log import store_keys
from catalog.timeline.log.store import Store
from catalog.timeline.sequencer.table_state import TableState

SWEPT_TOGETHER = 200
"""Tables that one run inspects. A sweep that ends after some runs has made progress."""


def tables_to_inspect(database: Store, listed: Mapping[str, str | None]) -> list[str]:
    """The listed tables that the timeline does not have as they are listed, then those that only the timeline has.

    In this order, because a table that was renamed must be found under its new name first. Last come the tables that
    did not change but are inspected by every sweep: those with a transaction's branch, because somebody has to learn
    that its writer crashed, and those with leaves that are held back. One scan.
    """
    rows = database.scan(b"state/", store_keys.after(b"state/"))
    live = {state.name: state for state in (TableState.decode(value) for _, value in rows) if not state.dropped}
    unchanged = {name for name, state in live.items() if state.metadata_location == listed.get(name, "")}
    changed = [name for name in listed if name not in unchanged]
    gone = [name for name in live if name not in listed]
    return [*changed, *gone, *(name for name in listed if name in unchanged and _is_undecided(live[name]))]


def _is_undecided(state: TableState) -> bool:
    return state.held or any(ref.startswith(TRANSACTION_PREFIX) for ref in state.refs)


def runs_of(names: Iterable[str]) -> Iterator[list[str]]:
    """The names in the runs of a sweep: one run at least, which publishes what an earlier one left unpublished."""
    distinct = list(dict.fromkeys(names))
    for start in range(0, max(1, len(distinct)), SWEPT_TOGETHER):
        yield distinct[start : start + SWEPT_TOGETHER]
