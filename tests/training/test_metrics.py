"""The curves of a run on the disk: cut back, torn, and never anything but JSON."""

import json
import math

import pytest

from likewise.training.metrics import Metrics, line, read


def write(folder, steps, first=0):
    metrics = Metrics(folder, first)
    for step in steps:
        metrics.write({"step": step, "loss": step / 2})
    metrics.close()
    return folder / "metrics.jsonl"


def steps(path):
    return [row["step"] for row in read(path)]


def test_what_is_written_is_read(tmp_path):
    row = {"step": 10, "loss": 0.5, "health": ["the queue is still filling (40 %): log N ≥ 3"], "knn": None}
    metrics = Metrics(tmp_path)
    metrics.write(row)
    assert read(tmp_path / "metrics.jsonl") == [row], "at once, not only when the run ends"
    metrics.close()
    assert metrics.rows == [row]


def test_a_new_run_begins_afresh_and_a_resumed_one_is_cut_back_to_its_checkpoint(tmp_path):
    path = write(tmp_path, [10, 20, 30, 40])
    assert steps(path) == [10, 20, 30, 40]
    write(tmp_path, [35, 45], first=30)
    assert steps(path) == [10, 20, 30, 35, 45]
    write(tmp_path, [10], first=0)
    assert steps(path) == [10]


def test_a_torn_last_line_is_left_out_wherever_it_is_torn(tmp_path):
    path = write(tmp_path, [10, 20])
    whole = path.read_bytes() + line({"step": 30, "health": ["≥"]}).encode()
    second = whole.index(b"\n", whole.index(b"\n") + 1)
    for end in range(second + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert steps(path) == [10, 20], whole[:end]
    path.write_bytes(whole[:-1])
    assert steps(path) == [10, 20, 30], "the line is whole, only its end is missing"


def test_after_a_torn_line_a_resumed_run_writes_whole_ones(tmp_path):
    path = write(tmp_path, [10, 20])
    path.write_bytes(path.read_bytes()[:-4])
    write(tmp_path, [20, 30], first=10)
    assert [json.loads(text)["step"] for text in path.read_text().splitlines()] == [10, 20, 30]


def test_a_number_that_is_none_becomes_null(tmp_path):
    metrics = Metrics(tmp_path)
    metrics.write({"step": 1, "loss": math.nan, "largest": math.inf, "least": -math.inf, "lr": 0.1})
    metrics.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"step": 1, "loss": null, "largest": null, "least": null, "lr": 0.1}\n'
    json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))


def test_no_file_is_no_rows(tmp_path):
    assert read(tmp_path / "metrics.jsonl") == []


def test_tensorboard_gets_the_numbers(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(tmp_path, [10, 20])
    (file,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    events = event_accumulator.EventAccumulator(str(file))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(10, 5.0), (20, 10.0)]
    assert events.Tags()["scalars"] == ["loss"], "the step is the axis, no curve"


NO_ROWS = [
    '{"loss": 0.5}',
    '{"step": null, "loss": 0.5}',
    '{"step": "10", "loss": 0.5}',
    '{"step": true}',
    '{"step": -1}',
    '{"step": 10.0}',
    '{"step": 1' + "0" * 400 + "}",
    '{"step": 1' + "0" * 5000 + "}",
    '{"step": 10, "loss": "low"}',
    '{"step": 10, "loss": [1, 2]}',
    '{"step": 10, "loss": {"a": 1}}',
    '{"step": 10, "loss": NaN}',
    '{"step": 10, "loss": -Infinity}',
    '{"step": 10, "loss": 1e999}',
    '{"step": 10, "size": 1' + "0" * 400 + "}",
    '{"step": 10, "health": "well"}',
    '{"step": 10, "health": [1]}',
    '{"step": 10, "health": null}',
    '{"step": 10, "accuracy": 0.5}',
    '{"step": 10, "accuracy": ["half"]}',
    "[" * 100_000,
    '{"step": ' * 100_000,
    "[10, 20]",
    "10",
    "null",
    "",
    "\x00",
]


@pytest.mark.parametrize("text", NO_ROWS, ids=[text[:30] for text in NO_ROWS])
def test_a_line_that_is_no_row_is_left_out_and_the_others_stay(tmp_path, text):
    path = write(tmp_path, [10, 20])
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{text}\n{second}\n")
    assert steps(path) == [10, 20]
    write(tmp_path, [30], first=20)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [10, 20, 30]


def test_what_is_no_regular_file_is_no_rows(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/zero")
    assert read(tmp_path / "metrics.jsonl") == []


def test_tensorboard_forgets_what_a_resumed_run_gave_up(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(tmp_path, [10, 20, 30])
    write(tmp_path, [25], first=20)
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20, 25]


def test_a_place_that_tensorboard_cannot_have_is_said_once_and_done_without(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("mine")
    said = []
    metrics = Metrics(tmp_path, 0, said.append)
    for step in (1, 2):
        metrics.write({"step": step, "loss": 0.5})
    metrics.close()
    assert steps(tmp_path / "metrics.jsonl") == [1, 2]
    assert said == ["TensorBoard's curves end here: File exists; metrics.jsonl still has everything"]
