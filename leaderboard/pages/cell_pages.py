"""One page per cell: request, epsilons, scores, figures, release, and how to repeat it.

What was computed from rows that are not public is marked `internal`. A public site leaves it out
and says so, together with keys and fingerprints, which are hashes of such rows.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
import shlex
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from markupsafe import Markup

from bench.data.schema import Task
from bench.leaderboard.charts.cell import CellFigure, figures
from bench.leaderboard.charts.chart import Chart
from bench.leaderboard.charts.sheet import SCRIPT, LegendEntry, Sheet, legend, sign
from bench.leaderboard.dossier import cell as parts
from bench.leaderboard.pages.board import Board, CellLink
from bench.leaderboard.ranking.quantities import identity, is_ratio_of, share_of_real
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row, ceilings
from bench.leaderboard.tables.about import identity_of
from bench.leaderboard.tables.details import (
    CellFiles,
    NoSuchFile,
    Unavailable,
    open_parquet,
    read_columns,
)
from bench.leaderboard.tables.load import GROUP, WITHHELD, read_results, records
from bench.leaderboard.tables.show import shortened
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from bench.plugins.metric import Direction
from bench.results.private_rows import NOT_COPIED, may_travel
from bench.results.records import CellRow, ScoreRow, Status, TimingRow
from bench.results.reproduce import json_object

STATIC = 200
"""Charts of all cell pages that are also drawn for readers without scripts; some 50 ms each."""
_LONGEST_LOG = 20_000
_LONGEST_REASON = 4_000


@final
@dataclass(frozen=True)
class Access:
    """What a page may show of a cell."""

    public: bool
    closed: bool
    """Whether the rows are not public."""
    withheld: bool
    """Whether parts are left out for that reason."""

    @property
    def internal(self) -> bool:
        """Whether the page shows such parts and must mark them."""
        return self.closed and not self.withheld


@final
@dataclass(frozen=True)
class CellHeadline:
    """The headline of one cell, as on the other pages."""

    metric: str
    value: float | None
    of_real: float | None
    seeds: int
    """Seeds of its row: of one seed the row's numbers are those of the cell."""
    row: Row


@final
@dataclass(frozen=True)
class Download:
    """The released rows as a file, or why they are not available."""

    path: str
    content: bytes
    reason: str

    @property
    def kilobytes(self) -> str:
        """Size in words."""
        return f"{max(1, len(self.content) // 1024):,} kB"


def pages(board: Board) -> Iterator[Page]:
    """Yield one page per cell, and its release as a table if that is allowed and small."""
    cells = board.results.cells[board.results.cells["key"].isin(board.cell_pages)]
    scores, timings = _scores(board), _timings(board)
    folders = _folders(board)
    siblings = _siblings(cells, board.cell_pages)
    row_of = {key: row for row in board.rows for key in row.keys}
    tops = ceilings(board.rows)
    for cell in records(cells):
        key = cell["key"]
        row = row_of[key]
        headline = _headline(row, scores.get(key, ()), tops.get((row.dataset, row.split)))
        yield from _pages(
            board, cell, scores.get(key, ()), timings.get(key, ()), folders, siblings, headline
        )


def _headline(row: Row, scores: Sequence[ScoreRow], real: Row | None) -> CellHeadline | None:
    """Return the headline of a cell and its share in that of the real rows; None without one."""
    if row.headline is None:
        return None
    metric = row.headline.metric
    value = next((score.value for score in scores if score.metric == metric), None)
    best = None if real is None else real.measures.get(metric)
    higher = row.headline.direction == Direction.HIGHER.value
    share = share_of_real(value, best.value) if best is not None and higher else None
    return CellHeadline(metric, value, share, row.headline.count, row)


def _pages(
    board: Board,
    cell: Mapping[str, Any],
    scores: Sequence[ScoreRow],
    timings: Sequence[TimingRow],
    folders: Mapping[str, str],
    siblings: Mapping[str, tuple[CellLink, ...]],
    headline: CellHeadline | None,
) -> Iterator[Page]:
    row, path = _row(cell), board.cell_pages[cell["key"]]
    home = board.results.homes.get(row.key)
    closed = (
        bool(cell[WITHHELD])
        if WITHHELD in cell
        else not board.about.is_open(home, identity_of(cell))
    )
    access = Access(board.public, closed, board.public and closed)
    files = CellFiles(home, folders.get(row.key, ""))
    asked = tuple(json_object(row.metrics))
    finished = row.status == Status.OK.value
    drawn = figures(files, row.task, scores, asked) if finished and not access.withheld else ()
    download = _download(row, access, files, path)
    if headline is not None and headline.of_real is not None:
        # The share of the real rows is on the page once, with the reference of the other pages.
        scores = [one for one in scores if not is_ratio_of(one.metric, [headline.metric])]
    sheet = Sheet()
    known = [(item.kind, item.figure) for item in drawn if item.figure is not None]
    static = first_charts([figure for _, figure in known], STATIC // max(1, len(board.cell_pages)))
    placed = [(kind, figure, *placed_figure(figure, sheet, static)) for kind, figure in known]
    yield rendering.page(
        path,
        "cell.html",
        scripts=(SCRIPT,) if placed else (),
        cell_style=Markup(rendering.asset("cell.css")),
        row=row,
        label=cell["shown_label"],
        dataset=cell["shown_dataset"],
        ipc=cell["shown_ipc"],
        access=access,
        kind=parts.verdict_class(row.verdict),
        reason=_text(row.reason, access),
        warnings=parts.warnings_of(_text(row.warnings, access)),
        log=_end(row.log_tail) if not board.public else "",
        method_page=rendering.method_path(cell["shown_label"]),
        dataset_page=rendering.dataset_path(cell["shown_dataset"]),
        siblings=siblings.get(row.key, ()),
        headline=None if access.withheld else headline,
        identity=identity,
        epsilons=parts.four_epsilons(row, withheld=access.withheld),
        families=() if access.withheld else parts.score_families(scores),
        missing=() if access.withheld else parts.missing_scores(scores),
        figures=placed,
        charts=sheet.data(),
        static=(len(static), sum(len(figure.charts) for _, figure in known)),
        undrawn=[item for item in drawn if item.figure is None],
        grid=_grid(row, access, files),
        download=download,
        repeated=parts.repeated(row),
        dossier=_dossier(board, row, home, cell["shown_ipc"]),
        facts=parts.facts(row, public=access.public, withheld=access.withheld),
        cost=() if access.withheld else parts.cost(row),
        timing=parts.timing_lines(() if access.withheld else timings),
    )
    if download.content:
        yield Page(download.path, download.content)


def first_charts(figures: Sequence[CellFigure], count: int) -> list[Chart]:
    """Return the first chart of each figure, then the second ones, and so on: at least one."""
    turns = itertools.zip_longest(*(figure.charts for figure in figures))
    return [chart for turn in turns for chart in turn if chart is not None][: max(1, count)]


def placed_figure(
    figure: CellFigure, sheet: Sheet, static: Sequence[Chart]
) -> tuple[Markup, Markup]:
    """Return the legend and the charts of a figure; `static` ones are drawn without scripts too."""
    entries = [
        LegendEntry(each.label, sign(each.hue, dashes=each.dashes)) for each in figure.legend
    ]
    charts = Markup("").join(
        sheet.place(chart, static=any(chart is one for one in static)) for chart in figure.charts
    )
    return legend(entries) if entries else Markup(""), charts


_KINDS: Mapping[str, Callable[[Any], Any]] = {"str": str, "int": int, "float": float, "bool": bool}


def _row(cell: Mapping[str, Any]) -> CellRow:
    """Return the record of a row of the table; missing values become None."""
    values: dict[str, Any] = {}
    for item in fields(CellRow):
        kind = str(item.type)
        absent = kind.endswith("| None") and pd.isna(cell[item.name])
        read = _KINDS[kind.removesuffix(" | None")]
        values[item.name] = None if absent else read(cell[item.name])
    return CellRow(**values)


def _scores(board: Board) -> dict[str, list[ScoreRow]]:
    scores = board.results.scores
    names = [item.name for item in fields(ScoreRow)]
    by_key: dict[str, list[ScoreRow]] = {}
    for score in records(scores.loc[scores["key"].isin(board.cell_pages), names]):
        for name in ("value", "low", "high", "limit"):
            if pd.isna(score[name]):
                score[name] = None
        by_key.setdefault(score["key"], []).append(ScoreRow(**score))
    return by_key


def _timings(board: Board) -> dict[str, list[TimingRow]]:
    timings = board.results.timings
    by_key: dict[str, list[TimingRow]] = {}
    for timing in records(timings[timings["key"].isin(board.cell_pages)]):
        by_key.setdefault(timing["key"], []).append(TimingRow(**timing))
    return by_key


def _folders(board: Board) -> dict[str, str]:
    """Return the folder of each cell; a public site has other keys than the run directory."""
    shown = board.results.cells["key"]
    if not board.public:
        return dict(zip(shown, shown, strict=True))
    original = read_results(board.results.directories).cells["key"]
    return dict(zip(shown, original, strict=True)) if len(original) == len(shown) else {}


def _siblings(cells: pd.DataFrame, paths: Mapping[str, str]) -> dict[str, tuple[CellLink, ...]]:
    links: dict[str, tuple[CellLink, ...]] = {}
    for _, group in cells.groupby(["shown_label", *GROUP], dropna=False, sort=False):
        keys = list(zip(group["key"], group["seed"], strict=True))
        for key, _ in keys:
            links[key] = tuple(
                CellLink(int(seed), paths[other]) for other, seed in keys if other != key
            )
    return links


def _text(text: str, access: Access) -> str:
    return "" if access.withheld else shortened(text, _LONGEST_REASON)


def _end(log: str) -> str:
    return log if len(log) <= _LONGEST_LOG else f"…{log[-_LONGEST_LOG:]}"


def _download(row: CellRow, access: Access, files: CellFiles, page: str) -> Download:
    path = f"{page.removesuffix('.html')}.csv"
    if row.status != Status.OK.value:
        return Download(path, b"", "the cell did not finish")
    if not may_travel(row):
        return Download(path, b"", NOT_COPIED)
    if access.public and row.study_only:
        reason = "left out of a public site, because its noise is seeded and can be subtracted"
        return Download(path, b"", reason)
    if access.public and not is_sound(row.verdict):
        reason = "left out of a public site, because it is not proven to be private"
        return Download(path, b"", reason)
    try:
        return Download(path, as_csv(files), "")
    except (Unavailable, NoSuchFile) as problem:
        return Download(path, b"", str(problem))


def _grid(row: CellRow, access: Access, files: CellFiles) -> ImageGrid | str:
    """Return the released images, or why there are none; empty for tables."""
    if row.task != Task.IMAGE.value or row.status != Status.OK.value:
        return ""
    if not may_travel(row):
        return NOT_COPIED
    if access.public and (row.study_only or not is_sound(row.verdict)):
        return "left out of a public site, as the release is"
    try:
        return image_grid(files)
    except (Unavailable, NoSuchFile) as problem:
        return str(problem)


def _dossier(board: Board, row: CellRow, home: Path | None, ipc: str) -> str:
    """Return the command that writes the dossier; by name where keys are not shown."""
    if home is None or row.status != Status.OK.value:
        return ""
    cell = row.key
    if board.public:
        target = "*" if row.eps_target is None else f"{row.eps_target:g}"
        cell = f"{row.label}/{row.dataset}/{target}/{'*' if ipc == 'own' else ipc}/{row.seed}"
    public = ["--public"] if board.public else []
    return shortened(shlex.join(["bench", "dossier", home.name, cell, *public]), _LONGEST_REASON)


# The released rows --------------------------------------------------------------------------------


LARGEST_CSV = 1 << 20
"""Bytes; larger releases stay in the run directory."""
_MOST_VALUES = 4_000_000

_IMAGES_PER_CLASS = 8
_LARGEST_GRID = 90_000
"""Bytes of pixels."""
_MOST_CLASSES = 20
_PIXEL = re.compile(r"pixel_(?:(\d{1,3})_)?(\d{1,3})_(\d{1,3})")

# A spreadsheet would evaluate a cell that starts like this.
_FORMULA = re.compile(r"\s*[=+\-@\t\r](?!\s*[\d.,eE+-]*$)")

Bytes = npt.NDArray[np.uint8]


@final
@dataclass(frozen=True)
class ImageGrid:
    """Released images in one picture, one row per class."""

    source: str
    """Data URL of the picture."""
    width: int
    height: int
    classes: tuple[str, ...]
    images: int


def as_csv(files: CellFiles) -> bytes:
    """Return the released rows in the units of the schema."""
    file = _small(open_parquet(files.file("releases", "synthetic.parquet")))
    try:
        table = file.read(use_threads=False)
        table.validate(full=True)
        plain = pa.table({name: _plain(name, table.column(name)) for name in table.column_names})
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(plain, buffer)
    except (OSError, pa.ArrowException) as problem:
        raise Unavailable(f"the release cannot be read ({type(problem).__name__})") from None
    content = buffer.getvalue()
    if len(content) > LARGEST_CSV:
        raise Unavailable(_too_large())
    return content


def _small(file: pq.ParquetFile) -> pq.ParquetFile:
    names = file.schema_arrow.names
    if file.metadata.num_rows * len(names) > _MOST_VALUES or len(set(names)) < len(names):
        raise Unavailable(_too_large())
    return file


def _too_large() -> str:
    return f"the release is larger than {LARGEST_CSV >> 20} MB: take it from the run directory"


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers unchanged and texts as text; reject what a spreadsheet would evaluate."""
    if _FORMULA.match(name):
        raise Unavailable("the release has a column name that a spreadsheet would evaluate")
    kind = column.type
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return column
    coded = types.is_dictionary(kind)
    inner = kind.value_type if coded else kind
    if not (types.is_string(inner) or types.is_large_string(inner)):
        raise Unavailable(f"the release holds values that are neither numbers nor texts ({kind})")
    words = [chunk.dictionary if coded else chunk for chunk in column.chunks]
    if sum(chunk.nbytes for chunk in words) > LARGEST_CSV:
        raise Unavailable(_too_large())
    if any(_FORMULA.match(word or "") for chunk in words for word in chunk.unique().to_pylist()):
        raise Unavailable("the release has texts that a spreadsheet would evaluate")
    return column.cast(pa.string())


def image_grid(files: CellFiles) -> ImageGrid:
    """Return the first images of each class."""
    stored = files.file("releases", "synthetic.parquet")
    names = _small(open_parquet(stored)).schema_arrow.names
    places = {name: _place(name) for name in names}
    pixels = [name for name, place in places.items() if place is not None]
    others = [name for name, place in places.items() if place is None]
    if not pixels or len(others) != 1:
        raise Unavailable("the release does not consist of pixel columns and one class column")
    where = np.array([place for place in places.values() if place is not None])
    channels, rows, columns = (int(size) for size in where.max(axis=0) + 1)
    if channels * rows * columns != len(pixels) or channels not in (1, 3):
        raise Unavailable("the pixels of the release do not form a rectangle")
    table = read_columns(stored, pixels, others)
    values = np.stack(table.finite(*pixels), axis=1)
    labels = np.array(table.texts[others[0]])
    classes = tuple(sorted(set(labels.tolist()), key=lambda name: (len(name), name)))[
        :_MOST_CLASSES
    ]
    each = max(1, min(_IMAGES_PER_CLASS, _LARGEST_GRID // (len(classes) * len(pixels))))
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low if high > low else 1.0) * 255
    canvas = np.full((len(classes) * (rows + 1) - 1, each * (columns + 1) - 1, channels), 128.0)
    count = 0
    for line, name in enumerate(classes):
        for turn, row in enumerate(np.flatnonzero(labels == name)[:each]):
            top, left = line * (rows + 1), turn * (columns + 1)
            image = np.empty((rows, columns, channels))
            image[where[:, 1], where[:, 2], where[:, 0]] = scaled[row]
            canvas[top : top + rows, left : left + columns] = image
            count += 1
    data = base64.b64encode(png(canvas.astype(np.uint8))).decode()
    zoom = max(1, round(28 / columns))
    height, width = canvas.shape[:2]
    return ImageGrid(f"data:image/png;base64,{data}", zoom * width, zoom * height, classes, count)


def _place(name: str) -> tuple[int, int, int] | None:
    match = _PIXEL.fullmatch(name)
    if match is None:
        return None
    channel, row, column = match.groups()
    return int(channel or 0), int(row), int(column)


def png(pixels: Bytes) -> bytes:
    """Return (height, width, 1 or 3) bytes as a PNG file (RFC 2083), without filters."""
    height, width, channels = pixels.shape
    lines = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
