"""What is handed out: the wheel and the source archive, with everything in them that users need."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from likewise import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """Build both as `make dist` does: with this environment's hatchling, so without a network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    return dist / f"likewise-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def sdist(dist) -> Path:
    return dist / f"likewise-{__version__}.tar.gz"


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    about = f"likewise-{__version__}.dist-info/"
    assert all(name.startswith(("likewise/", about)) for name in names)
    kept = [path for path in (ROOT / "likewise").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT).as_posix() for path in kept} <= set(names)
    assert "likewise/py.typed" in names
    assert f"{about}licenses/LICENSE" in names


def test_the_metadata_are_complete(wheel):
    with zipfile.ZipFile(wheel) as archive:
        about = f"likewise-{__version__}.dist-info"
        found = email.message_from_bytes(archive.read(f"{about}/METADATA"))
        scripts = archive.read(f"{about}/entry_points.txt").decode()
    assert found["Name"] == "likewise"
    assert found["Version"] == __version__
    assert found["Summary"] == PROJECT["description"]
    assert found["Author"] == "likewise contributors"
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Requires-Python"] == ">=3.11"
    assert found["Keywords"]
    assert found["Description-Content-Type"] == "text/markdown"
    assert found.get_payload().startswith("# likewise")
    assert set(found.get_all("Classifier")) == set(PROJECT["classifiers"])
    assert set(found.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert "likewise = likewise.cli:main" in scripts


def test_wheel_and_source_archive_have_the_same_metadata(wheel, sdist):
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.read(f"likewise-{__version__}.dist-info/METADATA")
    with tarfile.open(sdist) as archive:
        assert archive.extractfile(f"likewise-{__version__}/PKG-INFO").read() == in_wheel


def test_the_source_archive_has_what_is_needed_to_build_and_to_test(sdist):
    top = f"likewise-{__version__}"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    wanted = ["pyproject.toml", "constraints.txt", "Makefile", "README.md", "README.zh.md", "LICENSE", "CHANGELOG.md"]
    wanted += ["likewise/py.typed", "docs/conf.py", "docs/index.md", "tests/conftest.py", "recipes/simclr_cifar10.toml"]
    assert set(wanted) <= names
    assert not [name for name in names if re.match(r"(docs/_build|\.venv|runs|dist)/", name)]


def test_all_has_every_extra_of_users():
    extras = PROJECT["optional-dependencies"]
    listed = re.fullmatch(r"likewise\[(.*)\]", extras["all"][0])[1].split(",")
    assert set(listed) == set(extras) - {"all", "docs", "dev", "studies"}


def test_every_requirement_is_pinned_for_tests():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = [
        *PROJECT["dependencies"],
        *(name for extra in PROJECT["optional-dependencies"].values() for name in extra),
    ]
    names = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in wanted} - {"likewise"}
    assert names <= pinned


@pytest.mark.slow
def test_the_wheel_and_the_source_archive_work_in_an_environment_of_their_own(wheel, sdist, tmp_path):
    """The wheel is installed with torch, which takes minutes; then the source archive takes its place."""
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LIKEWISE_"))}
    environment |= {"LIKEWISE_CONFIG": str(tmp_path / "config"), "LIKEWISE_CACHE": str(tmp_path / "cache")}

    def run(*command: str | Path) -> str:
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    again = ["--force-reinstall", "--no-deps"]
    came_from = "from importlib.metadata import distribution as d; print(d('likewise').read_text('direct_url.json'))"
    for archive, command in {wheel: [f"{wheel}[demo]"], sdist: [*again, sdist]}.items():
        run(*install, *command)
        assert archive.name in run(python, "-c", came_from)
        assert run(python, "-c", "import likewise; print(likewise.__file__)").startswith(str(tmp_path))
        out = tmp_path / f"run-{archive.suffix}"
        assert "learned encoder" in run(python.with_name("likewise"), "demo", "--steps", "20", "--out", out)
        assert (out / "report.html").exists()
