"""Small runs on files, and a server for each, asked over real sockets."""

import contextlib
import http.client
import json
import threading
import time

import numpy as np
import pytest
import soundfile
import uvicorn
from PIL import Image

import likewise
from likewise.explorer.explorer import Explorer
from likewise.explorer.scene import Scene
from likewise.explorer.server import application
from tests.browser import browser as browser
from tests.maps import real_maps

COLOURS = {"blue": (40, 60, 200), "green": (40, 180, 60), "red": (200, 40, 40)}
EACH = 20
SECRET = "nobody but me"
PATIENCE = 300  # seconds; it only bounds a hang


class Server:
    """A server that is asked as a browser or a program would ask it."""

    def __init__(self, explorer, port, token=None):
        self.explorer, self.port, self.token = explorer, port, token
        self.url = f"http://127.0.0.1:{port}/"

    def ask(self, path, method="GET", body=None, headers=None):
        """Status, headers and bytes; the path goes out as it stands, and so does a Host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if isinstance(body, bytes):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body if isinstance(body, bytes) else None)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, path, **asked):
        status, _, body = self.ask(path, **asked)
        assert status == 200, body
        return json.loads(body)

    def refusal(self, path, **asked):
        """The status, and the sentence, of which there is one."""
        status, _, body = self.ask(path, **asked)
        said = json.loads(body)["error"]
        assert "\n" not in said
        assert "Traceback" not in said
        return status, said


@contextlib.contextmanager
def serving(run, source=None, *, host="127.0.0.1", token=None, ready=True, **settings):
    """The page of a run, until the block ends."""

    def scene(say):
        with real_maps():
            return Scene.open(run, source, say=say, **settings)

    explorer = Explorer(run, scene)
    probe = uvicorn.Config(None, host="127.0.0.1", port=0, log_level="critical")
    sock = probe.bind_socket()
    port = sock.getsockname()[1]
    config = uvicorn.Config(application(explorer, host, port, token), log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        until(lambda: server.started)
        if ready:
            until(lambda: explorer.scene is not None or explorer.failed)
            assert not explorer.failed, explorer.message
        yield Server(explorer, port, token)
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


def until(holds, seconds=PATIENCE):
    """Wait for what will be so."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never was so"
        time.sleep(0.02)


def image(colour, rng, side=32):
    return Image.fromarray(np.clip(np.array(colour) + rng.normal(0, 15, (side, side, 3)), 0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Images in folders of their class, one of them a link that leads out; a file that is none of them."""
    folder, rng = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(EACH):
            image(colour, rng).save(folder / name / f"{i:02} of #1.png")
    (folder / "secret.txt").write_text(SECRET)
    outside = folder.parent / "outside.png"
    image((200, 200, 200), rng).save(outside)
    (folder.parent / "secret.png").write_text(SECRET)
    (folder / "red" / "link.png").symlink_to(outside)
    return folder


def trained(source, folder, **settings):
    return likewise.train(
        source, steps=3, batch_size=8, out=folder, progress=False, settings={"data.workers": 0}, **settings
    ).folder


@pytest.fixture(scope="session")
def run(photos, tmp_path_factory):
    return trained(str(photos), tmp_path_factory.mktemp("runs") / "photos", method="moco")


@pytest.fixture(scope="session")
def server(run):
    with serving(run) as started:
        yield started


@pytest.fixture
def serve():
    """Start servers that run until the test has ended, so that a page which depends on this is closed before them."""
    with contextlib.ExitStack() as servers:
        yield lambda *asked, **settings: servers.enter_context(serving(*asked, **settings))


@pytest.fixture(scope="session")
def captioned(tmp_path_factory):
    """A run of clip on labelled images in an .npz, with a column of numbers beside them."""
    rng = np.random.default_rng(0)
    names = [list(COLOURS)[i % 3] for i in range(60)]
    x = np.stack([np.asarray(image(COLOURS[name], rng)) for name in names])
    path = tmp_path_factory.mktemp("captioned") / "pictures.npz"
    captions = np.array([f"a {name} square" for name in names])
    np.savez(path, x=x, y=names, captions=captions, light=x.mean((1, 2, 3)), number=np.arange(60) % 4)
    return trained(str(path), tmp_path_factory.mktemp("runs") / "captioned")


@pytest.fixture(scope="session")
def captioned_server(captioned):
    with serving(captioned) as started:
        yield started


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """A run of CPC on audio files."""
    folder, rng = tmp_path_factory.mktemp("data") / "tones", np.random.default_rng(0)
    time_ = np.arange(4000) / 8000
    for pitch in (300, 900):
        (folder / str(pitch)).mkdir(parents=True)
        for i in range(8):
            tone = 0.5 * np.sin(2 * np.pi * pitch * time_) + rng.normal(0, 0.02, len(time_))
            soundfile.write(folder / str(pitch) / f"{i}.wav", tone, 8000)
    return trained(str(folder), tmp_path_factory.mktemp("runs") / "tones")


@pytest.fixture(scope="session")
def recordings_server(recordings):
    with serving(recordings) as started:
        yield started
