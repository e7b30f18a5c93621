"""Random SELECT statements over two tables, from a grammar that two engines read alike.

Left out on purpose, because engines differ in them by design: integer division, text from floats, order of NULLs
when it is not said, LIMIT without a total order, and minus zero.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

NUMBERS = {"t": ["id", "grp", "num"], "u": ["uid", "grp", "qty"]}
FLOATS = {"t": ["ratio"], "u": []}
TEXTS = {"t": ["name", "region"], "u": ["label"]}
DATES = {"t": ["day"], "u": ["day"]}
BOOLS = {"t": ["flag"], "u": []}
KEYS = {"t": "id", "u": "uid"}


@dataclass
class Grammar:
    """One stream of statements; the same seed gives the same ones."""

    random: random.Random
    database: str = "qa"

    def statement(self) -> tuple[str, bool]:
        """The text, and whether the order of its rows is said."""
        kind = self.random.choice(["plain", "plain", "group", "group", "join", "join", "set", "sub", "window", "cte"])
        return getattr(self, f"_{kind}")()

    def _plain(self) -> tuple[str, bool]:
        name = self._table()
        chosen = self.random.sample(self._columns(name), self.random.randint(1, 3))
        items = [*chosen, *(f"{self._value(name)} AS v{n}" for n in range(self.random.randint(0, 2)))]
        distinct = self.random.random() < 0.2
        text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items)} FROM {self._from(name)}{self._where(name)}"
        if distinct or self.random.random() < 0.5:
            return text, False
        key = KEYS[name]
        way = self.random.choice(["ASC NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST"])
        text = text.replace("SELECT ", f"SELECT {key} AS k, ", 1) + f" ORDER BY k {way}"
        if self.random.random() < 0.6:
            text += f" LIMIT {self.random.randint(0, 12)}"
            text += f" OFFSET {self.random.randint(0, 5)}" if self.random.random() < 0.3 else ""
        return text, True

    def _group(self) -> tuple[str, bool]:
        name = self._table()
        by = self.random.sample(self._groupable(name), self.random.randint(0, 2))
        items = [*by, *(f"{self._aggregate(name)} AS a{n}" for n in range(self.random.randint(1, 3)))]
        text = f"SELECT {', '.join(items)} FROM {self._from(name)}{self._where(name)}"
        if by:
            text += f" GROUP BY {', '.join(by)}"
            text += f" HAVING count(*) {self._comparison()} {self.random.randint(0, 6)}" if self._maybe(0.4) else ""
        return text, False

    def _join(self) -> tuple[str, bool]:
        kind = self.random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"])
        on = (
            ""
            if kind == "CROSS JOIN"
            else f" ON {self.random.choice(['a.grp = b.grp', 'a.id = b.uid', 'a.day = b.day'])}"
        )
        if on and self._maybe(0.3):
            on += f" AND {self._condition('b', 'u')}"
        text = (
            f"SELECT a.id, b.uid, a.grp + b.qty AS s, b.label FROM {self._from('t')} a {kind} {self._from('u')} b{on}"
        )
        if self._maybe(0.7):
            text += f" WHERE {self._condition('a', 't')}"
            text += f" AND {self._condition('b', 'u')}" if self._maybe(0.4) else ""
        return text, False

    def _set(self) -> tuple[str, bool]:
        word = self.random.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        first = f"SELECT grp AS x, day AS y FROM {self._from('t')}{self._where('t')}"
        return f"{first} {word} SELECT grp, day FROM {self._from('u')}{self._where('u')}", False

    def _sub(self) -> tuple[str, bool]:
        inner = self._where("u", "i")
        start = f"SELECT o.id, o.name FROM {self._from('t')} o WHERE "
        negated = "NOT " if self._maybe(0.3) else ""
        joined = f"{' AND' if inner else ' WHERE'} i.grp = o.grp"
        choices = [
            f"{negated}EXISTS (SELECT 1 FROM {self._from('u')} i{inner}{joined})",
            f"o.grp IN (SELECT i.grp FROM {self._from('u')} i{inner})",
            f"o.grp {self._comparison()} (SELECT max(i.qty) FROM {self._from('u')} i{inner})",
            f"o.num > (SELECT count(*) FROM {self._from('u')} i{inner}{joined})",
        ]
        text = start + self.random.choice(choices)
        return (f"{text} AND {self._condition('o', 't')}" if self._maybe(0.5) else text), False

    def _window(self) -> tuple[str, bool]:
        function = self.random.choice(
            ["row_number()", "sum(num)", "count(*)", "lag(grp)", "max(day)", "rank()", "first_value(name)"]
        )
        over = f"PARTITION BY {self.random.choice(['grp', 'region', 'flag'])} ORDER BY id"
        return f"SELECT id, {function} OVER ({over}) AS w FROM {self._from('t')}{self._where('t')}", False

    def _cte(self) -> tuple[str, bool]:
        first = f"SELECT grp, count(*) AS n, sum(num) AS s FROM {self._from('t')}{self._where('t')} GROUP BY grp"
        second = f"SELECT c.grp, c.n, u.label FROM c LEFT JOIN {self._from('u')} u ON c.grp = u.grp"
        third = "SELECT x.grp, y.s FROM c x JOIN c y ON x.n = y.n"
        return f"WITH c AS ({first}) {self.random.choice([second, third])}", False

    def _from(self, name: str) -> str:
        return f"{self.database}.{name}"

    def _table(self) -> str:
        return self.random.choice(["t", "t", "u"])

    def _columns(self, name: str) -> list[str]:
        return [c for kinds in (NUMBERS, FLOATS, TEXTS, DATES, BOOLS) for c in kinds[name]]

    def _groupable(self, name: str) -> list[str]:
        return [c for kinds in (TEXTS, DATES, BOOLS) for c in kinds[name]] + ["grp"]

    def _where(self, name: str, alias: str = "") -> str:
        return f" WHERE {self._condition(alias, name)}" if self._maybe(0.7) else ""

    def _condition(self, alias: str, name: str, depth: int = 0) -> str:
        if depth < 2 and self._maybe(0.4):
            left, right = (self._condition(alias, name, depth + 1) for _ in range(2))
            text = f"({left} {self.random.choice(['AND', 'OR'])} {right})"
            return f"NOT {text}" if self._maybe(0.2) else text
        return self._atom(f"{alias}." if alias else "", name)

    def _atom(self, dot: str, name: str) -> str:
        number, text, day = self._pick(NUMBERS, name), self._pick(TEXTS, name), self._pick(DATES, name)
        choices: list[Any] = [
            lambda: f"{dot}{number} {self._comparison()} {self.random.randint(-3, 45)}",
            lambda: f"{dot}{number} BETWEEN {self.random.randint(-3, 20)} AND {self.random.randint(10, 45)}",
            lambda: f"{dot}{number} IN ({', '.join(str(self.random.randint(0, 45)) for _ in range(3))})",
            lambda: f"{dot}{text} {self._comparison()} '{self._word()}'",
            lambda: f"{dot}{text} {'NOT ' if self._maybe(0.3) else ''}LIKE '{self._word()[:2]}%'",
            lambda: f"{dot}{text} IN ('{self._word()}', '{self._word()}')",
            lambda: f"{dot}{self.random.choice(self._columns(name))} IS {'NOT ' if self._maybe(0.5) else ''}NULL",
            lambda: f"{dot}{day} {self._comparison()} DATE '2024-01-{self.random.randint(1, 28):02}'",
        ]
        if FLOATS[name]:
            choices.append(
                lambda: f"{dot}ratio {self._comparison()} {self.random.choice(['0.5', '2.25', '-1.5', '10'])}"
            )
        if BOOLS[name]:
            choices.append(lambda: f"{'NOT ' if self._maybe(0.4) else ''}{dot}flag")
        return str(self.random.choice(choices)())

    def _value(self, name: str) -> str:
        number, text = self._pick(NUMBERS, name), self._pick(TEXTS, name)
        return self.random.choice(
            [
                f"{number} + {self.random.randint(1, 9)}",
                f"{number} * 2",
                f"upper({text})",
                f"coalesce({text}, 'none')",
                f"CASE WHEN {self._condition('', name)} THEN 'yes' ELSE 'no' END",
                f"length({text})",
                f"abs({number})",
                f"nullif({number}, 3)",
            ]
        )

    def _aggregate(self, name: str) -> str:
        number, any_ = self._pick(NUMBERS, name), self.random.choice(self._groupable(name))
        return self.random.choice(
            [
                "count(*)",
                f"count({any_})",
                f"count(DISTINCT {any_})",
                f"sum({number})",
                f"min({number})",
                f"max({number})",
                f"avg({number})",
                f"min({any_})" if any_ != "flag" else "count(flag)",
                f"max({self._pick(DATES, name)})",
                f"sum({number}) FILTER (WHERE {self._condition('', name)})",
            ]
        )

    def _pick(self, kinds: dict[str, list[str]], name: str) -> str:
        return self.random.choice(kinds[name])

    def _comparison(self) -> str:
        return self.random.choice(["=", "<>", "<", "<=", ">", ">="])

    def _word(self) -> str:
        return self.random.choice(["tide", "ebb", "flow", "spring", "neap", "eu", "us", "north west harbour"])

    def _maybe(self, chance: float) -> bool:
        return self.random.random() < chance
