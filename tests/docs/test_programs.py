"""The programs in other languages that a page shows: they are compiled, and run where what they need is there."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import likewise
from tests.docs.markdown import DOCS, blocks

PAGE = (DOCS / "guide" / "export.md").read_text()
(CPP,) = [block.code for block in blocks(PAGE) if block.language == "cpp"]
(HTML,) = [block.code for block in blocks(PAGE) if block.language == "html"]
(BUILD,) = [block.code for block in blocks(PAGE) if block.code.startswith("g++ ")]
SCRIPT = re.search(r'<script type="module">(.*?)</script>', HTML, flags=re.DOTALL)[1]
RELEASE = "ONNXRUNTIME"  # names a folder with an unpacked release of onnxruntime

# As much of onnxruntime's header as the program uses, so that a compiler can read the program without it.
HEADER = """
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>
enum OrtLoggingLevel { ORT_LOGGING_LEVEL_WARNING };
enum OrtAllocatorType { OrtArenaAllocator };
enum OrtMemType { OrtMemTypeDefault };
struct OrtMemoryInfo;
namespace Ort {
struct Exception : std::exception {};
struct Env { Env(OrtLoggingLevel, const char*); };
struct SessionOptions { SessionOptions(); };
struct RunOptions { explicit RunOptions(std::nullptr_t); };
struct MemoryInfo {
    static MemoryInfo CreateCpu(OrtAllocatorType, OrtMemType);
    operator const OrtMemoryInfo*() const;
};
struct TensorTypeAndShapeInfo { std::vector<std::int64_t> GetShape() const; };
struct Value {
    template <typename T>
    static Value CreateTensor(const OrtMemoryInfo*, T*, std::size_t, const std::int64_t*, std::size_t);
    TensorTypeAndShapeInfo GetTensorTypeAndShapeInfo() const;
    template <typename T> const T* GetTensorData() const;
};
struct Session {
    Session(const Env&, const char*, const SessionOptions&);
    std::vector<Value> Run(const RunOptions&, const char* const*, const Value*, std::size_t, const char* const*,
                           std::size_t);
};
}
"""
# What the page finds in a browser. A picture here is grey in its first pixels and black in the others.
BROWSER = """
import { writeFileSync } from "node:fs";
let listener;
const elements = {
  files: { addEventListener: (name, heard) => { listener = heard; } },
  said: { textContent: "" },
};
globalThis.document = { getElementById: (id) => elements[id] };
globalThis.createImageBitmap = async (file) => ({ width: 30, height: 20, ...file });
const drawn = {};
globalThis.OffscreenCanvas = class {
  constructor(width, height) { this.pixels = width * height; }
  getContext = () => ({
    fillRect: () => {},
    drawImage: (picture, ...places) => Object.assign(drawn, { picture, places }),
    getImageData: () => {
      const { grey, filled } = drawn.picture;
      return { data: Array.from({ length: 4 * this.pixels }, (_, i) => (i / 4 < filled * this.pixels ? grey : 0)) };
    },
  });
};
await import("./page.mjs");
const files = [
  { name: "a", grey: 100, filled: 1 }, { name: "b", grey: 50, filled: 1 }, { name: "c", grey: 50, filled: 0.5 },
];
await listener({ target: { files } });
writeFileSync("said.json", JSON.stringify({ said: elements.said.textContent, places: drawn.places }));
"""
# onnxruntime-web, with a network whose features are its pixels.
RUNTIME = """
export class Tensor {
  constructor(type, data, shape) {
    if (type !== "float32" || !(data instanceof Float32Array)) throw new Error("no float32");
    if (data.length !== shape.reduce((product, side) => product * side)) throw new Error(`no ${shape}`);
    if (Math.min(...data) < 0 || Math.max(...data) > 1) throw new Error("not from 0 to 1");
    this.data = data;
  }
}
export const InferenceSession = { create: async (file) => ({ run: async ({ pixels }) => ({ features: pixels }) }) };
"""


def program(name: str) -> str:
    """Return the path of a program, or skip the test."""
    return shutil.which(name) or pytest.skip(f"the page's program is checked by {name}, which is not here")


def test_the_program_in_cpp_compiles(tmp_path):
    (tmp_path / "onnxruntime_cxx_api.h").write_text(HEADER)
    (tmp_path / "embed.cpp").write_text(CPP)
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", "."]
    ran = subprocess.run([program("g++"), *options, "embed.cpp"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_program_in_cpp_gives_the_encoders_features(tmp_path):
    """It needs a release of onnxruntime, with its header, which Python's package does not have."""
    if not os.environ.get(RELEASE):
        pytest.skip(f"the program in C++ is run with a release of onnxruntime: set {RELEASE} to its folder")
    program("g++")
    run = likewise.train("digits", method="moco", steps=2, out=tmp_path / "runs" / "digits", progress=False)
    likewise.export(run.folder, tmp_path / "exported" / "digits.onnx")
    pixels = likewise.data.open("digits").array[:4] / np.float32(255)
    pixels.tofile(tmp_path / "pixels.bin")
    (tmp_path / "embed.cpp").write_text(CPP)
    (tmp_path / "onnxruntime").symlink_to(Path(os.environ[RELEASE]).resolve())
    ran = subprocess.run(["bash", "-ec", BUILD], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    printed = [[float(number) for number in line.split()[:4]] for line in ran.stdout.splitlines()]
    expected = likewise.load(run.folder).embed("digits", progress=False).vectors[:4, :4]
    np.testing.assert_allclose(printed, expected, rtol=1e-3, atol=1e-4)


def test_the_page_for_the_browser_compares_pictures(tmp_path):
    """Node runs the page's script, with as much of a browser and of onnxruntime-web as it uses."""
    for name, code in {"page": SCRIPT, "browser": BROWSER, "ort.wasm.min": RUNTIME}.items():
        (tmp_path / f"{name}.mjs").write_text(code)
    ran = subprocess.run([program("node"), "browser.mjs"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "said.json").read_text())
    assert found["said"].splitlines() == ["a and b: 1.0000", "a and c: 0.7071"]
    assert found["places"] == [5, 0, 20, 20, 0, 0, 8, 8], "the largest centred square"
