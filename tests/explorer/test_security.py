"""What the explorer refuses: files that are not items, forged names, uploads that are too much or not what they say."""

import contextlib
import io
import json
import logging
import os
import pickle
import shutil
import socket
import struct
import threading
import zlib

import numpy as np
import pytest
import soundfile

import likewise
from likewise.explorer import files
from likewise.explorer.explorer import Explorer
from likewise.explorer.guard import Guard, is_loopback
from likewise.explorer.server import answer
from likewise.modalities import audio
from likewise.training.run import RunError
from tests.explorer.conftest import PATIENCE, SECRET, serving, until

TOKEN = "a-token-of-many-letters"


# Files


@pytest.mark.parametrize(
    "path",
    [
        "/file/../secret.png",
        "/file/..%2fsecret.png",
        "/file/%2e%2e/secret.png",
        "/file/red/../../secret.png",
        "/file/red/..%2f..%2fsecret.png",
        "/file/..%5csecret.png",
        "/file/%252e%252e/secret.png",
        "/file//etc/passwd",
        "/file/%2fetc%2fpasswd",
        "/file/secret.txt",
        "/file/red",
        "/file/",
        "/file/red/05%20of%20%231.png",
        "/file/45.png",
        "/file/-1",
        "/file/45/../../secret.txt",
        "/../secret.png",
        "/page/../secret.txt",
        "/page/..%2f..%2fcli.py",
        "/page/%2e%2e/__init__.py",
    ],
)
def test_nothing_but_the_files_of_items_is_served(server, path):
    status, _, body = server.ask(path)
    assert status == 404
    assert SECRET.encode() not in body
    assert b"root:" not in body


def test_a_link_that_leads_out_of_the_data_is_refused(server):
    """It is an item, as those who gave the folder wanted; what it leads to is not served."""
    (place,) = (item["id"] for item in server.json("/find?words=link.png")["found"])
    assert server.refusal(f"/file/{place}") == (404, f"item {place} has no file in the data")
    assert server.json(f"/item/{place}")["file"] is False


def test_an_item_that_was_replaced_by_a_link_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.png").write_text(SECRET)
    item = tmp_path / "data" / "a.png"
    item.write_text("a picture")
    assert files.original(tmp_path / "data", "a.png") == (item.resolve(), "image/png")
    item.unlink()
    item.symlink_to(tmp_path / "secret.png")
    assert files.original(tmp_path / "data", "a.png") is None


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "..", "/etc/passwd.png", None])
def test_a_path_that_leads_out_is_refused_whoever_names_it(tmp_path, name):
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "secret.png").write_text(SECRET)
    assert files.original(tmp_path / "data", name) is None


def test_a_data_folder_that_is_itself_a_link_is_no_way_out(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").write_text("a picture")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    found = files.original(tmp_path / "link", "a.png")
    assert found is not None
    assert found[0] == (tmp_path / "data" / "a.png").resolve()


def test_what_could_run_in_a_browser_is_no_picture(tmp_path):
    (tmp_path / "a.svg").write_text("<svg onload='alert(1)'/>")
    (tmp_path / "a.html").write_text("<script>alert(1)</script>")
    for name in ("a.svg", "a.html"):
        assert files.original(tmp_path, name) is None


# Who may ask


@pytest.mark.parametrize(
    "host",
    [
        *("likewise.example", "127.0.0.1.example", "evil", "", "localhost.evil", "[", "1.2.3.4"),
        *("evil.example@127.0.0.1", "127.0.0.1:8931:evil", "evil@localhost", "a:b@127.0.0.1:80", "127.0.0.1:"),
        *("127.0.0.1:http", "127.0.0.1:123456", "127.0.0.1/", "localhost?a", "localhost#a"),
        *("[::1", "::1", "[::1]evil", "[::1]:8931:evil", "[127.0.0.1]", "[evil]", "localhost\\evil", "127.1"),
    ],
)
def test_a_forged_host_is_refused(server, host):
    status, _, body = server.ask("/", headers={"Host": host})
    assert (status, body) == (403, f"Host must be a name of this server, got {host}".encode())
    assert server.ask("/file/45", headers={"Host": host})[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:99", "[::1]:8720", "LOCALHOST"])
def test_a_loopback_name_is_its_own(server, host):
    assert server.ask("/status", headers={"Host": host})[0] == 200


def test_two_hosts_or_none_are_refused(server):
    for lines in ("Host: localhost\r\nHost: evil\r\n", ""):
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(f"GET /status HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            assert line.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://[", ""])
def test_another_site_cannot_ask(server, origin):
    status, _, body = server.ask("/export", method="POST", body=b"[0]", headers={"Origin": origin})
    assert status == 403
    assert b"Origin must be this server's own page" in body


def test_its_own_page_can_ask(server):
    headers = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert server.ask("/export", method="POST", body=b"[0]", headers=headers)[0] == 200


def test_every_answer_says_what_a_page_may_do(server):
    for path in ("/", "/status", "/nothing", "/picture/0", "/file/45"):
        headers = server.ask(path)[1]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.0.3", "example.org", "")),
    ],
)
def test_what_others_can_reach_is_known(host, alone):
    assert is_loopback(host) is alone


def test_beyond_this_machine_a_token_is_demanded(run):
    with serving(run, host="0.0.0.0", token=TOKEN) as server:
        for path in ("/", "/status", "/points", "/file/45", "/?token=wrong", "/?token="):
            assert server.ask(path)[0] == 401
        for headers in (
            {"Authorization": "Bearer wrong"},
            {"Cookie": f"likewise-{server.port}=wrong"},
            {"Cookie": "="},
        ):
            assert server.ask("/status", headers=headers)[0] == 401
        assert server.ask(f"/status?token={TOKEN}")[0] == 401  # only the page's address takes it
        status, headers, _ = server.ask(f"/?token={TOKEN}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        for others in ("", 'j={"x": 1}; ', "a[b]=1; ", "odd one; "):  # cookies of other programs on this machine
            assert server.ask("/status", headers={"Cookie": others + cookie.partition(";")[0]})[0] == 200
        assert server.ask("/status", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        assert server.ask("/status", headers={"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"})[0] == 403


def test_beyond_this_machine_an_address_is_a_name_of_its_own():
    guard = Guard(None, "0.0.0.0", 8720, TOKEN)
    assert guard.is_own("192.168.0.3:8720")
    assert guard.is_own(socket.gethostname())
    assert not guard.is_own("rebound.example:8720")


@pytest.mark.parametrize(("host", "has_token"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_the_command_says_where_it_listens(run, monkeypatch, host, has_token):
    said = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: said.append(sockets[0].getsockname()[0]))
    likewise.explore(run, host=host, port=0, say=said.append)
    assert ("?token=" in said[0]) is has_token
    assert said[1] == host


def test_a_taken_port_is_said(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"^cannot listen at 127.0.0.1, port {port}: Address already in use"):
            likewise.explore(run, port=port)


# Uploads


def upload(server, content, name="picture.png"):
    return server.refusal("/upload", method="POST", body=content, headers={"X-Name": name})


def png(width, height, pixels=b""):
    """A file whose header promises so much."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def test_an_upload_of_too_many_bytes_is_refused_by_its_announcement(server):
    """Nothing of it is read: the answer comes before the body."""
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        length = files.MOST_BYTES + 1
        line.sendall(f"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        assert line.recv(100).split()[1] == b"413"


def test_an_upload_that_does_not_say_its_length_is_cut_off(server):
    part = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    answers = []
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        reading = threading.Thread(target=lambda: answers.append(line.recv(100)))
        reading.start()
        try:
            for _ in range(40):
                line.sendall(part)
        except OSError:  # it hung up
            pass
        reading.join()
    assert answers[0].split()[1] == b"413"


@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(server, width, height):
    status, said = upload(server, png(width, height))
    assert status in (400, 413)
    assert "picture.png" in said
    if width == 10_000:
        assert said == "at most 50,000,000 pixels are accepted, got 100,000,000 in picture.png"


def test_a_truncated_image_is_refused(server, photos):
    content = (photos / "red" / "05 of #1.png").read_bytes()
    status, said = upload(server, content[: len(content) // 2])
    assert status == 400
    assert said.startswith("picture.png cannot be read: ")
    assert "/" not in said  # where the file was kept is nobody's business


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n",
        b"GIF89a",
        b"\x89PNG\r\n\x1a\n",
        bytes(10_000),
        pickle.dumps({"a": 1}),
    ],
    ids=["empty", "text", "svg", "postscript", "half a gif", "half a png", "zeros", "pickle"],
)
def test_what_is_no_image_is_refused_whatever_it_is_called(server, content):
    status, said = upload(server, content)
    assert status == 400
    assert said.startswith("picture.png ")


def test_a_hostile_name_stays_text(server):
    status, said = upload(server, b"", name="%3Cscript%3Ealert(1)%3C%2Fscript%3E" + "a" * 1000)
    assert status == 400
    assert said.startswith("<script>alert(1)</script>aaa")
    assert len(said) < 400


def test_a_recording_of_too_many_samples_is_refused_before_it_is_decoded(recordings_server, monkeypatch):
    """Silence packs well: a small file may hold hours."""
    monkeypatch.setattr(audio, "MOST_SAMPLES", 100_000)
    file = io.BytesIO()
    soundfile.write(file, np.zeros(200_000, np.int16), 8000, format="flac")
    assert len(file.getvalue()) < 10_000
    assert upload(recordings_server, file.getvalue(), "a.flac") == (
        413,
        "at most 100,000 samples are accepted, got 200,000 in a.flac",
    )


@pytest.mark.parametrize(("rate", "frames"), [(1, 4000), (4_000_037, 500), (8000, 8000 * 121)])
def test_a_recording_that_would_cost_much_is_refused_by_its_header(recordings_server, rate, frames):
    """A rate that has nothing in common with ours makes a filter of millions of taps, a low one hours of sound."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(frames, np.int16), rate, format="wav")
    status, said = upload(recordings_server, file.getvalue(), "a.wav")
    if rate == 8000:
        assert (status, said) == (413, "at most 120 seconds are accepted, got 121 in a.wav")
    else:
        words = "a recording must have 1,000 to 400,000 samples a second, got"
        assert (status, said) == (400, f"{words} {rate:,} in a.wav")


def test_a_long_upload_stops_nobody_else(server):
    """What only reads is answered while something is decoded."""
    with server.explorer.one_at_a_time:
        assert len(server.json("/like/7?k=3")) == 3
        assert server.json("/find?words=green")["by"] == "name"


def test_a_tab_closed_in_the_midst_of_an_upload_is_no_error(server, capfd):
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
    assert server.json("/status")["ready"]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("host", ["localhost", "evil"])
def test_a_request_that_breaks_off_in_nonsense_is_no_error_of_the_server(server, monkeypatch, host):
    """The server below answers such a one by itself, before anything here can."""
    failures = []
    logged = lambda words, *rest, exc_info=None, **options: failures.append(exc_info)  # noqa: E731
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", logged)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        head = f"POST /upload HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
        line.sendall(head.encode() + b"no number\r\n")
        assert line.recv(100).split()[1] in (b"400", b"403")
    assert server.json("/status")["ready"]
    assert not any(failures)


def stalled(server):
    """A connection on which an upload began and does not go on."""
    line = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    line.sendall(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
    return line


def test_uploads_that_stall_keep_nobody_out(server, photos):
    content = (photos / "red" / "05 of #1.png").read_bytes()
    with stalled(server), stalled(server):
        assert len(server.json("/upload?k=3", method="POST", body=content)) == 3
        assert server.ask("/export", method="POST", body=b"[0]")[0] == 200


def test_one_client_may_have_so_many_uploads_under_way(server, photos):
    content = (photos / "red" / "05 of #1.png").read_bytes()
    words = "at most 4 uploads per client, and 8 in total, are accepted at once: try again when one has finished"
    with contextlib.ExitStack() as lines:
        for _ in range(files.MOST_OF_CLIENT):
            lines.enter_context(stalled(server))
        # All of them have begun once another is refused.
        until(lambda: server.ask("/upload", method="POST", body=content)[0] == 429)
        assert upload(server, content) == (429, words)
        assert server.json("/like/7?k=3"), "whoever only asks is answered"
    until(lambda: server.ask("/upload", method="POST", body=content)[0] == 200)


def test_clients_are_told_apart_and_all_together_are_bounded():
    uploads = files.Uploads()
    with contextlib.ExitStack() as under_way:
        for client in ("one", "two"):
            for _ in range(files.MOST_OF_CLIENT):
                under_way.enter_context(uploads.one_of(client))
            with pytest.raises(files.TooMany), uploads.one_of(client):
                pass
        with pytest.raises(files.TooMany), uploads.one_of("three"):
            pass
    assert not uploads.under_way
    with pytest.raises(KeyError), uploads.one_of("one"):
        raise KeyError("whatever ends an upload")
    assert not uploads.under_way


def test_an_upload_that_stalls_is_ended(server, monkeypatch):
    monkeypatch.setattr(files, "SECONDS", 0.1)
    with stalled(server) as line, line.makefile("rb") as answer:
        assert answer.readline().split()[1] == b"408"
        assert b"an upload must arrive within 0.1 seconds, got 4 bytes by then" in answer.read(), "and it hung up"


def test_uploads_leave_no_file_behind(server, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    upload(server, b"hello")
    server.json("/upload", method="POST", body=(photos / "red" / "05 of #1.png").read_bytes())
    assert list(tmp_path.iterdir()) == []


# Weights


class Hostile:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["encoder.safetensors", "head.safetensors"])
def test_a_pickle_dressed_as_a_checkpoint_is_refused_and_not_run(run, tmp_path, name):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("search", "explore"))
    (copy / name).write_bytes(pickle.dumps(Hostile(tmp_path / "hurt")))
    with pytest.raises(ValueError, match="cannot be read"):
        likewise.load(copy)
    with serving(copy, ready=False) as server:
        until(lambda: server.json("/status")["failed"])
    assert not (tmp_path / "hurt").exists()


def test_a_pickle_dressed_as_a_kept_map_is_not_run(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("explore"))
    with serving(copy) as server:
        first = server.ask("/points")[2]
    hostile = np.array([Hostile(tmp_path / "hurt")], dtype=object)
    (kept,) = (copy / "explore").iterdir()
    np.savez(kept, how=hostile, points=hostile, clusters=hostile)
    with serving(copy) as server:
        assert server.ask("/points")[2] == first  # made anew
    assert not (tmp_path / "hurt").exists()


def test_a_pickle_dressed_as_a_kept_index_is_refused_and_not_run(run, tmp_path):
    # Other tests of this session may have left further indices in the run.
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("search", "explore"))
    with serving(copy):
        pass
    (kept,) = (copy / "search").rglob("vectors*.npy")
    with kept.open("wb") as file:
        np.save(file, np.array([Hostile(tmp_path / "hurt")], dtype=object), allow_pickle=True)
    with serving(copy, ready=False) as server:
        until(lambda: server.json("/status")["failed"])
    assert not (tmp_path / "hurt").exists()


# Curves


def test_lines_of_any_kind_among_the_metrics_hide_no_curve(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("search", "explore"))
    path = copy / "metrics.jsonl"
    odd = [
        '{"loss": 1}',
        '{"step": null, "loss": 1}',
        '{"step": "1"}',
        '{"step": 2, "fill": 1}',
        '{"step": 2, "loss": ""}',
    ]
    path.write_text("".join(f"{text}\n" for text in [*odd[:2], path.read_text().strip(), *odd[2:]]))

    def no_scene(say):
        raise ValueError("curves only")

    curves = json.loads(answer(Explorer(copy, no_scene).curves()).body)
    assert (curves["rows"], curves["step"]) == (2, 2)
    assert "Loss" in [chart["title"] for chart in curves["charts"]]
