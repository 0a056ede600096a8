"""The bill as pictures, PNG files in a folder.

Owns: what is drawn, and the files' names.
Must never: be needed by anything else: matplotlib comes with an extra, and is imported here when a picture is drawn.
Invariant: a picture shows figures of the report, and says what it assumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.bill.costs import shown
from indelible.bill.economics import MTBF_HOURS, Found
from indelible.bill.report import Report, usd
from indelible.errors import Misuse, StoreUnavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS, _SAFE, _UNSAFE = "#1b6e3c", "#7fb894", "#b8b8b8"


def draw(found: Report, folder: Path) -> list[Path]:
    """Draw all pictures into `folder`, which is made if it is not there, and return their paths. Raises `Misuse` if
    matplotlib is not installed, `StoreUnavailable` if the folder cannot be written to."""
    blank = _figure()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [
            _bytes(found, blank(), folder / "bytes.png"),
            _storages(found, blank(), folder / "storage.png"),
            *(_month(found, name, blank(), folder / f"month-{name}.png") for name in found.crashes),
        ]
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreUnavailable(f"the folder {folder} cannot be written to: {why}", hint="--plot OTHER_DIR") from error
    return written


def draw_economics(found: Sequence[Found], folder: Path) -> Path:
    """Draw what each plan of flushes costs over the mean time between failures. Raises as `draw`."""
    figure = _figure()()
    kinds, storages = list(dict.fromkeys(one.kind for one in found)), ("local-disk", "s3-standard")
    grid = figure.subplots(len(storages), len(kinds), sharex=True, sharey=True)
    for row, storage in zip(grid, storages, strict=True):
        for axes, kind in zip(row, kinds, strict=True):
            chosen = [one for one in found if (one.kind, one.storage) == (kind, storage)]
            hours = [MTBF_HOURS[one.mtbf] for one in chosen]
            for name, colour in (("every_loop", "#9a6b1f"), ("every_5", "#b8b8b8"), ("young_daly", "#3b6ea5"),
                                 ("economic", _OURS)):  # fmt: skip
                costs = [getattr(one, name) / one.best_fixed for one in chosen]
                style = {"linewidth": 2.5} if name == "economic" else {"linestyle": "--"}
                axes.plot(hours, costs, marker="o", color=colour, label=name.replace("_", " "), **style)
            axes.set_title(f"{kind}, {storage}", fontsize="small")
            axes.set_xscale("log")
            axes.set_yscale("log")
    figure.supxlabel("hours between failures")
    figure.supylabel("cost, in multiples of the best fixed interval")
    grid[0][0].legend(fontsize="x-small")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / "economics.png")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreUnavailable(f"the folder {folder} cannot be written to: {why}", hint="--plot OTHER_DIR") from error
    return folder / "economics.png"


def _figure() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Misuse("pictures need matplotlib", hint="pip install 'indelible[plot]'") from error

    def blank() -> Figure:
        figure = Figure(figsize=(9, 5), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)  # no window system, and no state beyond this picture
        return figure

    return blank


def _bytes(found: Report, figure: Figure, path: Path) -> Path:
    """What each strategy writes, and what stays of it."""
    axes = figure.subplots()
    names = [row.strategy for row in found.written]
    colours = {month.strategy: _colour(month.strategy, month.safe) for month in next(iter(found.crashes.values()))}
    bars = axes.barh(names, [row.written_bytes for row in found.written], color=[colours[name] for name in names])
    axes.bar_label(bars, [shown(row.written_bytes) for row in found.written], padding=4, fontsize="small")
    axes.margins(x=0.15)
    kept = [row.kept_bytes for row in found.written]
    axes.scatter(kept, names, color="black", marker="|", s=160, label="kept at the end")
    axes.axvline(found.raw_bytes, color="black", linestyle=":", linewidth=1, label="what was added to the state, once")
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("bytes written (logarithmic)")
    axes.set_title(f"{_runs(found)}, {found.loops:,} loops: bytes under each strategy")
    _legend(axes)
    figure.savefig(path)
    return path


def _storages(found: Report, figure: Figure, path: Path) -> Path:
    """What a month of storage costs, strategies by storages; the darker, the dearer among those of one storage."""
    axes = figure.subplots()
    names = [row.strategy for row in found.written]
    paid = [[found.costs[storage.name][name].dollars for storage in found.storages] for name in names]
    most = [max(column) or 1.0 for column in zip(*paid, strict=True)]
    shares = [[value / top for value, top in zip(row, most, strict=True)] for row in paid]
    axes.imshow(shares, aspect="auto", cmap="Oranges", vmin=0, vmax=1.6)
    for y, row in enumerate(paid):
        for x, value in enumerate(row):
            axes.text(x, y, usd(value), ha="center", va="center", fontsize=6)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(len(most)), [storage.name for storage in found.storages], rotation=30, ha="right")
    assumed = found.assumed
    axes.set_title(f"storage a month, {assumed.runs_per_day:g} runs a day kept {assumed.keep_days:g} days")
    figure.savefig(path)
    return path


def _month(found: Report, storage: str, figure: Figure, path: Path) -> Path:
    """What a month costs in all, over the number of crashes in it."""
    axes = figure.subplots()
    most = max(1.0, 2 * found.assumed.crashes_per_month)
    for month in found.crashes[storage]:
        ends = [month.storage_usd, month.storage_usd + most * month.crash.usd]
        ours = month.best
        axes.plot([0, most], ends, label=month.strategy + (" (cheapest safe)" if ours else ""),
                  color=None if not ours else _OURS, linewidth=2.5 if ours else 1,
                  linestyle="-" if month.safe else "--")  # fmt: skip
    axes.axvline(found.assumed.crashes_per_month, color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0, most)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("crashes a month")
    axes.set_ylabel("dollars a month, storage and crashes")
    at_least = "" if all(month.crash.known for month in found.crashes[storage]) else ", without money that is not known"
    assumed = found.assumed
    axes.set_title(
        f"{storage}: {assumed.runs_per_day:g} runs a day kept {assumed.keep_days:g} days, "
        f"{assumed.minutes_per_crash:g} min at ${assumed.hourly_rate:g}/h a crash{at_least}\n"
        "dashed: may do a deed again", fontsize="medium",
    )  # fmt: skip
    _legend(axes)
    figure.savefig(path)
    return path


def _legend(axes: Axes) -> None:
    axes.legend(fontsize="small", loc="best")


def _colour(strategy: str, safe: bool) -> str:
    return _OURS if strategy.endswith("(ours)") else _SAFE if safe else _UNSAFE


def _runs(found: Report) -> str:
    return "1 run" if found.runs == 1 else f"{found.runs:,} runs"
