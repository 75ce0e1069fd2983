"""Format figures as tables: a row for each encoder, and below the table a note on what the figures depend on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from likewise.evaluation.interval import wilson

Row = Mapping[str, Any]
INTERVALS = "In brackets: 95 % interval over the test items (Wilson)."


@dataclass(frozen=True)
class Table:
    """Rows of text, the header first, and a note that stands below them."""

    rows: list[list[str]]
    note: str


def tables(evaluated: Mapping[str, Any]) -> list[Table]:
    """Return the tables for the result of `evaluate`: captions, labels, retrieval with clusters, and geometry."""
    about = evaluated["about"]
    rows = {name: row for name, row in evaluated.items() if name != "about"}
    shown = []
    if with_captions := {name: row for name, row in rows.items() if "cross_modal" in row}:
        shown.append(_cross_modal(about, with_captions))
    if with_class_names := {name: row for name, row in rows.items() if "zero_shot" in row}:
        shown.append(_zero_shot(about, with_class_names))
    if about["labels"]:
        shown.append(_labels(about, rows))
    if all("retrieval" in row for row in rows.values()):
        shown.append(_retrieval(rows))
    return [*shown, _geometry(about, rows)]


def _cross_modal(about: Row, rows: Mapping[str, Row]) -> Table:
    directions = {"image_to_text": "image → text", "text_to_image": "text → image"}
    first = next(iter(rows.values()))["cross_modal"]
    ks = list(first["image_to_text"]["recall"])
    head = [f"{first['image_to_text']['queries']:,} {about['test_words']}"]
    for title in directions.values():
        head += [f"{title} @{ks[0]}", *(f"@{k}" for k in ks[1:]), "median rank"]
    body = [
        [
            name,
            *(
                cell
                for figures in (row["cross_modal"][direction] for direction in directions)
                for cell in (
                    *(f"{figures['recall'][k]:.3f}" for k in ks[:-1]),
                    _with_interval(figures["recall"][ks[-1]], figures["queries"]),
                    f"{figures['median_rank']:g}",
                )
            ),
        ]
        for name, row in rows.items()
    ]
    texts, images = first["image_to_text"]["candidates"], first["text_to_image"]["candidates"]
    guessed = [first[direction]["chance"][ks[-1]] for direction in directions]
    note = (
        f"recall@k by cosine, {about['encoder']}: images among {texts:,} captions, captions among {images:,} images; "
        f"by chance @{ks[-1]} is {guessed[0]:.3f} from image to text and {guessed[1]:.3f} back. "
        f"Finding any of an image's own captions counts; a tie with another caption does not. {INTERVALS}"
    )
    return Table([head, *body], note)


def _zero_shot(about: Row, rows: Mapping[str, Row]) -> Table:
    first = next(iter(rows.values()))["zero_shot"]
    body = [
        [name, *(f"{row['zero_shot'][key]:.3f}" for key in ("accuracy", "top5", "balanced_accuracy"))]
        for name, row in rows.items()
    ]
    note = (
        f"{first['images']:,} {about['test_words']}, classified into {first['classes']} classes by the class names, "
        f"with the mean of {first['templates']} prompt{'s' * (first['templates'] > 1)} per class: "
        + ", ".join(about["templates"])
        + f"; {about['encoder']}."
    )
    return Table([["zero-shot", "accuracy", "top 5", "mean over classes"], *body], note)


def _labels(about: Row, rows: Mapping[str, Row]) -> Table:
    first = next(iter(rows.values()))
    knn, linear = first["knn"], first["linear"]
    counts = list(first["few_labels"])
    independent = min(knn["test"], about["test_items"])  # frames of one sequence are not independent
    head = [f"{knn['test']:,} {about['test_words']}", "k-NN", "linear"]
    head += [f"{count} label{'s' * (count > 1)} a class" for count in counts]
    body = [
        [
            name,
            _with_interval(row["knn"]["accuracy"], independent),
            _with_interval(row["linear"]["accuracy"], independent),
            *(
                f"{row['few_labels'][count]['accuracy']:.3f} ± {row['few_labels'][count]['spread']:.3f}"
                for count in counts
            ),
        ]
        for name, row in rows.items()
    ]
    l2 = ", ".join(f"{row['linear']['l2']:g}" for row in rows.values())
    chosen = ", chosen on a fifth of them" if linear["chosen"] else ""
    draws = first["few_labels"][counts[0]]["draws"]
    note = (
        f"accuracy, {knn['classes']} classes, by chance {about['chance']:.3f}, {about['encoder']}. "
        f"k-NN: k {knn['k']}, T {knn['temperature']:g}, "
        f"{knn['train']:,} labels. Linear: {linear['train']:,} labels, l2 {l2}{chosen}. "
        f"Few labels: nearest class mean, mean ± standard deviation of {draws} draws. {INTERVALS}"
    )
    return Table([head, *body], note)


def _with_interval(share: float, count: int) -> str:
    return f"{share:.3f} ({wilson(share, count)})"


def _retrieval(rows: Mapping[str, Row]) -> Table:
    first = next(iter(rows.values()))
    retrieval, clusters = first["retrieval"], first["clustering"]
    ks = list(retrieval["recall"])
    body = [
        [
            name,
            *(f"{row['retrieval']['recall'][k]:.3f}" for k in ks),
            f"{row['retrieval']['mean_average_precision']:.3f}",
            f"{row['clustering']['nmi']:.3f}",
            f"{row['clustering']['ari']:.3f}",
        ]
        for name, row in rows.items()
    ]
    left_out = f", {retrieval['left_out']:,} left out because no item has their label" if retrieval["left_out"] else ""
    note = (
        f"{retrieval['queries']:,} queries among {retrieval['gallery']:,} items, by cosine{left_out}; NMI and ARI: "
        f"{clusters['clusters']} k-means clusters of {clusters['items']:,} items, compared with their labels."
    )
    return Table([["retrieval", *(f"recall@{k}" for k in ks), "mAP", "NMI", "ARI"], *body], note)


def _geometry(about: Row, rows: Mapping[str, Row]) -> Table:
    with_views = any("information" in row for row in rows.values())
    head = ["geometry", "effective rank", "mean cosine", "uniformity"]
    body = []
    for name, row in rows.items():
        shape = row["geometry"]
        cells = [name, f"{shape['effective_rank']:.1f} of {shape['dim']}", f"{shape['alike']:.3f}"]
        cells.append(f"{shape['uniformity']:.2f}")
        if with_views:
            nats = row.get("information")
            cells.append(f"{row['alignment']:.3f}" if "alignment" in row else "–")
            cells.append(f"{nats['bound']:.2f} of {nats['ceiling']:.2f} nats" if nats else "–")
        body.append(cells)
    shape = next(iter(rows.values()))["geometry"]
    note = f"unit rows of {shape['items']:,} {about['test_words']}."
    if with_views:
        head += ["alignment", "information"]
        nats = next(row["information"] for row in rows.values() if "information" in row)
        items = f"{nats['candidates']:,}"
        note += (
            f" Alignment and information: two views of {items} items; information is the InfoNCE bound at "
            f"T {nats['temperature']:g}, after the head if there is one, and is at most log {items}."
        )
    return Table([head, *body], note)
