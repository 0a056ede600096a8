"""Small traces, written by hand, for the tests of `bill`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HELLO: list[dict[str, Any]] = [
    {"step": 0, "loop": 1, "kind": "llm", "content": "ab", "tokens": {"in": 3, "out": 4}, "cost": 0.25},
    {"step": 1, "loop": 1, "kind": "tool", "content": "cd"},
    {"step": 2, "loop": 2, "kind": "llm", "content": "é", "set": {"queue": [1]}, "dp": True, "tokens": 5, "cost": 0.5},
    {"step": 3, "loop": 3, "kind": "llm", "content": {"x": 1}, "set": {"queue": [1, 2]}, "cost": 0},
]
"""Three loops. The states after them, as JSON without spaces, are

    {"memory":["ab","cd"]}                                 22 bytes
    {"memory":["ab","cd","é"],"queue":[1]}                 39 bytes, for é takes two
    {"memory":["ab","cd","é",{"x":1}],"queue":[1,2]}       49 bytes
"""
DUMPS = (22, 39, 49)


def write(path: Path, lines: list[Any]) -> Path:
    """A trace of these lines; a text or bytes is a line as it is."""
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path
