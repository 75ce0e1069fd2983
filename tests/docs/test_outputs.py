"""What is compared of an output that a page shows, and what is not."""

import pytest

from docs.record import shortened
from tests.docs.outputs import difference, masked

PRINTED = """\
data       photos: 27 images of 3×32×32, 3 held out, 2 classes
training   2 steps of 8 (0.5 epochs), adamw at 0.002, on cpu: about 1 s
chosen     keys.momentum = 0.99: the run has only 2 steps
1/2  loss 2.100 (chance 2.20)  90 items/s  1 s left
2/2  loss 2.000 (chance 2.20)  k-NN of 3 items 0.333  90 items/s  done
note  the queue is still filling (50%) (see docs/guide/reading-a-run.md#queue-filling)
writing the report …
┏━━━━┓
┃ id ┃
┡━━━━┩
│ 1  │
└────┘
similarity: cosine of the
two, l2 0.1, 1e-05
report in runs/photos/report.html
"""
LINES = PRINTED.splitlines()
SHOWN = """\
data       photos: 1,089 images of 3×64×64, 121 held out, 12 classes
training   4,000 steps of 128 (50.0 epochs), adamw at 0.002, on cpu: about 1 h 5 min
chosen     keys.momentum = 0.99: the run has only 4,000 steps
120/4000  loss 5.905 (chance 6.99)  850 items/s  1 min 37 s left
4000/4000  loss 5.467 (chance 6.99)  k-NN of 121 items 0.950  1,292 items/s  done
┏━━━━┓
┃ id ┃
┡━━━━┩
│ 17 │
…
│ 42 │
└────┘
similarity: cosine of the two, l2 0.001,
1e-06
report in runs/photos/report.html
"""


def test_figures_times_wraps_and_what_is_left_out_may_differ():
    assert masked("3×32×32, 1,089 of resnet18 at -0.5 and 1e-05: 1 h 5 min or 52 s") == (
        "N×N×N, N of resnet18 at N and N: N s or N s"
    )
    assert difference(SHOWN, PRINTED) == ""
    assert difference(PRINTED, PRINTED) == ""
    for lines in (["…"], [*LINES[:1], "…"], ["…", *LINES[-1:]], [*LINES[:2], "…", *LINES[-2:]]):
        assert difference("\n".join(lines), PRINTED) == ""
    assert difference("\n".join([LINES[0], "…", LINES[2], "…", LINES[-1]]), PRINTED) == ""


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ("the run has only 4,000 steps", "the run has 4,000 steps"),
        ("similarity: cosine of the two", "similarity: cosine of both"),
        ("k-NN of 121 items", "accuracy of 121 items"),
        ("850 items/s", "850 images/s"),
        ("report in runs/photos/report.html", "report in runs/photos/report.html, done"),
        ("chosen     keys.momentum", "chosen     key.momentum"),
        ("data       photos", "note  slow\ndata       photos"),
        ("report in runs/photos/report.html\n", ""),
        ("similarity", "evaluating (1/3) …\nsimilarity"),
    ],
)
def test_words_may_not_differ(now, before):
    assert now in SHOWN
    assert difference(SHOWN.replace(now, before), PRINTED)


def test_lines_have_to_be_whole_and_in_order():
    for lines in ([LINES[0]], [LINES[-1]], [LINES[2], "…"], ["…", LINES[2]], ["…", LINES[2], "…", LINES[1], "…"]):
        assert difference("\n".join(lines), PRINTED)
    assert difference("…\nonly 2 steps\n…", PRINTED)


def test_a_verdict_is_the_one_that_its_figures_give():
    narrow = "not collapsed, but narrow: all embeddings point in similar directions"
    figures = "two items have a mean cosine of 0.985, effective rank 34.2 of 128"
    good = f"unit rows of 105 items.\nlearned encoder: {narrow} ({figures}) (see docs/guide/reading-a-run.md#collapsed)"
    printed = f"unit rows of 9 items.\nlearned encoder: not collapsed: {figures}, uniformity -0.06"
    assert difference(good, printed) == ""
    assert difference(good.replace("in similar directions", "the same way"), printed)
    assert difference(good.replace("0.985", "0.885"), printed)


def test_a_sentence_about_results_is_one_that_can_be_printed():
    sentences = [
        "learned encoder: not better than raw pixels with five labels a class (0.848 against 0.846, inside the "
        "interval of ± 0.077): train longer, or use raw pixels",
        "learned encoder: better than channel statistics by 1 point with five labels a class (0.998 against 0.646), "
        "but not better by k-NN (0.998 against 0.990)",
        "learned encoder: better than chance by 65 points by recall@10 image → text (0.722 against 0.070), and than "
        "the untrained encoder by 60 points",
        "note: 38 test items say little: the k-NN accuracy of 0.500 could as well be anything from 0.349 to 0.651; 100 "
        "items would tell it to about ± 0.1, 400 to ± 0.05",
    ]
    for sentence in sentences:
        assert difference(f"{sentence}\n{PRINTED}", PRINTED) == "", sentence
        assert difference(sentence.replace(" the ", " its ").replace("against", "to") + f"\n{PRINTED}", PRINTED)


@pytest.mark.parametrize(
    "shown",
    [
        SHOWN.splitlines(),
        ["data       old", "…"],
        ["…", "report in old"],
        ["data       old", "…", "training   old", "…", "40/40  loss 1.000  done", "…", "old", "report in old"],
    ],
)
def test_a_page_that_is_recorded_again_shows_what_was_printed(shown):
    recorded = shortened(PRINTED, shown)
    assert recorded.count("…") <= shown.count("…")
    assert "old" not in " ".join(recorded)
    assert difference("\n".join(recorded), PRINTED) == ""


def test_recording_leaves_out_what_was_left_out():
    assert shortened(PRINTED, []) == []
    assert shortened(PRINTED, LINES[:1]) == LINES
    assert shortened(PRINTED, ["…", "training   old", "…"]) == ["…", LINES[1], "…"]
