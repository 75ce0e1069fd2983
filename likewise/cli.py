"""The command line: parses, calls one function of the library, prints.

Nothing heavy is imported before a command is chosen, so that help answers at once.
"""

from pathlib import Path
from typing import Annotated

import typer

from likewise import __version__, endings
from likewise.endings import INTERRUPTED, Guarded, said_in_one_sentence
from likewise.printing import say, show, show_figures, show_found, show_json
from likewise.training.signals import exit_on_signal

app = typer.Typer(
    cls=Guarded,
    help="Learn which of your data are alike, with no labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME",
        help="Which column or array is what. Of a table: sequence, time, y, group, is_test, channels=ax+ay+az. "
        "Of an .npz: x, y, group (or speaker, subject), is_test, class_names, views, captions=title+keywords, "
        "audio, offsets, rate, channels (their names).",
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code (module:callable) that a run or recipe from elsewhere names.")
]


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"likewise {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """What every command shares."""
    endings.shows_traceback = debug


@app.command()
def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of images, audio or CSV files, .npy, .npz, idx, CIFAR, Parquet or tar shards; "
            "or digits, mnist5k, sounds, shapes.",
        ),
    ],
    method: Annotated[
        str | None, typer.Option(help="See `likewise methods`; chosen for the data if not given.")
    ] = None,
    pairs: Annotated[str | None, typer.Option(help="What should agree: views, groups, future, captions.")] = None,
    keys: Annotated[str | None, typer.Option(help="Who makes the keys: encoder, momentum, bank.")] = None,
    dictionary: Annotated[
        str | None, typer.Option(help="Where queries are looked up: batch, queue, bank, nearest.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="How the look-up is scored: info_nce, nt_xent, symmetric_info_nce, sigmoid, nce, pair_margin, "
            "triplet, sup_con, dcl."
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="resnet_tiny, resnet18, vit_tiny, audio_16k, … or module:callable.")
    ] = None,
    column: Columns = None,
    init: Annotated[str | None, typer.Option(metavar="FILE|RUN", help="Weights to start from.")] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Keep the encoder of --init as it is.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run's folder; else runs/DATA-METHOD.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps, instead of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Items a step, over all ranks.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Temperature of the loss.")] = None,
    seed: Annotated[int | None, typer.Option(help="Every draw follows from it.")] = None,
    devices: Annotated[int | None, typer.Option(help="Processes on this machine.")] = None,
    precision: Annotated[str | None, typer.Option(help="32, bf16-mixed, 16-mixed or 64-true.")] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE", help="A recipe in TOML.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the recipe.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    trust: Trust = False,
) -> None:
    """Pre-train an encoder on images, with captions or without, vectors or sequences; no labels are needed."""
    with said_in_one_sentence(), exit_on_signal(INTERRUPTED):
        from likewise.commands.train import train as run_training

        run = run_training(
            source,
            method=method,
            pairs=pairs,
            keys=keys,
            dictionary=dictionary,
            loss=loss,
            encoder=encoder,
            columns=named(column),
            init=init,
            frozen=frozen or None,
            out=out,
            epochs=epochs,
            steps=steps,
            batch_size=batch_size,
            lr=lr,
            temperature=temperature,
            seed=seed,
            devices=devices,
            precision=precision,
            recipe=recipe,
            settings=settings,
            resume=resume,
            trust=trust,
        )
    from likewise import ranks

    if ranks.is_first():
        say(f"encoder in {run.folder}: likewise.load({str(run.folder)!r})")
        say(f"report in {run.report}")


@app.command()
def evaluate(
    encoder: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's folder, module:callable, or embeddings as .npz or .parquet."),
    ],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="What to embed; the run's own if not given.")] = None,
    test: Annotated[
        str | None, typer.Option(metavar="DATA", help="What to classify; a held-out part of --data if not given.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="backbone or head; head for images and words if not given.")] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of the classes, one a line, to classify by words alone.")
    ] = None,
    template: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A prompt for --labels, as in 'a photo of a {}'.")
    ] = None,
    by: Annotated[str, typer.Option(help="item, or frame for single frames of sequences.")] = "item",
    column: Columns = None,
    k: Annotated[int, typer.Option("-k", help="Neighbours that vote.")] = 20,
    temperature: Annotated[float, typer.Option(help="Temperature of their vote.")] = 0.07,
    size: Annotated[int | None, typer.Option(help="Side of the images that a module:callable is given.")] = None,
    seed: Annotated[int, typer.Option(help="Every draw follows from it.")] = 0,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Say how good an encoder is, beside raw input and beside itself before training."""
    with said_in_one_sentence():
        from likewise.commands.evaluate import evaluate as run_evaluation

        found = run_evaluation(
            encoder,
            data,
            test,
            layer=layer,
            by=by,
            names=labels,
            templates=template,
            columns=named(column),
            k=k,
            temperature=temperature,
            size=size,
            seed=seed,
            trust=trust,
            progress=not as_json,
        )
    show_json(found) if as_json else show_figures(found)


@app.command()
def finetune(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Labelled data; the run's own if not given.")] = None,
    test: Annotated[
        str | None, typer.Option(metavar="DATA", help="What to classify; a held-out part of --data if not given.")
    ] = None,
    labels: Annotated[float, typer.Option(help="Share of the labels that is used.")] = 0.1,
    column: Columns = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the labelled items.")] = None,
    batch_size: Annotated[int, typer.Option(help="Items a step.")] = 64,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Every draw follows from it.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the fine-tuned network here.")] = None,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Train encoder and classifier on a share of the labels, against the same network from scratch."""
    with said_in_one_sentence():
        from likewise.commands.finetune import finetune as run_finetuning

        found = run_finetuning(
            run,
            data,
            test,
            labels=labels,
            columns=named(column),
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            seed=seed,
            out=out,
            trust=trust,
            progress=not as_json,
        )
    if as_json:
        show_json(found.as_dict())
    else:
        show(found.table(), found.note())


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Where its data are now, if they moved.")] = None,
    trust: Trust = False,
) -> None:
    """Write the report of a finished run again, from what stands in its folder."""
    with said_in_one_sentence():
        from likewise.commands.report import report as run_report

        page = run_report(run, data, trust=trust)
    say(f"report in {page}")


@app.command()
def embed(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    source: Annotated[
        str | None, typer.Argument(metavar="DATA", help="What to embed; the run's own data if not given.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="A new .parquet (id, path, label, vector), .npz or .npy.")
    ] = Path("vectors.parquet"),
    layer: Annotated[str | None, typer.Option(help="backbone or head; head for images and words if not given.")] = None,
    column: Columns = None,
    trust: Trust = False,
) -> None:
    """Write the vector of every item, with its id, path and label."""
    with said_in_one_sentence():
        from likewise.commands.embed import embed as run_embedding

        path = run_embedding(run, source, out=out, layer=layer, columns=named(column), trust=trust)
    say(f"vectors in {path}")


@app.command()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new file, in .safetensors, .onnx, .pt or .ts.")],
    format: Annotated[  # noqa: A002  # the option's name
        str | None, typer.Option(help="safetensors, onnx or torchscript; by the ending of --out if not given.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="backbone or head; head for images and words if not given.")] = None,
    trust: Trust = False,
) -> None:
    """Write the encoder for other programs, with its pre-processing and a model card beside it."""
    with said_in_one_sentence():
        from likewise.commands.export import export as run_export
        from likewise.modalities.modality import BATCHES

        found = run_export(run, out, format=format, layer=layer, trust=trust)
    for path in found.files:
        say(str(path))
    batches = ", ".join(map(str, BATCHES))
    say(f"read back and run with batches of {batches}: the encoder's features to {found.difference:.1e}")


@app.command()
def search(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="A file, an item's id, or words for a run of clip.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Where to look; the run's own if not given.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many are wanted.")] = 10,
    duplicates: Annotated[
        float | None, typer.Option(metavar="THRESHOLD", help="Groups of items that are so much alike.")
    ] = None,
    outliers: Annotated[int | None, typer.Option(metavar="N", help="The loneliest items.")] = None,
    suspects: Annotated[int | None, typer.Option(metavar="N", help="Labels that their neighbours contradict.")] = None,
    grid: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw what is found as a picture.")] = None,
    kind: Annotated[str, typer.Option(help="flat, hnsw, ivfpq, or auto.")] = "auto",
    index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the index is kept; else below the run.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="backbone or head; head for images and words if not given.")] = None,
    column: Columns = None,
    trust: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Find what is like a file, an item or words; near-duplicates, lonely items, doubtful labels."""
    with said_in_one_sentence():
        from likewise.commands.search import ROWS, in_rows
        from likewise.commands.search import search as run_search

        found = run_search(
            run,
            query,
            data,
            k=k,
            duplicates=duplicates,
            outliers=outliers,
            suspects=suspects,
            grid=grid,
            kind=kind,
            index=index,
            layer=layer,
            columns=named(column),
            trust=trust,
            progress=not as_json,
        )
    if as_json:
        show_json(found)
    else:
        show_found(found)
    if grid is not None and found and not as_json:
        some = f", of the first {ROWS} rows" if len(in_rows(found, k)) > ROWS else ""
        say(f"picture in {grid}{some}")


@app.command()
def explore(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder; it may still be going on.")],
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="What to look at; the run's own if not given.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="More columns to colour by: .csv or .parquet with id or path.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine only with a token.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="The port; 8720 or any that is free if not given.")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    layer: Annotated[str | None, typer.Option(help="backbone or head; head for images and words if not given.")] = None,
    column: Columns = None,
    trust: Trust = False,
) -> None:
    """Look into a run on a page: map, neighbours, search by file or words, curves while it goes on."""
    with said_in_one_sentence():
        from likewise.commands.explore import explore as run_explorer

        run_explorer(
            run,
            data,
            layer=layer,
            columns=named(column),
            table=table,
            host=host,
            port=port,
            open_browser=open_browser,
            trust=trust,
            say=say,
        )


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run's folder; else runs/demo.")] = None,
    steps: Annotated[int | None, typer.Option(help="Fewer steps make a quicker, worse encoder.")] = None,
    seed: Annotated[int, typer.Option(help="Every draw follows from it.")] = 0,
) -> None:
    """Train MoCo on 5,000 handwritten digits, and see what it learned without a label."""
    with said_in_one_sentence():
        with exit_on_signal(INTERRUPTED):
            from likewise.commands.demo import demo as run_demo

        run, found = run_demo(out, steps, seed)
    show_figures(found)
    say(f"report in {run.report}")


@app.command()
def cache(
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove what was not used for so long, as in 12h, 30d or 2w.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all that no process uses.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List the decoded images and recordings that are kept for the next start, or remove them."""
    with said_in_one_sentence():
        from likewise.commands.cache import cache as look_into_cache

        if everything and older_than is not None:
            raise ValueError(f"give --older-than or --all, not both, got --older-than {older_than} and --all")
        found = look_into_cache("0h" if everything else older_than)
    if as_json:
        show_json(found.as_dict())
    elif found.entries:
        show(found.table(), found.note())
    else:
        typer.echo(found.note())


@app.command()
def methods() -> None:
    """Every method, its three answers, its paper and its settings."""
    from likewise.methods import table

    show(table())


def named(columns: list[str] | None) -> dict[str, str] | None:
    """`["y=digit"]` as {"y": "digit"}."""
    from likewise.recipe import parse_columns

    return None if columns is None else parse_columns(",".join(columns))


def main() -> None:
    app()
