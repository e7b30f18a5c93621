"""The dialect of queries: DuckDB's, with `@@` for search, and parameters as `$name` and `$1`."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType


def _match_against(parser: Any, column: exp.Expr) -> exp.Expr:
    return parser.expression(exp.MatchAgainst(this=parser._parse_bitwise(), expressions=[column]))  # type: ignore[no-any-return]


class LakeDialect(DuckDB):
    class Tokenizer(DuckDB.Tokenizer):
        KEYWORDS: ClassVar[Any] = {**DuckDB.Tokenizer.KEYWORDS, "@@": TokenType.DAT}

    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]
        RANGE_PARSERS: ClassVar[Any] = {**DuckDB.Parser.RANGE_PARSERS, TokenType.DAT: _match_against}
        PLACEHOLDER_PARSERS: ClassVar[Any] = {
            **DuckDB.Parser.PLACEHOLDER_PARSERS,
            TokenType.PARAMETER: lambda self: self._parse_parameter(),
        }


DIALECT = LakeDialect
