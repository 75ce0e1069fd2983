"""Whether learning was worth it, in a sentence: a table of figures and what is said about them."""

import pytest

from likewise.evaluation.worth import too_few, worth

ITEMS = 500


def row(five=None, knn=None, linear=None, items=ITEMS):
    """Figures of an encoder; None leaves one out."""
    shares = {"knn": knn, "linear": linear}
    figures = {key: {"accuracy": share, "test": items} for key, share in shares.items() if share is not None}
    if five is not None:
        figures["few_labels"] = {5: {"accuracy": five, "spread": 0.02, "draws": 20, "test": items}}
    return figures


def said(learned, baseline, untrained=None, items=ITEMS):
    untrained = row(*untrained, items=items) if untrained else None
    return worth(row(*learned, items=items), row(*baseline, items=items), untrained, name="raw pixels", items=items)


LOW = (0.2, 0.2, 0.2)  # an untrained encoder that nobody wants
CASES = {
    "better by every figure": (
        ((0.746, 0.975, 0.99), (0.615, 0.900, 0.95), LOW),
        "better than raw pixels by 13 points with five labels a class (0.746 against 0.615)",
    ),
    "better with few labels only": (
        ((0.75, 0.90, 0.95), (0.60, 0.96, 0.95), LOW),
        "better than raw pixels by 15 points with five labels a class (0.750 against 0.600), but worse by k-NN (0.900 "
        "against 0.960) and not better by a linear probe (0.950 against 0.950)",
    ),
    "worse": (
        ((0.503, 0.846, 0.946), (0.615, 0.958, 0.983), LOW),
        "not better than raw pixels with five labels a class (0.503 against 0.615): train longer, or use raw pixels",
    ),
    "inside the interval": (
        ((0.65, 0.9, 0.9), (0.62, 0.9, 0.9), LOW),
        "not better than raw pixels with five labels a class (0.650 against 0.620, inside the interval of ± 0.061): "
        "train longer, or use raw pixels",
    ),
    "better by another figure only": (
        ((0.503, 0.95, 0.9), (0.615, 0.85, 0.9), LOW),
        "not better than raw pixels with five labels a class (0.503 against 0.615), though better by k-NN (0.950 "
        "against 0.850): train longer, or use raw pixels",
    ),
    "no few labels: k-NN decides": (
        ((None, 0.95, 0.9), (None, 0.80, 0.7), LOW),
        "better than raw pixels by 15 points by k-NN (0.950 against 0.800)",
    ),
    "better than pixels, as it was before training": (
        ((0.70, 0.9, 0.9), (0.50, 0.8, 0.8), (0.71, 0.9, 0.9)),
        "better than raw pixels by 20 points with five labels a class (0.700 against 0.500); not better than the "
        "untrained encoder (0.700 against 0.710): train longer",
    ),
    "anyone's encoder is not told to train": (
        ((0.5, 0.8, 0.8), (0.6, 0.9, 0.9), None),
        "not better than raw pixels with five labels a class (0.500 against 0.600)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_about_accuracies(case):
    rows, sentence = CASES[case]
    assert said(*rows) == sentence


def test_the_same_difference_counts_with_more_items():
    rows = (0.65, 0.9, 0.9), (0.62, 0.9, 0.9), LOW
    assert said(*rows, items=500).startswith("not better")
    assert said(*rows, items=10_000).startswith("better than raw pixels by 3 points")


def test_a_point_is_one_and_less_than_one_has_a_digit():
    assert " by 1 point by k-NN " in said((None, 0.61), (None, 0.60), items=10**6)
    assert " by 0.5 points by k-NN " in said((None, 0.605), (None, 0.60), items=10**7)


def test_without_labels_or_rivals_nothing_is_claimed():
    assert worth(row(), row(), row(), name="raw pixels", items=9) == (
        "without labels of held-out items it cannot be said whether this is better than raw pixels"
    )
    assert worth(row(0.9, 0.9, 0.9), None, None, name="raw pixels", items=9) is None


def two_sides(there, back, guessed, queries=500):
    def direction(recall):
        return {"recall": {1: 0.0, 10: recall}, "chance": {1: 0.01, 10: guessed}, "queries": queries}

    return {"cross_modal": {"image_to_text": direction(there), "text_to_image": direction(back)}}


@pytest.mark.parametrize(
    ("learned", "untrained", "sentence"),
    [
        (
            (0.334, 0.350),
            (0.019, 0.02),
            "better than chance by 31 points by recall@10 image → text (0.334 against 0.020), and than the untrained "
            "encoder by 32 points",
        ),
        ((0.021, 0.02), (0.019, 0.02), "not better than chance by recall@10 image → text (0.021 against 0.020): train"),
        (
            (0.30, 0.02),
            (0.02, 0.02),
            "better than chance by 28 points by recall@10 image → text (0.300 against 0.020), but not better by "
            "recall@10 text → image (0.020 against 0.020), and than",
        ),
        (
            (0.30, 0.30),
            (0.29, 0.3),
            "better than chance by 28 points by recall@10 image → text (0.300 against 0.020); not better than the "
            "untrained encoder (0.300 against 0.290): train longer",
        ),
    ],
)
def test_one_sentence_about_two_sides(learned, untrained, sentence):
    rows = two_sides(*learned, 0.02), row(), two_sides(*untrained, 0.02)
    assert worth(*rows, name="raw pixels", items=500).startswith(sentence)


def test_among_few_captions_the_first_place_counts():
    found = worth(two_sides(1.0, 1.0, 1.0), row(), two_sides(1.0, 1.0, 1.0), name="raw pixels", items=500)
    assert found == "not better than chance by recall@1 image → text (0.000 against 0.010): train longer"


@pytest.mark.parametrize(
    ("accuracy", "items", "begin"),
    [
        (0.75, 1, "one test item says nothing: the k-NN accuracy of 0.750 could as well be anything from "),
        (
            0.75,
            8,
            "8 test items say nothing: the k-NN accuracy of 0.750 could as well be anything from 0.409 to 0.929;",
        ),
        (
            0.5,
            60,
            "60 test items say little: the k-NN accuracy of 0.500 could as well be anything from 0.377 to 0.623;",
        ),
        (0.98, 60, None),
        (0.5, 100, None),
    ],
)
def test_few_items_are_said_to_say_nothing(accuracy, items, begin):
    found = too_few(row(0.5, accuracy, 0.5, items=items), items)
    assert (found is None) == (begin is None)
    assert begin is None or found.startswith(begin)


def test_few_items_say_nothing_also_without_labels_and_of_captions():
    assert too_few(row(), 8).startswith("8 test items say nothing: an accuracy of 0.500 could")
    assert too_few(row(), 500) is None
    assert too_few(two_sides(0.3, 0.3, 0.02, queries=9), 9).startswith(
        "9 test items say nothing: the recall@10 of 0.300"
    )


def test_frames_of_few_sequences_are_few():
    assert too_few(row(0.5, 0.5, 0.5, items=5000), 8).startswith("8 test items say nothing")
