"""Tables whose rows are not erased: one under a legal hold, and one whose files another table may read. Reads only.

An erasure deletes all versions of objects below the table's folders. It must be certain that they are this table's own:
a renamed table keeps its folder, a clone reads the files of its source, and a writer can set a table's location.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core import s3_layout
from catalog.core.errors import Conflict, NotFound
from catalog.iceberg import TRANSACTION_PREFIX
from catalog.tables import CLONE_OF, Tables, TableVersion, check_hold


@dataclass(frozen=True)
class Preconditions:
    tables: Tables
    bucket: str

    def check(self, version: TableVersion) -> None:
        """Denied under a legal hold; Conflict while a transaction or a clone needs the table's files. No request."""
        name = version.name
        check_hold(version, "erased from")
        if any(ref.startswith(TRANSACTION_PREFIX) for ref in version.metadata.refs):
            raise Conflict(f"a transaction holds {name}: run it again when the transaction has ended", subject=name)
        if clones := [ref for ref in version.metadata.refs if ref.startswith("clone-")]:
            raise Conflict(
                f"{name} has a clone, which reads its files ({clones[0]}): drop the clone with --purge first",
                subject=name,
            )
        root = f"s3://{self.bucket}/{s3_layout.TABLES}"
        for folder in folders(version):
            if not folder.startswith(root) or folder.count("/") < root.count("/") + 2:
                raise Conflict(
                    f"the location {folder} of {name} is not a table's folder of this lake "
                    f"({root}<database>/<table>/), so nothing is deleted below it: copy the rows to a new table, and "
                    "purge this one",
                    subject=name,
                )

    def check_others(self, version: TableVersion) -> None:
        """Conflict if another table has a folder in common with this one, or is a clone of one with its name.

        One GetTable and one GET of metadata for each table of the lake.
        """
        own = folders(version)
        for name in self.tables.list():
            if name == version.name:
                continue
            try:
                other = self.tables.table_store.load(name)
            except NotFound:  # dropped since, or not an Iceberg table
                continue
            if other.properties.get(CLONE_OF, "").partition("@")[0] == version.name:
                raise Conflict(
                    f"{name} is a clone that may read files of {version.name}: drop the clone with --purge first",
                    subject=version.name,
                )
            if any(a.startswith(b) or b.startswith(a) for a in own for b in folders(other)):
                raise Conflict(
                    f"the location of {version.name} is that of {name}, too, so files cannot be told apart: copy the "
                    "rows of one of them to a new table, and purge it",
                    subject=version.name,
                )


def folders(version: TableVersion) -> tuple[str, ...]:
    """Where the table has its objects, each ended by a slash."""
    paths = version.paths()
    distinct = dict.fromkeys((version.metadata.location, paths.data_path, paths.metadata_path))
    return tuple(f"{folder.rstrip('/')}/" for folder in distinct)
