"""The page of the errors: the seven kinds, and the HTTP status, exit code and next step of each."""

from __future__ import annotations

import inspect

from catalog import LakeError
from catalog.core.errors import KINDS
from tools.reference.markdown import code, paragraph, table

_NEXT = {
    "invalid": "correct the input; nothing was written",
    "not_found": "check the name; it does not exist, or you may not read it",
    "conflict": "read the current state, then try again",
    "denied": "ask the operator for a role that allows it",
    "unverified": "do not try again: find out who changed what",
    "unavailable": "try again later",
    "internal": "report it to the lake's operator",
}


def page() -> str:
    subclasses = (error for error in LakeError.__subclasses__() if error.__module__ == LakeError.__module__)
    classes = {error.kind.name: error for error in subclasses}
    lines = ["# Errors", "", paragraph(LakeError.__doc__ or ""), ""]
    rows = [
        (
            code(kind.name),
            code(classes[kind.name].__name__),
            str(kind.http_status),
            str(kind.exit_code),
            kind.decision.value,
            _NEXT[kind.name],
        )
        for kind in KINDS
    ]
    lines += table(("kind", "in Python", "HTTP status", "exit code", "a queue's message", "what to do next"), rows)
    for kind in KINDS:
        docstring = classes[kind.name].__dict__.get("__doc__")
        if docstring:
            lines += [f"- `{kind.name}`: {paragraph(inspect.cleandoc(docstring))}"]
    lines += ["", "## As data", "", "`strandline -o json` writes an error to stderr as below. Its log lines have"]
    lines += ["the same three fields; `subject` is present if the error is about one thing:", "", "```json"]
    lines += ['{"error": {"kind": "not_found", "message": "there is no table a.tides", "subject": "a.tides"}}']
    lines += ["```", "", "Over HTTP an error is `application/problem+json` (RFC 9457) whose `type` is"]
    lines += ["`urn:strandline:<kind>`: see [the HTTP API](../guide/api.md#rules-that-hold-everywhere)."]
    return "\n".join(lines)
