"""Consistency: 1 while the encoder stands still, the mean cosine of the change once it moves."""

import math

import torch

from likewise import dictionaries


def keys(step, n=6, dim=3):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(step))


def test_unchanged_keys_are_consistent_and_turned_ones_by_their_cosine():
    queue = dictionaries.KeyQueue(32, 2).double()
    bank = dictionaries.MemoryBank(6, 2, 4, momentum=0.0).double()
    for step in range(9):
        for dictionary in (queue, bank):
            dictionary.update(keys(step, dim=2), torch.arange(6))
    turn = torch.tensor([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]], dtype=torch.float64)
    for dictionary in (queue, bank):
        assert math.isclose(dictionaries.consistency(dictionary, lambda step: keys(step, dim=2)), 1.0)
        turned = dictionaries.consistency(dictionary, lambda step: keys(step, dim=2) @ turn)
        assert math.isclose(turned, math.cos(0.3))


def test_few_batches_are_encoded_from_the_oldest_to_the_newest():
    queue = dictionaries.KeyQueue(60, 3).double()
    for step in range(20):
        queue.update(keys(step), torch.arange(6))
    asked = []
    dictionaries.consistency(queue, lambda step: asked.append(step) or keys(step), batches=3)
    assert asked == [10, 14, 19]


def test_an_empty_dictionary_has_no_consistency():
    assert math.isnan(dictionaries.consistency(dictionaries.KeyQueue(4, 3), keys))
