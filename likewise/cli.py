"""The command line: each command parses its arguments, calls one function of the library and prints the result.

Commands import what they need when they run, so that `--help` answers at once. In docstrings, `\\b` keeps the line
breaks of the paragraph after it.
"""

from pathlib import Path
from typing import Annotated

import typer

from likewise import __version__, clock, endings
from likewise import arguments as args
from likewise.endings import INTERRUPTED, GuardedGroup, report_errors
from likewise.printing import say, show, show_figures, show_json, show_matches
from likewise.training.signals import exit_on_signal

app = typer.Typer(
    cls=GuardedGroup,
    help="Learn which of your data are alike, without labels. Begin with `likewise demo` or `likewise train DATA`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"likewise {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error; goes before the command.")
    ] = False,
) -> None:
    """Handle the options that come before a command."""
    endings.shows_traceback = debug


@app.command()
def train(
    source: args.TrainData,
    method: args.Method = None,
    pairs: args.Pairs = None,
    keys: Annotated[str | None, typer.Option(help="What encodes the keys: encoder, momentum or bank.")] = None,
    dictionary: args.Dictionary = None,
    loss: args.Loss = None,
    encoder: args.TrainEncoder = None,
    column: args.Columns = None,
    init: args.Init = None,
    frozen: args.Frozen = False,
    out: args.TrainOut = None,
    epochs: args.Epochs = None,
    steps: Annotated[int | None, typer.Option(help="Number of training steps, instead of --epochs.")] = None,
    minutes: args.Minutes = None,
    batch_size: Annotated[int | None, typer.Option(help="Items per step, over all devices together.")] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Temperature of the loss.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    devices: Annotated[int | None, typer.Option(help="Number of devices to use, one process each.")] = None,
    precision: Annotated[str | None, typer.Option(help="32, bf16-mixed, 16-mixed or 64-true.")] = None,
    recipe: args.Recipe = None,
    settings: args.Settings = None,
    resume: args.Resume = False,
    trust: args.Trust = False,
) -> None:
    """Train an encoder on images, images with captions, audio, sensor data, texts or vectors. No labels are needed.

    \b
    Examples:
      likewise train photos/
      likewise train photos/ --minutes 10
      likewise train digits --method simclr --steps 500 --out runs/digits
      likewise train notes.txt --method simcse
      likewise train photos/ --set dictionary.size=4096 --set training.log_every=50
      likewise train photos/ --resume
    """
    with report_errors(), exit_on_signal(INTERRUPTED):
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
            minutes=minutes,
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
    encoder: args.EvaluateEncoder,
    data: args.EvaluateData = None,
    test: args.TestData = None,
    layer: args.Layer = None,
    labels: args.EvaluateLabels = None,
    template: args.Template = None,
    by: Annotated[str, typer.Option(help="Evaluate each item, or each frame of a sequence: item or frame.")] = "item",
    column: args.Columns = None,
    k: Annotated[int, typer.Option("-k", help="Number of neighbours that vote in k-NN classification.")] = 20,
    temperature: Annotated[float, typer.Option(help="Temperature that weights the neighbours' votes.")] = 0.07,
    size: Annotated[int | None, typer.Option(help="Image size in pixels for a module:callable.")] = None,
    seed: args.Seed = 0,
    trust: args.Trust = False,
    as_json: args.AsJson = False,
) -> None:
    """Measure how good an encoder is, compared with the raw input and with the same encoder before training.

    \b
    Examples:
      likewise evaluate runs/photos
      likewise evaluate runs/photos --data other-photos/ --json
    """
    with report_errors():
        from likewise.commands.evaluate import evaluate as run_evaluation

        figures = run_evaluation(
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
    show_json(figures) if as_json else show_figures(figures)


@app.command()
def finetune(
    run: args.RunFolder,
    data: args.FinetuneData = None,
    test: args.TestData = None,
    labels: Annotated[float, typer.Option(help="Share of the labels to train on, such as 0.1 for 10 %.")] = 0.1,
    column: args.Columns = None,
    epochs: args.FinetuneEpochs = None,
    batch_size: Annotated[int, typer.Option(help="Items per step.")] = 64,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.001,
    seed: args.Seed = 0,
    out: args.FinetuneOut = None,
    trust: args.Trust = False,
    as_json: args.AsJson = False,
) -> None:
    """Fine-tune the encoder and a classifier on a few labels, compared with the same network trained from scratch.

    \b
    Examples:
      likewise finetune runs/digits --labels 0.1
    """
    with report_errors():
        from likewise.commands.finetune import finetune as run_finetuning

        result = run_finetuning(
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
        show_json(result.as_dict())
    else:
        show(result.table(), result.note())


@app.command()
def report(
    run: args.RunFolder,
    data: args.ReportData = None,
    trust: args.Trust = False,
) -> None:
    """Write the HTML report of a finished run again, from the files in its folder."""
    with report_errors():
        from likewise.commands.report import report as run_report

        page = run_report(run, data, trust=trust)
    say(f"report in {page}")


@app.command()
def embed(
    run: args.RunFolder,
    source: args.EmbedData = None,
    out: args.EmbedOut = Path("vectors.parquet"),
    layer: args.Layer = None,
    column: args.Columns = None,
    trust: args.Trust = False,
) -> None:
    """Write the embedding of every item to a file, with its id, path and label.

    If the file exists, only items that are new or have changed since then are embedded.

    \b
    Examples:
      likewise embed runs/photos
      likewise embed runs/photos more-photos/ --out more.npz
    """
    with report_errors():
        from likewise.commands.embed import embed as run_embedding

        path = run_embedding(run, source, out=out, layer=layer, columns=named(column), trust=trust)
    say(f"vectors in {path}")


@app.command()
def export(
    run: args.RunFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="New file: .safetensors, .onnx, .pt or .ts.")],
    format: args.Format = None,  # noqa: A002  # the option's name
    layer: args.Layer = None,
    trust: args.Trust = False,
) -> None:
    """Export the encoder for use in other programs, with its pre-processing and a model card.

    \b
    Examples:
      likewise export runs/photos --out encoder.onnx
    """
    with report_errors():
        from likewise.commands.export import export as run_export
        from likewise.modalities.modality import BATCHES

        exported = run_export(run, out, format=format, layer=layer, trust=trust)
    for path in exported.files:
        say(str(path))
    batches = ", ".join(map(str, BATCHES))
    say(f"checked: the exported file gives the encoder's outputs to {exported.difference:.1e}, in batches of {batches}")


@app.command()
def search(
    run: args.RunFolder,
    query: args.Query = None,
    data: args.SearchData = None,
    k: Annotated[int, typer.Option("-k", help="Number of results.")] = 10,
    duplicates: args.Duplicates = None,
    outliers: args.Outliers = None,
    suspects: args.Suspects = None,
    grid: Annotated[Path | None, typer.Option(metavar="FILE", help="Save a picture of the results.")] = None,
    kind: Annotated[str, typer.Option(help="Search index: flat (exact), hnsw, ivfpq or auto.")] = "auto",
    index: args.Index = None,
    layer: args.Layer = None,
    column: args.Columns = None,
    trust: args.Trust = False,
    as_json: args.AsJson = False,
) -> None:
    """Find the items most like a file, an item or words; or find near-duplicates, outliers or doubtful labels.

    \b
    Examples:
      likewise search runs/photos cat.jpg -k 5
      likewise search runs/photos --duplicates 0.98 --grid duplicates.png
      likewise search runs/captioned "a red car"
    """
    with report_errors():
        from likewise.commands.search import ROWS, in_rows
        from likewise.commands.search import search as run_search

        matches = run_search(
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
        show_json(matches)
    else:
        show_matches(matches)
    if grid is not None and matches and not as_json:
        limit = f", of the first {ROWS} rows" if len(in_rows(matches, k)) > ROWS else ""
        say(f"picture in {grid}{limit}")


@app.command()
def explore(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, finished or still in training.")],
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Data to show. Default: the run's own data.")] = None,
    table: args.Table = None,
    host: args.Host = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="Port. Default: 8720, or a free one if it is taken.")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    layer: args.Layer = None,
    column: args.Columns = None,
    trust: args.Trust = False,
) -> None:
    """Explore a run in the browser: a map of the items, their neighbours, search, and live training curves.

    \b
    Examples:
      likewise explore runs/photos --open
    """
    with report_errors():
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
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the run. Default: runs/demo.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of training steps; fewer are faster and worse.")] = None,
    seed: args.Seed = 0,
) -> None:
    """Train MoCo on 5,000 handwritten digits without labels, and measure what it learned."""
    with report_errors():
        with exit_on_signal(INTERRUPTED):
            from likewise.commands.demo import demo as run_demo

        run, figures = run_demo(out, steps, seed)
    show_figures(figures)
    say(f"report in {run.report}")


@app.command()
def cache(
    older_than: args.OlderThan = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove everything that no process is using.")] = False,
    as_json: args.AsJson = False,
) -> None:
    """List or remove the decoded images and recordings that likewise keeps to start faster."""
    with report_errors():
        from likewise.commands.cache import cache as run_cache

        if everything and older_than is not None:
            raise ValueError(f"give --older-than or --all, not both, got --older-than {older_than} and --all")
        state = run_cache("0h" if everything else older_than)
    if as_json:
        show_json(state.as_dict())
    elif state.entries:
        show(state.table(), state.note())
    else:
        typer.echo(state.note())


@app.command()
def methods() -> None:
    """List every method with its pairs, keys, dictionary, loss, default settings and paper."""
    from likewise.methods import table

    show(table())


def named(columns: list[str] | None) -> dict[str, str] | None:
    """Parse the --column options, as in `["y=digit"]`, into {"y": "digit"}."""
    from likewise.recipe import parse_columns

    return None if columns is None else parse_columns(",".join(columns))


def main() -> None:
    clock.begin_command()
    app()
