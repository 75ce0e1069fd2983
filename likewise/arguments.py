"""The arguments and options of the commands, with their help texts."""

from pathlib import Path
from typing import Annotated

import typer

# Shared by several commands
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="ROLE=NAME",
        help="Which column or array has which role, as in y=digit; may be repeated. Roles in a CSV or Parquet table: "
        "sequence, time, y (labels), group, is_test, channels=ax+ay+az; or, of texts, text=title+body, y, group, "
        "is_test. Roles in a Parquet file of images, in captions.csv or in metadata.csv: x (the images), y, group, "
        "is_test, captions=title+keywords. Roles in an .npz file: text, x, y, group (or speaker, subject), is_test, "
        "class_names, views, captions=title+keywords, audio, offsets, rate, channels (their names).",
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Allow code (an encoder module:callable) named by a run or recipe you did not make."),
]
Layer = Annotated[
    str | None,
    typer.Option(
        help="Where to take embeddings: backbone or head. Default: head for a run trained on captions, else backbone."
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a finished run, such as runs/photos.")]
TestData = Annotated[str | None, typer.Option(metavar="DATA", help="Test data. Default: the held-out part of --data.")]

# `likewise train`
Epochs = Annotated[
    int | None,
    typer.Option(
        help="Number of passes over the data. Default: about ten minutes of training, or less if there are few items."
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Time for the whole command, report included, instead of --epochs or --steps. The speed is measured "
        "first, and the number of steps that fit is written into the recipe."
    ),
]
TrainData = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images, audio, texts or CSV files; a .npy, .npz, idx, CIFAR, .txt, CSV or Parquet file; tar "
        "shards; or built-in data: digits, mnist5k, sounds, shapes.",
    ),
]
Method = Annotated[
    str | None, typer.Option(help="One of `likewise methods`, such as simclr. Default: chosen for the data.")
]
Pairs = Annotated[str | None, typer.Option(help="Pairs that should agree: views, groups, future or captions.")]
Dictionary = Annotated[str | None, typer.Option(help="Where candidates come from: batch, queue, bank or nearest.")]
Loss = Annotated[
    str | None,
    typer.Option(
        help="How candidates are scored: info_nce, nt_xent, symmetric_info_nce, sigmoid, nce, pair_margin, "
        "triplet, sup_con or dcl."
    ),
]
TrainEncoder = Annotated[
    str | None,
    typer.Option(
        help="A built-in encoder, such as resnet18, vit_tiny or mel_16k, or your own as module:callable. "
        "Default: chosen for the data."
    ),
]
Init = Annotated[str | None, typer.Option(metavar="FILE|RUN", help="Start from the weights in this file or run.")]
Frozen = Annotated[bool, typer.Option("--frozen", help="Keep the weights of --init unchanged and train only the head.")]
TrainOut = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for the run. Default: runs/DATA or runs/DATA-METHOD.")
]
Recipe = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A TOML file with settings, such as a run's recipe.toml.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any setting, as in dictionary.size=4096; may be repeated."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")]

# `likewise evaluate`
EvaluateEncoder = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Folder of a run; or your own encoder as module:callable, or embeddings in .npz or .parquet.",
    ),
]
EvaluateData = Annotated[
    str | None, typer.Option(metavar="DATA", help="Data to evaluate on. Default: the run's own data.")
]
EvaluateLabels = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Class names, one per line, for zero-shot classification by a run trained on captions."
    ),
]
Template = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="Prompt for --labels, such as 'a photo of a {}'; may be repeated."),
]

# `likewise finetune`
FinetuneOut = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Save the fine-tuned encoder in this new folder.")
]
FinetuneEpochs = Annotated[
    int | None, typer.Option(help="Number of passes over the labelled items. Default: chosen from their number.")
]
FinetuneData = Annotated[str | None, typer.Option(metavar="DATA", help="Labelled data. Default: the run's own data.")]

# `likewise report`
ReportData = Annotated[str | None, typer.Option(metavar="DATA", help="Where the run's data is now, if it was moved.")]

# `likewise embed`
EmbedData = Annotated[str | None, typer.Argument(metavar="DATA", help="Data to embed. Default: the run's own data.")]
EmbedOut = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        help="File: .parquet (id, path, label, vector), .npz or .npy. One of an earlier state of the data is updated.",
    ),
]

# `likewise export`
Format = Annotated[
    str | None, typer.Option(help="safetensors, onnx or torchscript. Default: from the ending of --out.")
]

# `likewise search`
SearchData = Annotated[str | None, typer.Option(metavar="DATA", help="Data to search. Default: the run's own data.")]
Query = Annotated[
    str | None,
    typer.Argument(metavar="QUERY", help="A file, an item's id, or words (for a run trained on captions)."),
]
Duplicates = Annotated[
    float | None,
    typer.Option(
        metavar="THRESHOLD",
        help="Find near-duplicates: groups of items whose cosine is at least this, such as 0.98.",
    ),
]
Outliers = Annotated[int | None, typer.Option(metavar="N", help="Find the N items that are least like any other.")]
Suspects = Annotated[
    int | None, typer.Option(metavar="N", help="Find the N labels that disagree most with the item's neighbours.")
]
Index = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for the index. Default: inside the run's folder.")
]

# `likewise explore`
Table = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Table with more columns to colour by: .csv or .parquet with id or path."),
]
Host = Annotated[str, typer.Option(help="Address to listen on. Other machines need the token that is printed.")]

# `likewise cache`
OlderThan = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="Remove what was not used for this long, such as 12h, 30d or 2w."),
]
