"""What an agent's actions return: text, embeddings and tasks, made from a seed.

Owns: the word list, and the sizes of one cycle's results.
Must never: read a file, or give the same cycle other data on another run.
Invariant: this text compresses about as well as English prose does (zstd level 1, in pieces of 2 KB: to
0.52 alone and 0.40 after other such text; Python's documentation: 0.46 and 0.39).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import NamedTuple

import msgspec

TEXT_BYTES = 2048
PASSAGE_BYTES = 1024
EMBEDDING_BYTES = 1536
TASK_BYTES = 120
TASKS = 3

_COMMON = (  # noqa: SIM905
    "the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they "
    "you were their one all we can her has there been if more when will would who so no"
).split()
_WORDS = (  # noqa: SIM905
    "supplier price contract delivery invoice market report quarter revenue margin customer region factory shipment "
    "order stock warehouse quality standard certificate inspection material steel copper polymer coating bearing motor "
    "sensor voltage current battery charger module firmware release version customer support ticket response latency "
    "network storage database index query transaction journal snapshot replica failure recovery backup schedule team "
    "manager engineer analyst director partner agreement clause liability warranty penalty discount currency exchange "
    "tariff customs border transport carrier vessel container harbour railway route distance weather season harvest "
    "wheat cotton timber paper printing textile chemical solvent pressure temperature humidity measurement tolerance "
    "calibration instrument laboratory sample method result evidence source citation paragraph chapter author journal "
    "volume edition publisher archive library museum university college student professor lecture research hypothesis "
    "experiment control variable regression estimate interval confidence variance median average maximum minimum total "
    "increase decrease growth decline forecast budget account balance payment credit interest loan capital investment "
    "share dividend auditor regulator authority ministry policy statute regulation directive compliance requirement "
    "government election parliament committee hearing witness testimony verdict appeal court judge lawyer police city "
    "village river mountain valley forest coast island desert climate energy solar wind turbine reactor hydrogen grid "
    "demand capacity efficiency emission carbon offset project milestone deadline risk mitigation dependency resource "
    "allocation priority objective strategy tactic campaign audience message channel platform subscriber retention "
    "compare collect verify summarise negotiate confirm postpone cancel approve reject deliver produce replace improve "
    "maintain measure observe describe explain suggest consider require provide include remain become appear continue "
    "recent annual monthly weekly global local regional domestic foreign private public primary secondary reliable "
    "expensive affordable significant moderate severe gradual sudden likely uncertain available complete partial "
    "however therefore although because while during after before between within without against toward across "
    "approximately roughly nearly exactly mostly usually often rarely previously subsequently eventually meanwhile"
).split()

# By rank, as in any language: a few words make up half of a text.
_VOCABULARY = (*_COMMON, *dict.fromkeys(_WORDS))
_WEIGHTS = list(accumulate(1 / (rank + 2.7) ** 0.9 for rank in range(len(_VOCABULARY))))


class Results(NamedTuple):
    """What the actions of one cycle return."""

    text: str
    passage: str
    embedding: bytes
    tasks: list[str]

    def packed(self) -> bytes:
        """The same data once, as MessagePack: the floor's row, and what "raw data" means."""
        return msgspec.msgpack.encode(list(self))


def results(seed: int) -> Iterator[Results]:
    """The results of cycle after cycle."""
    draw = Random(seed)
    while True:
        tasks = [prose(draw, TASK_BYTES) for _ in range(TASKS)]
        yield Results(prose(draw, TEXT_BYTES), prose(draw, PASSAGE_BYTES), draw.randbytes(EMBEDDING_BYTES), tasks)


def prose(draw: Random, size: int) -> str:
    """`size` bytes of sentences."""
    parts: list[str] = []
    length = 0
    while length < size:
        words = draw.choices(_VOCABULARY, cum_weights=_WEIGHTS, k=draw.randint(6, 22))
        if draw.random() < 0.3:
            words.insert(draw.randrange(len(words)), f"{draw.uniform(1, 9000):.{draw.randint(0, 2)}f}")
        if draw.random() < 0.4:
            words[draw.randrange(len(words))] += ","
        sentence = " ".join(words).capitalize() + draw.choice((". ", ". ", ". ", "? ", ".\n\n"))
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)[:size]
