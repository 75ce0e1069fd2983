"""Did a change of the code change what it computes? Record digests before it, and compare them after it.

    python -m tests.frozen record digests.json
    python -m tests.frozen check digests.json

Every method trains for 20 steps on its built-in data, and so do mixtures of every dictionary and runs of two ranks.
What is kept of each: a SHA-256 of the weights, the logged metrics, every value of the recipe, what the report says,
and for some the figures of `likewise evaluate`. The digests hold on one machine with one version of torch, so the
file is not part of the repository. Record it anew whenever defaults are changed on purpose.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 20
TIMED = ("items_per_second", "seconds_left")  # metrics that no two runs share
CHANGING = ("when", "recipe")  # parts of a report that say when it was written, or are compared elsewhere

# A name, the data, and the arguments of `likewise.train`.
Case = tuple[str, str, dict[str, Any]]
RUNS: list[Case] = [
    *(
        (method, "digits", {"method": method})
        for method in ("pair", "triplet", "instdisc", "bank", "e2e", "moco_v1", "moco", "simclr", "supcon")
    ),
    ("cpc", "sounds", {"method": "cpc"}),
    ("clip", "shapes", {"method": "clip"}),
    ("batch: clip by the sigmoid loss", "shapes", {"method": "clip", "loss": "sigmoid"}),
    (
        "batch: simclr in chunks",
        "digits",
        {"method": "simclr", "encoder": "vit_tiny", "settings": ["training.chunk=24", "encoder.head=mlp"]},
    ),
    (
        "batch: e2e of groups, symmetric",
        "digits",
        {"method": "e2e", "pairs": "groups", "settings": ["pairs.symmetric=true"]},
    ),
    ("batch: cpc among the same sequence", "sounds", {"method": "cpc", "settings": ["pairs.negatives=same"]}),
    ("queue: moco of the future", "sounds", {"method": "moco", "pairs": "future"}),
    (
        "queue: moco, symmetric",
        "digits",
        {"method": "moco", "settings": ["pairs.symmetric=true", "loss.policy=debiased:0.1"]},
    ),
    ("queue: clip", "shapes", {"method": "clip", "dictionary": "queue", "loss": "info_nce"}),
    (
        "queue: cpc among other sequences",
        "sounds",
        {"method": "cpc", "dictionary": "queue", "settings": ["pairs.negatives=others"]},
    ),
    ("bank: series", "series", {"method": "instdisc"}),
    ("vectors", "vectors", {}),
    ("series of views", "series", {"method": "moco"}),
    ("series of groups", "series", {"method": "pair"}),
    ("series of the future", "series", {}),
]
RANKED: list[Case] = [
    (f"two ranks: {method}", source, {"method": method, "devices": 2})
    for method, source in {"simclr": "digits", "moco": "digits", "instdisc": "digits", "supcon": "digits"}.items()
] + [
    ("two ranks: clip", "shapes", {"method": "clip", "devices": 2}),
    ("two ranks: cpc", "sounds", {"method": "cpc", "devices": 2}),
]
EVALUATED = ("simclr", "instdisc", "cpc", "clip", "vectors", "series of views", "series of the future")


def made_up(folder: Path) -> dict[str, str]:
    """Write a file of vectors and one of series; return the sources by name."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    time = np.arange(64) / 64
    phase = rng.uniform(0, 6, (240, 1))
    waves = np.stack([np.sin(2 * np.pi * (y[:, None] + 2) * time + phase), np.cos(5 * time + phase)], axis=2)
    waves += 0.1 * rng.standard_normal(waves.shape)
    np.savez(folder / "series.npz", x=waves.astype(np.float32), y=y)
    vectors = rng.standard_normal((240, 12)) + 2 * y[:, None]
    np.savez(folder / "vectors.npz", x=vectors.astype(np.float32), y=y)
    return {name: str(folder / f"{name}.npz") for name in ("series", "vectors")}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def weights_of(folder: Path) -> dict[str, str]:
    """Return a digest of the tensors of each file of weights."""
    import safetensors.numpy

    digests = {}
    for path in sorted(folder.glob("*.safetensors")):
        hashed = hashlib.sha256()
        for name, tensor in sorted(safetensors.numpy.load_file(path).items()):
            hashed.update(f"{name} {tensor.shape} {tensor.dtype}".encode() + np.ascontiguousarray(tensor).tobytes())
        digests[f"weights of {path.stem}"] = hashed.hexdigest()
    return digests


def report_of(folder: Path) -> dict[str, str]:
    """Return a digest of each part of the report."""
    page = (folder / "report.html").read_text()
    match = re.search(r'<script type="application/json" id="contents">(.*?)</script>', page, re.DOTALL)
    assert match is not None, f"no contents in {folder / 'report.html'}"
    contents = json.loads(match[1])
    return {f"report: {name}": digest(part) for name, part in contents.items() if name not in CHANGING}


def values_of(folder: Path) -> dict[str, Any]:
    """Return every value of the recipe by its dotted key."""
    values = {}
    for name, value in tomllib.loads((folder / "recipe.toml").read_text()).items():
        inner = value if isinstance(value, dict) else {"": value}
        values |= {f"recipe: {name}.{key}".rstrip("."): each for key, each in inner.items()}
    return {name: value for name, value in values.items() if name != "recipe: data.source"}


def observed(folder: Path) -> dict[str, Any]:
    """Return everything that is compared of one run."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{name: value for name, value in row.items() if name not in TIMED} for row in rows]
    return weights_of(folder) | {"metrics": digest(rows)} | report_of(folder) | values_of(folder)


def all_digests() -> dict[str, dict[str, Any]]:
    """Train every case, and return what is compared of each."""
    import likewise

    digests: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        os.chdir(root)  # sources are then named alike wherever the folder lies
        sources = {name: Path(path).name for name, path in made_up(root).items()}
        for number, (name, source, options) in enumerate([*RUNS, *RANKED]):
            folder, source = root / f"run{number}", sources.get(source, source)
            print(f"{number + 1} of {len(RUNS) + len(RANKED)}: {name}", file=sys.stderr)
            if options.get("devices", 1) > 1:
                arguments = ["train", source, "--method", options["method"], "--devices", str(options["devices"])]
                arguments += ["--out", str(folder), "--steps", str(STEPS), "--batch-size", "48"]
                subprocess.run([sys.executable, "-m", "likewise", *arguments], check=True, stderr=subprocess.DEVNULL)
            else:
                likewise.train(source, out=folder, steps=STEPS, batch_size=48, progress=False, **options)
            digests[name] = observed(folder)
            if name in EVALUATED:
                figures = likewise.evaluate(folder, progress=False)
                digests[name] |= {f"evaluate: {row}": digest(values) for row, values in figures.items()}
    return digests


def differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for every digest or value that changed, is gone or is new."""
    lines = []
    for case in dict.fromkeys([*before, *after]):
        old, new = before.get(case, {}), after.get(case, {})
        for name in dict.fromkeys([*old, *new]):
            if name not in old:
                lines.append(f"{case}: {name} is new, {new[name]!r}")
            elif name not in new:
                lines.append(f"{case}: {name} is gone, {old[name]!r}")
            elif old[name] != new[name]:
                lines.append(f"{case}: {name} changed, {old[name]!r} to {new[name]!r}")
    return lines


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("record", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(arguments[1]).absolute()
    before = json.loads(path.read_text()) if arguments[0] == "check" else None
    digests = all_digests()
    if before is None:
        path.write_text(json.dumps(digests, indent=1))
        return 0
    lines = differences(before, digests)
    print("\n".join(lines) or f"nothing changed in {len(digests)} runs")
    return 1 if lines else 0


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main(sys.argv[1:]))
