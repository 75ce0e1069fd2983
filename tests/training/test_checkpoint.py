"""A checkpoint comes back to the bit, or is recognised as damaged, whatever happens to the disk or the process."""

import errno
import hashlib
import json
import math
import os
import resource
import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from likewise.training import checkpoint, optimizers
from likewise.training.checkpoint import CheckpointError, flatten, newest, save, unflatten

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "ids": torch.tensor([3, -1])}


def fail(path, reason):
    raise AssertionError(f"{path} is whole, and was called damaged: {reason}")


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def bits(tensor):
    """All of a tensor but where it lies, comparable also where it holds NaN."""
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.contiguous().flatten().view(torch.uint8).tolist()


def round_trip(folder, tensors, state=None):
    save(folder, 1, tensors, state or {})
    found = newest(folder, fail)
    assert found.tensors.keys() == tensors.keys()
    return found


# Round trips


@pytest.mark.parametrize("dtype", checkpoint.STORABLE, ids=str)
def test_every_dtype_comes_back_to_the_bit(tmp_path, dtype):
    raw = torch.randint(256, (3, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)  # NaNs among them
    tensor = raw[:, :5] > 99 if dtype is torch.bool else raw.view(dtype)
    found = round_trip(tmp_path, {"a": tensor, "no axes": tensor[0, 0], "nothing": tensor[:0]})
    assert bits(found.tensors["a"]) == bits(tensor.contiguous())
    assert bits(found.tensors["no axes"]) == bits(tensor[0, 0])
    assert bits(found.tensors["nothing"]) == bits(tensor[:0].contiguous())


def test_strides_come_back_and_gaps_do_not(tmp_path):
    image = torch.randn(2, 3, 4, 5)
    tensors = {
        "channels last": image.contiguous(memory_format=torch.channels_last),
        "one channel": image[:, :1].contiguous(memory_format=torch.channels_last),
        "transposed": torch.randn(4, 6).T,
        "permuted": image.permute(3, 0, 2, 1),
        "every other": torch.randn(4, 6)[:, ::2],
        "expanded": torch.randn(4, 1).expand(4, 6),
        "parameter": nn.Parameter(torch.randn(3)),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    }
    found = round_trip(tmp_path, tensors).tensors
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor.detach())
        assert found[name].is_contiguous() == tensor.is_contiguous() or name in ("every other", "expanded")
        assert not found[name].requires_grad
    for name in ("channels last", "one channel", "transposed", "permuted"):
        assert found[name].stride() == tensors[name].stride()


def test_tensors_that_share_memory_come_back_apart(tmp_path):
    row = torch.arange(6.0)
    found = round_trip(tmp_path, {"row": row, "again": row, "part": row[2:4], "turned": row.reshape(2, 3).T}).tensors
    assert torch.equal(found["row"], row)
    assert torch.equal(found["again"], row)
    assert torch.equal(found["part"], row[2:4])
    assert torch.equal(found["turned"], row.reshape(2, 3).T)
    found["row"].zero_()  # writable, and nobody else's
    assert torch.equal(found["again"], row)


def test_what_was_read_outlives_the_file(tmp_path):
    found = round_trip(tmp_path, TENSORS)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    assert torch.equal(found.tensors["weight"], TENSORS["weight"])


def same(a, b):
    """Equal in type, order, sign of zero and NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


KEYS = st.text() | st.integers() | st.booleans() | st.none() | st.sampled_from(["$tensor", "$dict", "$tuple", "$float"])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(math.nan) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@settings(max_examples=60)
@given(PLAIN)
def test_any_nesting_survives_strict_json(value):
    tensors, plain = flatten(value)
    assert tensors == {}
    assert same(unflatten({}, json.loads(json.dumps(plain, allow_nan=False))), value)
    assert same(unflatten({}, flatten(plain)[1]), plain)


def test_the_state_comes_back_as_it_was(tmp_path):
    state = {"loss": 0.1 + 0.2, "nan": math.nan, "inf": -math.inf, "zero": -0.0, "tiny": 5e-324, "big": 2**70}
    state |= {"betas": (0.9, 0.999), "none": None, "nested": {3: [True, {}]}, "$tuple": "a name", "név": "\ud800"}
    assert same(round_trip(tmp_path, {}, state).state, state)
    json.loads((tmp_path / "step-000001.json").read_text(), parse_constant=fail)  # strict: no NaN, no Infinity


def test_flatten_names_tensors_by_their_place():
    one, two, three = torch.zeros(3, 1).unbind()
    nested = OrderedDict({"state": {0: {"exp_avg": one}}, "a.b": two, "a": {"b": three}})
    tensors, plain = flatten(nested)
    assert list(tensors) == ["state.0.exp_avg", "a.b", "a.b'"]
    back = unflatten(tensors, plain)
    assert back == dict(nested)
    assert back["a"]["b"] is three


@pytest.mark.parametrize("name", optimizers.NAMES)
def test_a_resumed_optimizer_gives_the_bits_of_an_undisturbed_one(tmp_path, name):
    """Also with channels-last weights, whose state a fused kernel must not find in another order."""

    def start():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 7))
        model = model.to(memory_format=torch.channels_last)
        return model, optimizers.build(name, model, lr=0.01, momentum=0.9, weight_decay=0.1)

    def train(model, optimizer, steps):
        for step in steps:
            x = torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(step))
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    model, optimizer = start()
    train(model, optimizer, range(3))
    tensors, plain = flatten({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    save(tmp_path, 3, tensors, {"plain": plain})
    train(model, optimizer, range(3, 6))

    resumed, resumed_optimizer = start()
    found = newest(tmp_path, fail)
    nested = unflatten(found.tensors, found.state["plain"])
    resumed.load_state_dict(nested["model"])
    resumed_optimizer.load_state_dict(nested["optimizer"])
    train(resumed, resumed_optimizer, range(found.step, 6))

    was, now = (
        flatten([m.state_dict(), o.state_dict()]) for m, o in ((model, optimizer), (resumed, resumed_optimizer))
    )
    assert was[1] == now[1]
    assert was[0].keys() == now[0].keys()
    assert all(bits(was[0][key]) == bits(now[0][key]) for key in was[0])


# What is kept


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    assert newest(tmp_path, fail) is None
    assert newest(tmp_path / "missing", fail) is None


def test_the_last_two_are_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("not ours")
    folder = tmp_path / "run" / "checkpoints"
    for step in (0, 500, 1000, 1_000_000):
        assert save(folder, step, TENSORS, {"step": step}) == folder / f"step-{step:06d}.json"
        assert newest(folder, fail).step == step
    pairs = ["step-001000.json", "step-001000.safetensors", "step-1000000.json", "step-1000000.safetensors"]
    assert files(folder) == pairs
    assert files(tmp_path) == ["notes.txt", "run"]


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("step-12.json", "best.safetensors", "step-000001.txt", "metrics.json.tmp"):
        (tmp_path / name).write_text("{}")
    before = files(tmp_path)
    for step in range(3):
        save(tmp_path, step, TENSORS, {})
    assert set(before) < set(files(tmp_path))
    assert newest(tmp_path, fail).step == 2


def test_a_damaged_one_is_not_one_of_the_last_two(tmp_path):
    save(tmp_path, 1, TENSORS, {})
    save(tmp_path, 2, TENSORS, {})
    (tmp_path / "step-000002.safetensors").write_bytes(b"torn")
    save(tmp_path, 3, TENSORS, {})
    assert [path.stem for path in checkpoint._indices(tmp_path)] == ["step-000001", "step-000003"]


def test_a_later_step_was_given_up_when_the_run_went_back(tmp_path):
    """Resumed from step 1, because step 5 was damaged: after step 3 is saved, 5 must not be the newest again."""
    for step in (1, 5, 3):
        save(tmp_path, step, TENSORS, {"saved": step})
    assert newest(tmp_path, fail).step == 3
    assert [path.stem for path in checkpoint._indices(tmp_path)] == ["step-000001", "step-000003"]


def test_saving_a_step_again_replaces_it(tmp_path):
    for value in (1.0, 2.0, 2.0, 3.0):
        save(tmp_path, 7, {"a": torch.tensor(value)}, {"value": value})
        found = newest(tmp_path, fail)
        assert (found.tensors["a"].item(), found.state["value"]) == (value, value)
        assert len(files(tmp_path)) == 2


# Damage


@pytest.fixture
def two(tmp_path):
    """Steps 1 and 2 in a folder."""
    for step in (1, 2):
        save(tmp_path, step, {name: tensor + step for name, tensor in TENSORS.items()}, {"loss": 1e-8 * step})
    return tmp_path


def damaged_newest(folder):
    """The reasons given, once step 1 was used instead of step 2."""
    told = []
    found = newest(folder, lambda path, reason: told.append((path.name, reason)))
    assert found.step == 1
    assert torch.equal(found.tensors["weight"], TENSORS["weight"] + 1)
    assert [name for name, _ in told] == ["step-000002.json"]
    return told[0][1]


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_a_flipped_bit_anywhere_is_recognised(two, kind):
    path = two / f"step-000002.{kind}"
    whole = path.read_bytes()
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        assert "altered" in damaged_newest(two)
    path.write_bytes(whole)
    assert newest(two, fail).step == 2


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_a_torn_file_is_recognised_wherever_it_ends(two, kind):
    path = two / f"step-000002.{kind}"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert "incomplete" in damaged_newest(two)
    path.write_bytes(whole[:-32] + bytes(32))  # pages that never reached the disk read as zeros
    assert "altered" in damaged_newest(two)
    path.write_bytes(whole + b"\n")
    assert "incomplete" in damaged_newest(two)


def test_damage_is_told_in_words(two):
    weights = two / "step-000002.safetensors"
    size = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:100])
    assert damaged_newest(two) == f"its tensors are incomplete: expected {size} bytes, got 100"
    weights.unlink()
    assert damaged_newest(two) == "its tensors are missing: there is no step-000002.safetensors"
    weights.mkdir()
    assert damaged_newest(two).startswith(("its tensors are incomplete", "it cannot be read"))
    (two / "step-000002.json").write_bytes((two / "step-000001.json").read_bytes())
    assert damaged_newest(two) == "its JSON belongs to step 1"


def test_by_default_damage_is_a_warning(two):
    (two / "step-000002.json").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"step-000002\.json is damaged and the one before it is used: its JSON"):
        assert newest(two).step == 1


def test_when_all_are_damaged_there_is_none(two):
    told = []
    for path in two.glob("*.safetensors"):
        path.write_bytes(b"")
    assert newest(two, lambda path, reason: told.append(path.stem)) is None
    assert told == ["step-000002", "step-000001"]


def test_tensors_without_json_are_no_checkpoint(two):
    (two / "step-000002.json").unlink()
    assert newest(two, fail).step == 1


def sealed(folder, body):
    """Give step 2 this JSON, with the digest that fits it: whoever hands a run over can do so."""
    digest = hashlib.sha256(body).hexdigest().encode()
    (folder / "step-000002.json").write_bytes(b'{"sha256": "%s", "checkpoint": %s}\n' % (digest, body))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"null", b"2", b"{}", b'{"step": "2"}', b'{"step": 2}', b'{"step": 2, "tensors": []}', b"\xff"),
        *(b"[" * 100_000, b'{"step": 2, "tensors": {"file": 5}}'),
    ],
    ids=lambda body: body[:20].decode(errors="replace"),
)
def test_json_of_other_content_is_no_checkpoint(two, body):
    sealed(two, body)
    assert damaged_newest(two) == "its JSON is not a checkpoint"
    save(two, 3, TENSORS, {})
    assert newest(two, fail).step == 3


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("state", {"$float": []}, "its JSON is not a checkpoint"),
        ("state", {"$dict": [[[], 1]]}, "its JSON is not a checkpoint"),
        ("state", {"$tuple": 5}, "its JSON is not a checkpoint"),
        ("strides", {"weight": [10**12, 1]}, "its strides do not fit weight"),
        ("strides", {"weight": [0, 0]}, "its strides do not fit weight"),
        ("strides", {"weight": [1]}, "its JSON is not a checkpoint"),
        ("strides", {"weight": "ab"}, "its JSON is not a checkpoint"),
        ("strides", {"weight": [10**30, 1]}, "its JSON is not a checkpoint"),
        ("strides", [], "its JSON is not a checkpoint"),
    ],
)
def test_a_state_or_strides_of_other_content_are_no_checkpoint(two, key, value, reason):
    content = json.loads((two / "step-000002.json").read_bytes())["checkpoint"]
    (content["tensors"] if key == "strides" else content)[key] = value
    sealed(two, json.dumps(content).encode())
    assert damaged_newest(two) == reason


# Full disks


def assert_survived(folder, before, step, error):
    """One sentence, nothing of the failed checkpoint left, and the ones before it as they were."""
    sentence = f"checkpoint of step {step} could not be written to {folder}: {os.strerror(error.value.errno)}; "
    assert str(error.value) == sentence + "earlier ones are kept"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    save(folder, step, TENSORS, {})
    assert newest(folder, fail).step == step


@pytest.mark.parametrize("step", [2, 3], ids=["a step saved again", "a new step"])
@pytest.mark.parametrize(("call", "number"), [("fsync", 0), ("fsync", 1), ("replace", 0), ("replace", 1)])
def test_a_disk_that_fills_up_while_flushing_or_renaming(two, monkeypatch, call, number, step):
    before = {path.name: path.read_bytes() for path in two.iterdir()}
    calls, real = [], getattr(os, call)

    def full(*args):
        calls.append(args)
        if len(calls) == number + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError) as error:
        save(two, step, TENSORS, {"another": "state"})
    assert error.value.errno == errno.ENOSPC
    assert_survived(two, before, step, error)


@pytest.mark.parametrize("limit", [0, 50, 4096], ids=["nothing fits", "a part fits", "a page fits"])
def test_a_disk_that_fills_up_while_writing(two, limit):
    """A real limit on the size of a file: the kernel writes up to it, then refuses."""
    before = {path.name: path.read_bytes() for path in two.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(CheckpointError) as error:
            save(two, 3, {"large": torch.zeros(4096)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_survived(two, before, 3, error)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CheckpointError, match=r"could not be written to .*: (Not a directory|File exists); earlier ones"
    ):
        save(tmp_path / "file", 1, TENSORS, {})


# Kills

KILLED = """
import os, sys
from pathlib import Path
import torch
from likewise.training import checkpoint

torch.set_num_threads(1)

def save(folder, step):
    checkpoint.save(folder, step, {"a": torch.full((3,), float(step))}, {"step": step})

def killed_at(number, step):
    # Every call that changes what is on the disk, but for the writes themselves, counts.
    calls = [0]
    def counting(real):
        def call(*args, **kwargs):
            if calls[0] == number:
                os._exit(9)
            calls[0] += 1
            return real(*args, **kwargs)
        return call
    for name in ("fsync", "replace", "unlink", "open"):
        setattr(os, name, counting(getattr(os, name)))
    save(folder, step)

for step in (2, 3):
    number = 0
    while True:
        folder = Path(sys.argv[1]) / f"{step}-{number}"
        save(folder, 1)
        save(folder, 2)
        child = os.fork()
        if child == 0:
            killed_at(number, step)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        number += 1
"""


def test_killed_at_any_moment_a_run_has_a_whole_checkpoint_and_the_next_save_cleans_up(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=True)
    seen = {2: set(), 3: set()}
    for folder in tmp_path.iterdir():
        saving = int(folder.name[0])
        left = files(folder)
        found = newest(folder, fail)
        assert found.step in (2, saving)
        assert found.tensors["a"].tolist() == [found.step] * 3
        # Between the two renames: the tensors have their name, the JSON does not.
        between = f"step-{saving:06d}.json.tmp" in left and not any(name.endswith("safetensors.tmp") for name in left)
        seen[saving].add((found.step, between))
        save(folder, 4, TENSORS, {})
        kept = [f"step-{found.step:06d}.json", "step-000004.json", "step-000004.safetensors"]
        assert len(files(folder)) == 4
        assert set(kept) < set(files(folder))
    assert (2, True) in seen[3]
    assert (3, False) in seen[3]
    assert (2, True) in seen[2]


# Errors

CASES = {
    "step must be a whole number >= 0, got -1": lambda folder: save(folder, -1, {}, {}),
    "step must be a whole number >= 0, got 2.0": lambda folder: save(folder, 2.0, {}, {}),
    "a must be a dense tensor of a dtype that safetensors knows, got list": lambda folder: save(
        folder, 1, {"a": [1.0]}, {}
    ),
    "a must be a dense tensor of a dtype that safetensors knows, got torch.strided of torch.complex128": (
        lambda folder: save(folder, 1, {"a": torch.zeros(2, dtype=torch.complex128)}, {})
    ),
    "a must be a dense tensor of a dtype that safetensors knows, got torch.sparse_coo of torch.float32": (
        lambda folder: save(folder, 1, {"a": torch.eye(2).to_sparse()}, {})
    ),
    "a tensor's name must be a string other than '__metadata__', got '__metadata__'": lambda folder: save(
        folder, 1, {"__metadata__": torch.zeros(1)}, {}
    ),
    "state.a.0 must be made of None, bools, numbers, strings, lists, tuples and dicts, got Tensor": (
        lambda folder: save(folder, 1, {}, {"a": [torch.zeros(1)]})
    ),
    "a.3 must be made of None, bools, numbers, strings, lists, tuples, dicts and tensors, got set": (
        lambda folder: flatten({"a": {3: {1}}})
    ),
    "tensors must hold 'a', got 0 others": lambda folder: unflatten({}, flatten({"a": torch.zeros(1)})[1]),
}


@pytest.mark.parametrize("sentence", CASES)
def test_bad_input_is_one_sentence(tmp_path, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence](tmp_path)
    assert str(error.value) == sentence
    assert files(tmp_path) == []
