"""The contents of a run's report: figures, curves and pictures, as one dictionary that the page draws."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from likewise import __version__, methods
from likewise.data import Items, unread
from likewise.data.parts import Ids, spread
from likewise.dictionaries.catalog import DICTIONARIES
from likewise.evaluation.neighbours import nearest
from likewise.losses.masks import as_columns, share_an_id
from likewise.pairs.across import Captioned
from likewise.pairs.batch import Batch
from likewise.pairs.catalog import PAIRS
from likewise.pairs.metric import Chart
from likewise.randomness import number
from likewise.recipe import Recipe
from likewise.report import pictures, sounds
from likewise.report.figures import INTERVALS, Looked, Rows, learned_rows, measured, tiles, worth_in_words
from likewise.report.plane import plane
from likewise.training.learner import ALL, Learner
from likewise.training.plan import Plan
from likewise.training.plan_lines import lines
from likewise.training.trainer import Trainer
from likewise.views.augmentation import PLAIN, changes

MAPPED = 1000  # items on the map, at most
SEARCHED = 5000  # training items among which neighbours are searched, at most
ASKED, FOUND = 8, 8  # queries that are shown, and neighbours of each
SHOWN = 8  # pairs that are shown
PAIRED = 256  # pairs in the histogram, at most
BINS = 50
SKIPPED_SHOWN = 200  # skipped files that are listed, at most
LETTERS_SHOWN = 100  # of a caption


def embedded_items(plan: Plan) -> int:
    """Return how many items the report embeds: with the encoder and, if some are held out, with the untrained one."""
    if not len(plan.test):
        return min(len(plan.train), MAPPED)
    return 2 * (min(len(plan.test), MAPPED) + min(len(plan.train), SEARCHED))


def contents(trainer: Trainer, rows: Sequence[dict[str, Any]], trained: Recipe | None = None) -> dict[str, Any]:
    """Return the contents of a finished run's report. `rows` are its logged metrics.

    Figures and pictures are of held-out items, if there are any. `trained` is the recipe that the run was trained with,
    if it differs from the trainer's.
    """
    ready = trainer.plan
    items, recipe = ready.items, trained or ready.recipe
    looked = Looked.of(trainer, MAPPED, SEARCHED)
    learned = learned_rows(trainer, looked)
    figures = measured(trainer, looked, learned)
    worth, doubt = worth_in_words(figures, looked)
    captioned = learned.captioned
    parameters = sum(parameter.numel() for parameter in trainer.learner.tower.parameters())
    plan_lines = lines(replace(ready, recipe=recipe), trainer.total, parameters, None, trainer.where())
    return {
        "title": f"{recipe.method} on {items.name}",
        "when": time.strftime("%Y-%m-%d %H:%M", time.localtime((trainer.folder / "metrics.jsonl").stat().st_mtime)),
        "version": f"likewise {__version__}",
        # The reasons are only known when a run starts; a resumed run reads the values from its recipe.
        "about": [text.split("\t", 1) for text in plan_lines if not text.startswith("chosen")],
        "worth": capitalised(worth),
        "doubt": None if doubt is None else capitalised(doubt),
        "figures": tiles(trainer, rows, figures),
        "figures_note": INTERVALS,
        "verdict": capitalised(figures.learned["verdict"]),
        "warnings": [f"step {row['step']:,}: {text}" for row in rows for text in row.get("health", [])],
        "charts": charts(rows, recipe, trainer.measure_held_out(ready.test) if looks_ahead(recipe) else None),
        "histogram": histogram(trainer),
        "map": map_of(items, looked.ids, learned.looked, looked.held_out),
        "words": None if captioned is None else by_words(items, looked.ids, captioned, looked.held_out),
        "neighbours": neighbours(items, looked, learned),
        "pairs": pairs(trainer),
        "recipe": methods.to_toml(recipe),
        "skipped": {
            "count": len(items.skipped),
            "said": unread.in_words(items),
            "files": [[file.path, file.reason] for file in items.skipped[:SKIPPED_SHOWN]],
        },
    }


def looks_ahead(recipe: Recipe) -> bool:
    return PAIRS[recipe.pairs.kind].looks_ahead


def charts(
    rows: Sequence[dict[str, Any]], recipe: Recipe, held_out: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the charts; those whose values were never logged are left out."""
    rows = [row | {"keys": row["size"] * row["fill"]} if _known(row, "size", "fill") else row for row in rows]
    information = "bound" if any("bound" in row for row in rows) else "estimate"
    is_bound = "This is a lower bound" if information == "bound" else "With stored or masked keys it is an estimate"
    drawn = [
        _chart(
            "Loss",
            "Chance, log N, is the loss of guessing among N candidates. Below it, something is learned.",
            rows,
            loss="loss",
            chance="chance, log N",
        ),
        _chart(
            "Mutual information, nats",
            f"log N − loss. {is_bound}, and it cannot exceed log N.",
            rows,
            **{information: information, "chance": "ceiling, log N"},
        ),
        *pair_charts(rows, recipe, held_out),
        _chart("k-NN accuracy", _knn_note(rows), rows, knn="k-NN"),
        _chart(
            "Effective rank",
            "How many directions the embeddings use, on held-out items if there are any.",
            rows,
            effective_rank="effective rank",
        ),
        _chart("Dictionary: keys", "How many keys the dictionary holds.", rows, keys="keys"),
        _chart("Dictionary: age", "Mean age of the keys, in steps.", rows, age="age"),
        _chart(
            "Dictionary: consistency",
            "Mean cosine between stored keys and the same views encoded now: 1 if the encoder has not changed.",
            rows,
            consistency="consistency",
        ),
        _chart(
            "Temperature",
            "The learned temperature of the loss.",
            rows if recipe.loss.learnable else [],
            temperature="temperature",
        ),
    ]
    stores = DICTIONARIES[recipe.dictionary.kind].stores
    return [c for c in drawn if c["series"][0]["points"] and (stores or not c["title"].startswith("Dictionary"))]


def pair_charts(
    rows: Sequence[dict[str, Any]], recipe: Recipe, held_out: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Return the charts of what the pairs have measured; notes quote the last logged value."""
    last: dict[str, Any] = {}
    for row in rows:
        last |= {name: value for name, value in row.items() if value is not None}
    metrics = PAIRS[recipe.pairs.kind].metrics(last, recipe, held_out)
    return [_drawn(metric.chart, rows) for metric in metrics if metric.chart is not None]


def _drawn(chart: Chart, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not chart.points:
        return _chart(chart.title, chart.note, rows, **chart.curves)
    series = [{"name": name, "points": points, "kind": "line"} for name, points in chart.points.items()]
    return {"title": chart.title, "note": chart.note, "x": chart.x, "series": series}


def _knn_note(rows: Sequence[dict[str, Any]]) -> str:
    """Say which items the k-NN during training uses; they may be fewer than for the figure at the top."""
    last = next((row for row in reversed(rows) if row.get("knn_items")), None)
    if last is None:
        return "On held-out items. Compare last values, not best ones."
    which = f"{last['knn_items']:,} held-out items, with {last['knn_labels']:,} labelled neighbours"
    return f"On {which}; the figure at the top may use more of both. Compare last values, not best ones."


def _known(row: Mapping[str, Any], *names: str) -> bool:
    return all(row.get(name) is not None for name in names)


def _chart(title: str, note: str, rows: Sequence[dict[str, Any]], **names: str) -> dict[str, Any]:
    series: list[dict[str, Any]] = []
    for key, name in names.items():
        points = [[row["step"], row[key]] for row in rows if row.get(key) is not None]
        if points or not series:
            series.append({"name": name, "points": points, "kind": "reference" if key == "chance" else "line"})
    return {"title": title, "note": note, "x": "step", "series": series}


@torch.no_grad()
def histogram(trainer: Trainer) -> dict[str, Any]:
    """Return the histogram of cosines of positives and of negatives, after the trained head."""
    batch, learner = trainer.batches.at(max(0, trainer.total - 1)), trainer.learner
    # Without dropout, views that only dropout makes differ would be the same.
    learner.tower.train(not changes(learner.augmentation))
    torch.manual_seed(number(trainer.recipe.seed, "histogram"))
    first, second, ids = some_pairs(learner, batch)
    cosines = normalize(first.float(), dim=1) @ normalize(second.float(), dim=1).T
    positives, negatives = cosines.diagonal().cpu(), cosines[~share_an_id(as_columns(ids), as_columns(ids))].cpu()
    edges = torch.linspace(-1, 1, BINS + 1)

    def shares(values: Tensor) -> list[float]:
        counts = torch.histogram(values.clamp(-1, 1), edges).hist
        return (counts / counts.sum().clamp(min=1)).tolist()

    return {
        "title": "Similarities of positives and negatives",
        "note": f"Cosines within and between {len(ids):,} pairs of the last batch, after the head. "
        "The less the two histograms overlap, the easier it is to find the positive.",
        "x": "cosine",
        "edges": edges.tolist(),
        "series": [
            {"name": "positives", "shares": shares(positives)},
            {"name": "negatives", "shares": shares(negatives)},
        ],
    }


def some_pairs(learner: Learner, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two sides of some pairs, (n, d) each, as the loss compares them, and their ids."""
    some = batch.first(PAIRED)
    queries, keys = learner.tower.queries_and_keys(learner.tower(*learner.inputs_of(some, ALL)))
    one, other = learner.pairs.sides(queries)[0], learner.pairs.sides(keys)[1]
    return learner.pairs.some_rows(one, other, some, lambda: learner.views(some, "first"), learner.tower)


def map_of(items: Items, ids: Ids, rows: Tensor, held_out: bool) -> dict[str, Any]:
    """Return the map: items on a plane, each with its picture, similar items near each other."""
    name, points = plane(normalize(rows, dim=1).numpy())
    labels = None if items.labels is None else items.labels[ids].tolist()
    which = "held-out items" if held_out else "items"
    return {
        "title": "Map of the embeddings",
        "note": f"{name} of {len(ids):,} {which}. Items near each other are alike; large distances mean little."
        + (" Colours are labels." if labels else ""),
        "points": points.astype(np.float64).round(4).tolist(),
        "labels": labels,
        "classes": list(items.classes),
        "names": [name_of(items, i) for i in ids],
        "sprite": pictures.sheet(pictures.of_items(items, ids)),
    }


def neighbours(items: Items, looked: Looked, learned: Rows) -> dict[str, Any]:
    """Return a few items, each with its nearest neighbours, and their sounds if they can be heard."""
    assert learned.known is not None
    places = torch.from_numpy(spread(np.arange(len(looked.ids)), ASKED))
    own = None if looked.held_out else places  # nothing was held out, so the query itself must be excluded
    shown_items: list[int] = []
    shown = []

    def describe(item: int) -> dict[str, Any]:
        shown_items.append(item)
        label = None if items.labels is None or items.labels[item] < 0 else items.classes[items.labels[item]]
        return {"tile": len(shown_items) - 1, "name": name_of(items, item), "label": label}

    for rows, similarity, found in nearest(learned.looked[places], learned.known, FOUND, own=own):
        for place, cosines, likes in zip(places[rows].tolist(), similarity.tolist(), found.tolist(), strict=True):
            query = describe(int(looked.ids[place]))
            answers = [
                describe(int(looked.known[like])) | {"similarity": round(c, 3)}
                for c, like in zip(cosines, likes, strict=True)
            ]
            for answer in answers:
                unknown = query["label"] is None or answer["label"] is None
                answer["same"] = None if unknown else answer["label"] == query["label"]
            shown.append({"query": query, "found": answers})
    # All queries come first, then the nearest of each, and so on, because a page has room for some sounds only.
    ranks = zip(*([row["query"], *row["found"]] for row in shown), strict=True)
    by_rank = [one["tile"] for rank in ranks for one in rank]
    heard = sounds.of_items(items, [shown_items[tile] for tile in by_rank])
    return {
        "title": "Nearest neighbours",
        "note": f"By cosine, among {len(looked.known):,} "
        + ("training items; the queries are held-out items." if own is None else "items.")
        + (f" Press play to listen, at most {sounds.LONGEST:g} s." if heard else ""),
        "sounds": dict(zip(by_rank, heard, strict=False)),  # by tile
        "sprite": pictures.sheet(pictures.of_items(items, np.array(shown_items))),
        "rows": shown,
    }


def by_words(items: Items, ids: Ids, captioned: Captioned, held_out: bool) -> dict[str, Any]:
    """Return a few captions, each with the images nearest to it."""
    asked = torch.from_numpy(spread(np.arange(len(captioned.texts)), ASKED))
    belong = set(map(tuple, captioned.pairs.tolist()))
    tiles: list[int] = []
    shown = []
    for rows, similarity, found in nearest(captioned.words[asked], captioned.images, FOUND):
        for text, cosines, images in zip(asked[rows].tolist(), similarity.tolist(), found.tolist(), strict=True):
            answers = [
                {
                    "tile": len(tiles) + i,
                    "name": name_of(items, int(ids[image])),
                    "similarity": round(cosine, 3),
                    "same": (image, text) in belong,
                }
                for i, (cosine, image) in enumerate(zip(cosines, images, strict=True))
            ]
            tiles += ids[images].tolist()
            shown.append({"query": {"name": short(captioned.texts[text])}, "found": answers})
    which = "held-out items" if held_out else "items"
    return {
        "title": "Found by words",
        "note": f"Some captions of {len(ids):,} {which}, each with the nearest images among these items, by cosine "
        "after both heads.",
        "sprite": pictures.sheet(pictures.of_items(items, np.array(tiles))),
        "rows": shown,
    }


def pairs(trainer: Trainer) -> dict[str, Any]:
    """Return the first pairs of the first step: items, and their views or captions."""
    batch, learner, items = trainer.batches.at(0), trainer.learner, trainer.plan.items
    n = min(SHOWN, len(batch.items))
    ids = trainer.plan.train[batch.items[:n].numpy()]
    shown = PAIRS[trainer.recipe.pairs.kind].shown(trainer.recipe)
    names = dict(shown.sides)
    if learner.key_source.from_slots:
        names.pop("second", None)  # with a bank, the second side is a stored embedding
    views = (learner.views(batch, side, slice(n)) for side in names)
    sheets = [pictures.of_items(items, ids), *(pictures.of_views(v, learner.augmentation, items) for v in views)]
    columns = ["item", *names.values()]
    side = max(tiles.shape[1] for tiles in sheets)
    tiles = np.concatenate([pictures.enlarged(each, side) for each in sheets])
    texts = trainer.pairs.texts_shown(batch.partner_data[:n])
    preset = trainer.recipe.pairs.preset
    augmentations = "without augmentations" if preset == PLAIN else f"with {preset} augmentations"
    return {
        "title": "Pairs the model was shown",
        "note": f"The first items of the first step, {augmentations}. {shown.task}",
        "sprite": pictures.sheet(tiles),
        "columns": columns,
        "rows": [[column * n + i for column in range(len(columns))] for i in range(n)],
        "captions": None if texts is None else [short(text) for text in texts],
    }


def name_of(items: Items, item: int) -> str:
    """Return an item's name: its first text, its file, both, or else its id."""
    path = None if items.paths is None else items.paths[item]
    texts = items.texts_of(item)
    if not texts:
        return path or f"item {item:,}"
    return short(texts[0]) + (f" ({path})" if path else "")


def capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def short(caption: str) -> str:
    return caption if len(caption) <= LETTERS_SHOWN else caption[: LETTERS_SHOWN - 1].rstrip() + "…"
