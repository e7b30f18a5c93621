"""Reads strace's output: which regular files a traced process made or opened for writing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

CALLS = (
    "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,"
    "link,linkat,symlink,symlinkat,truncate"
)

_OPENS = ("open", "openat", "openat2")
_WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE|APPEND)")
_CALL = re.compile(r"^(?P<pid>\d+)\s+(?P<name>\w+)\((?P<arguments>.*)\)\s+=\s+(?P<result>-?\d+|\?)")
_UNFINISHED = re.compile(r"^(?P<pid>\d+)\s+(?P<begin>\w+\(.*?)\s*<unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?P<pid>\d+)\s+<\.\.\. \w+ resumed>(?P<rest>.*)$")
_PATH = re.compile(r'"((?:[^"\\]|\\.)*)"')

# Devices and the kernel's own files: bytes sent there are not kept.
_NOT_FILES = re.compile(r"^/(dev/(null|zero|tty|urandom|random|pts/|fd/)|proc/)")


def strace(output: str) -> tuple[str, ...]:
    """The prefix that traces a command and all its children. -D: the tracer stays out of the family tree."""
    return ("strace", "-D", "-f", "-qq", "-s", "4096", "-e", f"trace={CALLS}", "-o", output)


def written_files(lines: Iterable[str]) -> Iterator[str]:
    """`open /tmp/x` for each call that succeeded and leaves or changes something in a file system."""
    for line in _whole(lines):
        call = _CALL.match(line)
        if call is None or call["result"] in ("-1", "?"):
            continue
        if call["name"] in _OPENS and not _WRITING.search(call["arguments"]):
            continue
        paths = _PATH.findall(call["arguments"])
        if paths and not _NOT_FILES.match(paths[-1]):
            yield f"{call['name']} {paths[-1]}"


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Calls that other threads interrupted are put together again."""
    begun: dict[str, str] = {}
    for line in lines:
        if unfinished := _UNFINISHED.match(line):
            begun[unfinished["pid"]] = unfinished["begin"]
        elif resumed := _RESUMED.match(line):
            yield f"{resumed['pid']} {begun.pop(resumed['pid'], '')}{resumed['rest']}"
        else:
            yield line.rstrip("\n")
