"""What a study calls better is better by more than chance: its standard errors are those of the textbook."""

import statistics

import pytest

from studies.sweep import noise, rank


def runs(*values: float) -> list[dict[str, float]]:
    return [{"knn": value} for value in values]


def test_what_all_runs_of_a_seed_share_is_no_noise():
    assert noise([runs(0.5, 0.6), runs(0.7, 0.8), runs(0.1, 0.2)], "knn") == pytest.approx(0)


def test_the_standard_error_of_two_seeds_is_that_of_their_differences():
    first, second = (0.90, 0.85, 0.70), (0.92, 0.84, 0.74)
    differences = [b - a for a, b in zip(first, second, strict=True)]
    expected = statistics.stdev(differences) / 2  # the mean of two has half the deviation of their difference
    assert noise([runs(a, b) for a, b in zip(first, second, strict=True)], "knn") == pytest.approx(expected)


def test_values_are_ranked_and_those_near_the_best_cannot_be_told_from_it():
    line = {16: runs(0.90, 0.92), 64: runs(0.92, 0.91), 256: runs(0.50, 0.51)}
    ranking = rank(line, "knn")
    assert list(ranking.means) == [64, 16, 256]
    assert (ranking.best, ranking.worst, ranking.level) == (64, 256, [16, 64])
    assert ranking.margin == pytest.approx(2 * 2**0.5 * noise(list(line.values()), "knn"))
