"""What a place to keep a run charges, and the smallest amounts it charges for.

Owns: the price list in `prices.toml`, its reading, and a user's file laid over it.
Must never: know what a run wrote, or take a figure it does not understand for zero.
Invariant: every figure is finite, not negative, in a unit its name allows, and in USD if it is money.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from indelible.errors import Misuse

BYTES_PER_GB = 2**30
"""What the vendors' bills call a GB."""

_REQUESTS = {"request": 1, "1k requests": 1_000, "10k requests": 10_000, "1M requests": 1_000_000}
_UNITS = {"unit": 1, "1M units": 1_000_000}
PER = _REQUESTS | _UNITS | {"GB": 1, "GB-month": 1, "GB-hour": 1, "hour": 1}
"""How many things the price of a unit buys."""

MONEY: dict[str, tuple[str, ...]] = {
    "storage": ("GB-month", "GB-hour"),
    "write_request": tuple(_REQUESTS),
    "read_request": tuple(_REQUESTS),
    "write_unit": tuple(_UNITS),
    "read_unit": tuple(_UNITS),
    "write_gb": ("GB",),
    "read_gb": ("GB",),
    "instance": ("hour",),
}
METERING: dict[str, tuple[str, ...]] = {
    **{f"min_{what}_bytes": ("bytes",) for what in ("write", "read", "object", "stored")},
    **{f"{what}_step_bytes": ("bytes",) for what in ("write", "read", "object", "stored")},
    **{f"{what}_extra_bytes": ("bytes",) for what in ("write", "read", "object")},
    **{f"{what}_unit_bytes": ("bytes",) for what in ("write", "read")},
    "min_age": ("days", "hours"),
    "stored_ratio": ("share",),
}
_FIGURES = MONEY | METERING
_TEXTS = ("title", "region", "note", "source", "date", "currency")
_SWITCHES = ("durable", "append_only", "appends")
_FIGURE_TEXTS = ("unit", "source", "date", "seen", "note", "currency")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number: `source` is the binding page, `seen` where it was read if not there, `date` as of when."""

    value: float
    unit: str
    source: str
    date: str
    seen: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """A place to keep a run. `durable` is False where an acknowledged write can be lost, as in a cache.
    `append_only` says that nothing can be replaced, so that every write stays. `appends` says that a file or a table
    there takes many writes, as on a disk; elsewhere each write is an object of its own."""

    name: str
    title: str
    region: str = ""
    note: str = ""
    durable: bool = True
    append_only: bool = False
    appends: bool = False
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def amount(self, name: str) -> int:
        """A number of bytes of the metering, 0 where the storage has no such rule."""
        found = self.figures.get(name)
        return 0 if found is None else int(found.value)

    def metered(self, what: str, size: int) -> int:
        """The bytes that are billed for `size` bytes as one "write", one "read", one "object", or all that is "stored":
        with what is added to each, not less than the minimum, and rounded up to the step."""
        size = max(size + self.amount(f"{what}_extra_bytes"), self.amount(f"min_{what}_bytes"))
        step = self.amount(f"{what}_step_bytes") or 1
        return -(-size // step) * step

    def units(self, what: str, size: int) -> int:
        """The request units of one "write" or "read" of `size` bytes; at least one."""
        return max(1, -(-size // (self.amount(f"{what}_unit_bytes") or 1)))

    @property
    def min_age_days(self) -> float:
        """For how many days an object is paid, however soon it is replaced or deleted."""
        found = self.figures.get("min_age")
        return 0.0 if found is None else found.value / (24 if found.unit == "hours" else 1)


@dataclass(frozen=True, slots=True)
class Prices:
    """The storages that are known, by name."""

    storages: Mapping[str, Storage]

    def __iter__(self) -> Iterator[Storage]:
        return iter(self.storages.values())

    def __getitem__(self, name: str) -> Storage:
        """The storage of that name. Raises Misuse, with the known ones, if there is none."""
        if name not in self.storages:
            raise Misuse(f"no prices for storage {name!r}", hint=f"one of: {', '.join(self.storages)}")
        return self.storages[name]


def load(user_file: Path | None = None) -> Prices:
    """The shipped price list with a user's file laid over it.

    The file is TOML: `[efs]` with `write_gb = 0.05` replaces one number and keeps its unit; a new name with a `title`
    adds a storage; `currency = "EUR"` needs `[rates]` with `EUR = 1.08`, the dollars for one. Raises Misuse, naming the
    file and the key, for anything that is not understood, negative, NaN, infinite or in an unknown currency.
    """
    shipped = files("indelible.bill").joinpath("prices.toml").read_text(encoding="utf-8")
    storages = _Sheet("prices.toml", tomllib.loads(shipped)).over({})
    if user_file is not None:
        storages = _Sheet(user_file.name, _read(user_file)).over(storages)
    return Prices(storages)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Misuse(f"the prices in {path} cannot be read: {why}", hint="--prices my-prices.toml") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"{path.name} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise Misuse(f"{path.name} is not TOML: {error}", hint="[efs]\nwrite_gb = 0.05") from error


class _Sheet:
    """One file of prices, as it was read."""

    def __init__(self, file: str, doc: dict[str, Any]) -> None:
        self.file = file
        self.currency = self._text(doc.pop("currency", "USD"), "currency")
        self.rates = {"USD": 1.0} | self._rates(doc.pop("rates", {}))
        self._rate(self.currency, "currency")
        self.tables = doc

    def over(self, known: Mapping[str, Storage]) -> dict[str, Storage]:
        """The known storages, with this file's laid over them."""
        found = dict(known)
        for name, table in self.tables.items():
            self._text(name, "the name of a storage")
            if not isinstance(table, dict):
                raise self._wrong(name, "stands outside of any storage", f"[efs]\n{name} = …")
            if name not in known and "title" not in table:
                names = f"; the known ones are {', '.join(known)}" if known else ""
                raise self._wrong(name, f"is no known storage{names}", f'[{name}]\ntitle = "…"   # to add a new one')
            found[name] = self._storage(name, table, known.get(name) or Storage(name, ""))
        return found

    def _storage(self, name: str, table: dict[str, Any], base: Storage) -> Storage:
        texts = {key: self._text(table[key], f"{name}.{key}") for key in _TEXTS if key in table}
        switches = {key: self._switch(table[key], f"{name}.{key}") for key in _SWITCHES if key in table}
        figures = dict(base.figures)
        for key, raw in table.items():
            if key in _FIGURES:
                figures[key] = self._figure(f"{name}.{key}", key, raw, base.figures.get(key), texts)
            elif key not in texts and key not in switches:
                known = ", ".join((*_TEXTS, *_SWITCHES, *_FIGURES))
                raise self._wrong(f"{name}.{key}", "is not a key of a storage", f"one of: {known}")
        if not figures.keys() & MONEY.keys():
            raise self._wrong(name, "has no price", f'[{name}.storage]\nvalue = 0.023\nunit = "GB-month"')
        for what in ("write", "read"):
            if f"{what}_unit" in figures and f"{what}_unit_bytes" not in figures:
                hint = f'[{name}.{what}_unit_bytes]\nvalue = 1024\nunit = "bytes"'
                raise self._wrong(f"{name}.{what}_unit", "has a price, but it is not said how many bytes it is", hint)
        return Storage(
            name,
            title=texts.get("title", base.title),
            region=texts.get("region", base.region),
            note=texts.get("note", base.note),
            durable=switches.get("durable", base.durable),
            append_only=switches.get("append_only", base.append_only),
            appends=switches.get("appends", base.appends),
            figures=figures,
        )

    def _figure(self, path: str, key: str, raw: object, base: Figure | None, defaults: dict[str, str]) -> Figure:
        table = raw if isinstance(raw, dict) else {"value": raw}
        for extra in table.keys() - {"value", *_FIGURE_TEXTS}:
            known = ", ".join(("value", *_FIGURE_TEXTS))
            raise self._wrong(f"{path}.{extra}", "is not a key of a figure", f"one of: {known}")
        given = defaults | {text: self._text(table[text], f"{path}.{text}") for text in _FIGURE_TEXTS if text in table}
        unit = given.get("unit") or (base.unit if base else "")
        if unit not in _FIGURES[key]:
            allowed = " or ".join(f'"{one}"' for one in _FIGURES[key])
            found = f"is in {unit!r}" if unit else "has no unit"
            raise self._wrong(path, f"{found}; expected {allowed}", f'[{path}]\nvalue = …\nunit = "{_FIGURES[key][0]}"')
        value = self._number(table.get("value"), path, whole=unit == "bytes")
        if value == 0 and key.endswith("_unit_bytes"):
            raise self._wrong(path, "is 0; a unit holds at least one byte", f"{key} = 1024")
        if key in MONEY:
            value *= self._rate(given.get("currency", self.currency), path)
        texts = {text: given.get(text, "") for text in ("date", "seen")}
        note = given["note"] if "note" in table else ""
        return Figure(value, unit, given.get("source") or self.file, note=note, **texts)

    def _rates(self, table: object) -> dict[str, float]:
        if not isinstance(table, dict):
            raise self._wrong("rates", "is not a table", "[rates]\nEUR = 1.08   # dollars for one EUR")
        rates = {code: self._number(rate, f"rates.{code}") for code, rate in table.items()}
        for code, rate in rates.items():
            if not rate or (code == "USD" and rate != 1):
                raise self._wrong(f"rates.{code}", f"is {rate:g}", f"{code} = …   # dollars for one {code}")
        return rates

    def _rate(self, currency: str, path: str) -> float:
        if currency not in self.rates:
            hint = f"[rates]\n{currency} = …   # dollars for one {currency}"
            raise self._wrong(path, f"is {currency!r}, and costs are told in USD: the rate is missing", hint)
        return self.rates[currency]

    def _number(self, value: object, path: str, *, whole: bool = False) -> float:
        expected = "a whole number, 0 or more" if whole else "a number, 0 or more"
        key = path.rpartition(".")[2]
        if value is None:
            raise self._wrong(path, f"has no value; expected {expected}", f"[{path}]\nvalue = …")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(path, f"is a {type(value).__name__}; expected {expected}", f"{key} = …")
        if not 0 <= value <= 2**63 or (whole and value != int(value)):  # NaN is in no range
            shown = f"{value:g}" if isinstance(value, float) else "negative" if value < 0 else "too large"
            raise self._wrong(path, f"is {shown}; expected {expected}", f"{key} = …")
        return float(value)

    def _text(self, value: object, path: str) -> str:
        if isinstance(value, datetime.date):
            return value.isoformat()
        if not isinstance(value, str):
            raise self._wrong(path, f"is a {type(value).__name__}; expected a text", f'{path.rpartition(".")[2]} = "…"')
        if not value.isprintable():  # it is shown on a terminal
            raise self._wrong(path, "holds a line break or a control character", "keep it to one line of plain text")
        return value

    def _switch(self, value: object, path: str) -> bool:
        if not isinstance(value, bool):
            expected = "true or false"
            raise self._wrong(path, f"is a {type(value).__name__}; expected {expected}", f"{path} = true")
        return value

    def _wrong(self, path: str, what: str, hint: str) -> Misuse:
        return Misuse(f"{self.file}: {path} {what}", hint=hint, file=self.file, key=path)
