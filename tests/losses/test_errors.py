"""Bad input is one ValueError sentence that says what was expected and what came."""

import math

import pytest
import torch

from likewise import losses

A, B = torch.randn(4, 3), torch.randn(4, 3)
WIDE, LONG, FLAT = torch.randn(4, 5), torch.randn(6, 3), torch.randn(4)
WHOLE = torch.ones(4, 3, dtype=torch.int64)
IDS = torch.arange(4)

CASES = {
    # mismatched shapes
    "positive must be of shape (4, 3) like query, got (4, 5)": lambda: losses.info_nce(A, WIDE),
    "b must be of shape (4, 3) like a, got (6, 3)": lambda: losses.nt_xent(A, LONG),
    "query must be of shape (n, d) with n, d >= 1, got (4,)": lambda: losses.info_nce(FLAT, FLAT),
    "a must be of shape (n, d) with n, d >= 1, got (0, 3)": lambda: losses.nt_xent(A[:0], B[:0]),
    "negatives must be of shape (k, 3) or (m, k, 3) with m a divisor of 4, got (4, 5)": lambda: losses.info_nce(
        A, B, WIDE
    ),
    "negatives must be of shape (k, 3) or (m, k, 3) with m a divisor of 4, got (6, 2, 3)": lambda: losses.info_nce(
        A, B, LONG[:, None].expand(6, 2, 3)
    ),
    "negatives must be of shape (k, 3), got (4, 2, 3)": lambda: losses.nce(
        A, B, A[:, None].expand(4, 2, 3), log_partition=0.0, items=9
    ),
    "labels must be an integer tensor of shape (4,), got (6,) of torch.int64": lambda: losses.sup_con(
        A, torch.arange(6)
    ),
    "same must be a bool tensor of shape (4,), got (4,) of torch.int64": lambda: losses.pair_margin(A, B, IDS),
    "negative must be of shape (4, 3) like anchor, got (6, 3)": lambda: losses.triplet(A, B, LONG),
    # temperatures and other numbers
    "temperature must be positive and finite, got 0": lambda: losses.info_nce(A, B, temperature=0),
    "temperature must be positive and finite, got -0.1": lambda: losses.nt_xent(A, B, temperature=-0.1),
    "temperature must be positive and finite, got nan": lambda: losses.symmetric_info_nce(A, B, temperature=math.nan),
    "temperature must be positive and finite, got -1": lambda: losses.sigmoid(A, B, temperature=torch.tensor(-1.0)),
    "temperature must be positive and finite, got inf": lambda: losses.InfoNCE(temperature=math.inf),
    "temperature must be a number that fits a float, got a larger one": lambda: losses.nt_xent(
        A, B, temperature=10**400
    ),
    "temperature must be a number, got 'warm'": lambda: losses.NTXent(temperature="warm"),
    "temperature must be one floating-point number, got shape (2,) of torch.float32": lambda: losses.nt_xent(
        A, B, temperature=torch.ones(2)
    ),
    "a learnable temperature must start at 0.01 or above, got 0.005": lambda: losses.InfoNCE(
        temperature=0.005, learnable=True
    ),
    "bias must be finite, got nan": lambda: losses.sigmoid(A, B, bias=math.nan),
    "margin must be finite and not negative, got -1": lambda: losses.triplet(A, B, A, margin=-1),
    "margin must be finite and not negative, got nan": lambda: losses.PairMargin(margin=math.nan),
    # dtypes
    "query must be a floating-point tensor, got torch.int64": lambda: losses.info_nce(WHOLE, WHOLE),
    "b must be a floating-point tensor, got torch.int64": lambda: losses.nt_xent(A, WHOLE),
    "a must be a floating-point tensor, got list": lambda: losses.nt_xent([[1.0]], B),
    "negatives must be a floating-point tensor, got torch.int64": lambda: losses.info_nce(A, B, WHOLE),
    "negatives must be a floating-point tensor, got list": lambda: losses.info_nce(A, B, [[1.0, 2.0, 3.0]]),
    "ids must be an integer tensor, got list": lambda: losses.nt_xent(A, B, ids=[0, 1, 2, 3]),
    "labels must be an integer tensor of shape (4,), got list": lambda: losses.sup_con(A, [0, 1, 2, 3]),
    "query must be a floating-point tensor, got ndarray": lambda: losses.info_nce(A.numpy(), B.numpy()),
    # names
    "reduction must be one of mean, sum, none; got 'avg'": lambda: losses.info_nce(A, B, reduction="avg"),
    "reduction must be one of mean, sum, none; got None": lambda: losses.Triplet(reduction=None),
    "similarity must be one of cosine, dot, euclidean; got 'l2'": lambda: losses.info_nce(A, B, similarity="l2"),
    "similarity must be one of cosine, dot, euclidean; got 'cos'": lambda: losses.InfoNCE(similarity="cos"),
    # ids
    "query_ids must be of shape (4,) or (4, g), got (3,)": lambda: losses.info_nce(A, B, query_ids=IDS[:3]),
    "key_ids must be of shape (6,) or (6, g), got (4,)": lambda: losses.info_nce(
        A, B, LONG, query_ids=IDS, key_ids=IDS
    ),
    "ids must be of shape (4,) or (4, g), got (5,)": lambda: losses.nt_xent(A, B, ids=torch.arange(5)),
    "ids must be an integer tensor, got torch.float32": lambda: losses.symmetric_info_nce(A, B, ids=torch.rand(4)),
    "query_ids and key_ids must be given together, got no key_ids": lambda: losses.info_nce(A, B, LONG, query_ids=IDS),
    "query_ids and key_ids must be given together, got no query_ids": lambda: losses.info_nce(A, B, key_ids=IDS),
    "query_ids and key_ids must have the same columns, got (4,) and (4, 1)": lambda: losses.info_nce(
        A, B, query_ids=IDS, key_ids=IDS[:, None]
    ),
    "ids must be of shape (4,) or (4, g), got (4, 0)": lambda: losses.nt_xent(A, B, ids=IDS[:, None][:, :0]),
    "ids must be an integer tensor, got torch.bool": lambda: losses.nt_xent(A, B, ids=IDS > 1),
    "labels must be an integer tensor of shape (4,), got (4,) of torch.bool": lambda: losses.sup_con(A, IDS > 1),
    # policies
    "Hardest needs a whole number k >= 1, got 0": lambda: losses.Hardest(0),
    "Hardest needs a whole number k >= 1, got 2.5": lambda: losses.Hardest(2.5),
    "Debiased needs a prior in [0, 1), got 1": lambda: losses.Debiased(1.0),
    "HardWeighted needs beta >= 0, got -1": lambda: losses.HardWeighted(-1.0),
    "Debiased(prior=0.1) needs similarity 'cosine', the only one with a lowest score; got 'dot'": lambda: (
        losses.info_nce(A, B, similarity="dot", policy=losses.Debiased(0.1))
    ),
    "HardWeighted(beta=1, prior=0.1) needs similarity 'cosine', the only one with a lowest score; got 'dot'": lambda: (
        losses.InfoNCE(similarity="dot", policy=losses.HardWeighted(1, prior=0.1))
    ),
    "policy must be Hardest(k), Debiased(prior), HardWeighted(beta) or None, got 'hard'": lambda: losses.nt_xent(
        A, B, policy="hard"
    ),
    # noise
    "one of items and noise_log_prob must be given, got neither": lambda: losses.nce(A, B, LONG, log_partition=0.0),
    "one of items and noise_log_prob must be given, got both": lambda: losses.nce(
        A, B, LONG, log_partition=0.0, items=9, noise_log_prob=-1.0
    ),
    "items must be a whole number >= 1, got 0": lambda: losses.NCE(items=0),
    "noise_log_prob must be a pair of shapes (4,) and (6,), got ((4,), (4,))": lambda: losses.nce(
        A, B, LONG, log_partition=0.0, noise_log_prob=(torch.zeros(4), torch.zeros(4))
    ),
    "noise_log_prob must be a floating-point tensor, got float": lambda: losses.nce(
        A, B, LONG, log_partition=0.0, noise_log_prob=(-1.0, -1.0)
    ),
    "partition_momentum must be a number, got 'high'": lambda: losses.NCE(items=9, partition_momentum="high"),
    "log_partition must be finite, got inf": lambda: losses.nce(A, B, LONG, log_partition=math.inf, items=9),
    "proximal must be finite and not negative, got -1": lambda: losses.nce(
        A, B, LONG, log_partition=0.0, items=9, proximal=-1.0
    ),
    "proximal needs previous, the queries' slots before this step, got None": lambda: losses.nce(
        A, B, LONG, log_partition=0.0, items=9, proximal=1.0
    ),
    "previous must be of shape (4, 3) like query, got (6, 3)": lambda: losses.nce(
        A, B, LONG, log_partition=0.0, items=9, previous=LONG, proximal=1.0
    ),
    # devices
    "b must be on cpu like a, got meta": lambda: losses.nt_xent(A, B.to("meta")),
}


@pytest.mark.parametrize("sentence", CASES)
def test_bad_input_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole sentence is compared
        CASES[sentence]()
    assert str(error.value) == sentence
