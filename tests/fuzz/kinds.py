"""What is damaged, and who reads it: valid files of every kind of data, runs, recipes, checkpoints, requests."""

import contextlib
import hashlib
import io
import json
import pickle
import shutil
import socket
import tarfile
import threading
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import uvicorn
from PIL import Image

import likewise
from likewise import data
from likewise.data.embeddings import read_embeddings
from likewise.explorer.explorer import Explorer
from likewise.explorer.scene import Scene
from likewise.explorer.server import application
from likewise.recipe import Recipe, read_toml
from likewise.report.contents import charts
from likewise.training import checkpoint
from likewise.training.encoder import load
from likewise.training.plan import make_plan
from likewise.training.run import Run
from tests.fuzz.mutations import archive, mutated, png

SIDE, COUNT = 12, 6
VALUES = (
    *("0", "1", "-1", "2", "7", "65536", "2147483648", "9223372036854775807", "0.0", "0.5", "1.0", "-0.5", "1e308"),
    *("nan", "inf", "true", "false", '""', '"x"', '"captions"', '"views"', '"queue"', '"bank"', '"batch"', '"none"'),
    *('"moco"', '"momentum"', '"encoder"', '"simclr"', '"\\u0000"', "[]", "{}", "1979-05-27"),
)
ENCODER = "tests.training.plain_encoder:plain"


@dataclass(frozen=True)
class Kind:
    """Files that lie in one folder, those of them that are damaged, how, and how the folder is read."""

    files: Mapping[str, bytes]
    damaged: tuple[str, ...]
    read: Callable[[Path], object]
    damage: Callable[[Random, bytes], bytes] = mutated

    def try_out(self, rng: Random, folder: Path) -> None:
        """Write the files, one of them damaged, and read them."""
        chosen = rng.choice(self.damaged)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self.damage(rng, content) if name == chosen else content)
        self.read(folder)


def opened(name: str = "", **columns: str) -> Callable[[Path], object]:
    """Open a file in the folder, or the folder itself, and look at all items."""

    def read(folder: Path) -> object:
        items = data.open(folder / name, columns=columns or None, progress=False)
        return items[np.arange(len(items))]

    return read


def all_kinds(place: Path) -> dict[str, Kind | Callable[[Random, Path], None]]:
    """Every kind by name; `place` is where the run lies that some of them are made of."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    labels = np.arange(COUNT) % 2
    captions = [f"picture number {i}" for i in range(COUNT)]
    pngs = {f"{i}.png": encoded(image, "png") for i, image in enumerate(pixels)}
    jpegs = {f"{i}.jpg": encoded(image, "jpeg") for i, image in enumerate(pixels)}
    series = {
        "sequence": [f"s{i // 20}" for i in range(100)],
        "time": list(range(100)),
        "a": rng.normal(size=100).tolist(),
        "b": rng.normal(size=100).tolist(),
        "label": ["x" if i < 40 else "y" for i in range(100)],
    }
    shown = {"image": list(pngs.values()), "label": labels.tolist(), "caption": captions}
    vectors = {"vector": rng.normal(size=(COUNT, 5)).tolist(), "label": labels.tolist()}
    named = "image,caption\n" + "".join(f"{i}.png,{text}\n" for i, text in enumerate(captions))
    about = "file_name,text,kind,part\n" + "".join(
        f"{i}.png,{text},{i % 2},{'train' if i else 'test'}\n" for i, text in enumerate(captions)
    )
    lines = "".join(json.dumps({"image": f"{i}.png", "caption": text}) + "\n" for i, text in enumerate(captions))
    cifar = {"data": rng.integers(0, 256, (COUNT, 3072), dtype=np.uint8), "labels": labels.tolist()}
    found: dict[str, Kind | Callable[[Random, Path], None]] = {
        "npy of images": Kind({"x.npy": saved(pixels)}, ("x.npy",), opened("x.npy")),
        "npy of vectors": Kind({"x.npy": saved(rng.normal(size=(COUNT, 5)))}, ("x.npy",), opened("x.npy")),
        "npz": Kind(
            {"x.npz": zipped(x=pixels, y=labels, captions=np.array(captions))}, ("x.npz",), opened("x.npz"), archive
        ),
        "npz of clips": Kind(
            {"x.npz": zipped(audio=tone(3000), offsets=np.array([0, 1000, 3000]), rate=np.array(8000))},
            ("x.npz",),
            opened("x.npz"),
            archive,
        ),
        "csv": Kind({"x.csv": as_csv(series)}, ("x.csv",), opened("x.csv")),
        "csv of one log": Kind(
            {"x.csv": as_csv({name: column for name, column in series.items() if name in ("time", "a", "b")})},
            ("x.csv",),
            opened("x.csv"),
        ),
        "parquet of series": Kind({"x.parquet": as_parquet(series)}, ("x.parquet",), opened("x.parquet")),
        "parquet of images": Kind({"x.parquet": as_parquet(shown)}, ("x.parquet",), opened("x.parquet")),
        "parquet of images by columns": Kind(
            {"x.parquet": as_parquet(shown)},
            ("x.parquet",),
            opened("x.parquet", x="image", y="caption", group="label", is_test="label", captions="caption"),
        ),
        "wav": Kind({"a.wav": as_wav(tone(4000)), "b.wav": as_wav(tone(3000))}, ("a.wav",), opened()),
        "png": Kind(pngs, ("0.png",), opened(), png),
        "jpeg": Kind(jpegs, ("0.jpg",), opened()),
        "idx": Kind(
            {"train-images-idx3-ubyte": as_idx(pixels[..., 0]), "train-labels-idx1-ubyte": as_idx(labels)},
            ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            opened(),
        ),
        "cifar": Kind({"data_batch_1": pickle.dumps(cifar, protocol=2)}, ("data_batch_1",), opened()),
        "captions.csv": Kind({**pngs, "captions.csv": named.encode()}, ("captions.csv",), opened()),
        "captions.jsonl": Kind({**pngs, "captions.jsonl": lines.encode()}, ("captions.jsonl",), opened()),
        "metadata.csv": Kind(
            {**pngs, "metadata.csv": about.encode("latin-1")},
            ("metadata.csv",),
            opened(y="kind", is_test="part"),
        ),
        "metadata.jsonl": Kind({**pngs, "metadata.jsonl": lines.encode()}, ("metadata.jsonl",), opened(y="caption")),
        "tar": Kind({"x.tar": as_tar(pngs, captions)}, ("x.tar",), opened("x.tar")),
        "embeddings.npz": Kind(
            {"x.npz": zipped(vectors=rng.normal(size=(COUNT, 5)), labels=labels)},
            ("x.npz",),
            lambda folder: read_embeddings(folder / "x.npz"),
            archive,
        ),
        "embeddings.parquet": Kind(
            {"x.parquet": as_parquet(vectors)}, ("x.parquet",), lambda folder: read_embeddings(folder / "x.parquet")
        ),
    }
    run = trained(place, pixels, captions)
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.suffix != ".html"}
    weights = tuple(name for name in files if name.endswith(".safetensors"))
    steps = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    found |= {
        "recipe": Kind(files, ("recipe.toml",), recipe_read),
        "plan": Kind(files, ("recipe.toml",), partial(planned, {"x": pixels, "captions": captions}), values_damaged),
        "run": Kind(files, ("recipe.toml", "tokenizer.json", "words.txt", "metrics.jsonl", "made_here"), used),
        "weights": Kind(files, weights, used, weights_damaged),
        "checkpoint": Kind(steps, tuple(steps), resumed, checkpoint_damaged),
        "request": Requests(run, place / "x.npz", pngs["0.png"]),
    }
    return found


def trained(place: Path, pixels: np.ndarray, captions: list[str]) -> Path:
    """A run with all that a run can have: two towers, a tokenizer, words, a checkpoint."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "x.npz").write_bytes(zipped(x=np.tile(pixels, (4, 1, 1, 1)), captions=np.array(captions * 4)))
    settings = {"training.steps": 1, "training.batch_size": 4, "data.workers": 0, "encoder.dim": 8}
    options = {"method": "clip", "encoder": ENCODER, "settings": settings, "progress": False}
    return likewise.train(place / "x.npz", out=place / "run", **options).folder


def recipe_read(folder: Path) -> object:
    return Recipe().with_values(read_toml(folder / "recipe.toml"))


def planned(source: Mapping[str, object], folder: Path) -> object:
    """What `train` makes of a recipe before it builds anything; its encoder is ours, and not the one it names."""
    values = read_toml(folder / "recipe.toml")
    return make_plan(source, None, values | {"encoder.name": "resnet_tiny"}, progress=False)


def values_damaged(rng: Random, content: bytes) -> bytes:
    """A recipe that can be read, with some values that are not those of any run."""
    lines = content.decode().splitlines()
    places = [place for place, line in enumerate(lines) if " = " in line]
    for place in rng.sample(places, rng.choice((1, 1, 2, 5))):
        lines[place] = f"{lines[place].partition(' = ')[0]} = {rng.choice(VALUES)}"
    return "\n".join(lines).encode()


def used(folder: Path) -> object:
    """What the commands and the explorer do with a run's folder."""
    run = Run(folder)
    charts(run.metrics, run.recipe)
    encoder = load(folder)
    return encoder.unseen("a word"), encoder.embed_text(["picture number 1"])


def resumed(folder: Path) -> object:
    found = checkpoint.newest(folder, lambda path, reason: None)
    return found and checkpoint.unflatten(found.tensors, found.state["learner"])


def weights_damaged(rng: Random, content: bytes) -> bytes:
    """Safetensors: eight bytes of length, a header in JSON, tensors. Half the time the length is right."""
    if rng.random() < 0.5:
        return mutated(rng, content)
    length = int.from_bytes(content[:8], "little")
    header = mutated(rng, content[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def checkpoint_damaged(rng: Random, content: bytes) -> bytes:
    """Damaged; half the time, where it is JSON, its digest is made to fit."""
    start = content.find(b'"checkpoint": ') + len(b'"checkpoint": ')
    if not content.startswith(b'{"sha256"') or rng.random() < 0.5:
        return mutated(rng, content)
    body = mutated(rng, content[start:-2])
    return b'{"sha256": "%s", "checkpoint": %s}\n' % (hashlib.sha256(body).hexdigest().encode(), body)


class Requests:
    """Damaged requests to a server of a run, which must answer, refuse or hang up, and have no error of its own."""

    def __init__(self, run: Path, source: Path, picture: bytes) -> None:
        self.run, self.source, self.picture, self.port = run, source, picture, 0

    def __call__(self, rng: Random, folder: Path) -> None:
        if not self.port:
            self._start()
        request = mutated(rng, rng.choice(self._valid()))
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port)) as line, contextlib.suppress(ConnectionError):
            line.sendall(request)
            line.shutdown(socket.SHUT_WR)  # whatever is missing does not come
            while part := line.recv(1 << 16):
                answer += part
        status = answer.split(b" ", 2)[1:2]
        if status and status[0] >= b"500":
            raise AssertionError(f"the server answered {answer[:300]!r} to {request[:300]!r}")

    def _start(self) -> None:
        explorer = Explorer(self.run, lambda say: Scene.open(self.run, self.source, say=say))
        sock = uvicorn.Config(None, host="127.0.0.1", port=0, log_level="critical").bind_socket()
        self.port = sock.getsockname()[1]
        config = uvicorn.Config(
            application(explorer, "127.0.0.1", self.port, None), log_level="error", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
        waiting = threading.Event()
        while not (server.started and (explorer.scene is not None or explorer.failed)):
            waiting.wait(0.02)
        assert not explorer.failed, explorer.said

    def _valid(self) -> list[bytes]:
        paths = ["/", "/status", "/curves", "/about", "/points", "/column/0", "/item/3", "/picture/2", "/file/1"]
        paths += ["/like/4?k=5", "/find?words=picture%20number&k=3", "/page/points.js", "/sound/1"]
        asked = [f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode() for path in paths]
        for path, body in (("/upload?k=3", self.picture), ("/export", b"[0, 1, 5]")):
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nX-Name: a%20b.png\r\nConnection: close\r\n"
            asked.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            asked.append(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked)
        return asked


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def encoded(image: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def tone(length: int) -> np.ndarray:
    return (8000 * np.sin(np.arange(length) / 7)).astype(np.int16)


def as_wav(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, len(samples), "NONE", ""))
        sound.writeframes(samples.tobytes())
    return file.getvalue()


def as_idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def as_csv(columns: Mapping[str, list]) -> bytes:
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows), ""]).encode()


def as_parquet(columns: Mapping[str, list]) -> bytes:
    file = io.BytesIO()
    parquet.write_table(arrow.table(dict(columns)), file)
    return file.getvalue()


def as_tar(pictures: Mapping[str, bytes], captions: list[str]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as shard:
        for (name, content), text in zip(pictures.items(), captions, strict=True):
            stem = name.partition(".")[0]
            about = json.dumps({"label": "x", "caption": text}).encode()
            for member, inside in ((name, content), (f"{stem}.txt", text.encode()), (f"{stem}.json", about)):
                info = tarfile.TarInfo(member)
                info.size = len(inside)
                shard.addfile(info, io.BytesIO(inside))
    return file.getvalue()


def cleared(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
