"""Every loss as a loop over single numbers, written from its formula and from nothing else.

Slow and plain on purpose: this is what the fast code is measured against. Scores are torch
scalars, so that autograd gives the gradients of the formula too. Each function returns the
losses of the single rows.
"""

import math

import torch
from torch import Tensor


def score(a: Tensor, b: Tensor, temperature, similarity: str) -> Tensor:
    if similarity == "cosine":
        a = a / a.norm() if a.norm() > 0 else a
        b = b / b.norm() if b.norm() > 0 else b
    if similarity == "euclidean":
        return -((a - b) ** 2).sum() / temperature
    return (a * b).sum() / temperature


def share_an_id(one, other) -> bool:
    """A negative id is nobody's: it matches nothing."""
    return any(x == y and x >= 0 for x, y in zip(as_tuple(one), as_tuple(other), strict=True))


def is_padding(ids) -> bool:
    return all(x < 0 for x in as_tuple(ids))


def as_tuple(ids):
    return tuple(ids) if isinstance(ids, list | tuple) else (ids,)


def negative_mass(positive: Tensor, scores: list[Tensor], temperature, policy) -> Tensor:
    """Σ_j e^{s_j}, or what the policy makes of it."""
    k = len(scores)
    if k == 0:
        return torch.zeros_like(positive)
    terms = torch.stack(scores).exp()
    name = type(policy).__name__
    if name == "Hardest":
        return terms.sort(descending=True).values[: policy.k].sum()
    if name == "Debiased":
        return k * debiased(terms.mean(), positive, temperature, policy.prior)
    if name == "HardWeighted":
        weights = terms**policy.beta
        mean = (weights * terms).sum() / weights.sum()
        return k * (debiased(mean, positive, temperature, policy.prior) if policy.prior else mean)
    return terms.sum()


def debiased(mean: Tensor, positive: Tensor, temperature, prior: float) -> Tensor:
    floor = torch.exp(-1 / torch.as_tensor(temperature, dtype=mean.dtype))
    return torch.maximum((mean - prior * positive.exp()) / (1 - prior), floor)


def info_nce(
    query, positive, negatives=None, *, temperature=0.07, similarity="cosine", query_ids=None, key_ids=None, policy=None
) -> Tensor:
    n = len(query)
    query_ids = None if query_ids is None else query_ids.tolist()
    key_ids = query_ids if key_ids is None else key_ids.tolist()
    losses = []
    for i in range(n):
        if query_ids is not None and is_padding(query_ids[i]):
            losses.append(query.new_zeros(()))
            continue
        if negatives is None:
            candidates = [(positive[j], j) for j in range(n) if j != i]
            ids = key_ids
        elif negatives.ndim == 2:
            candidates = [(negatives[j], j) for j in range(len(negatives))]
            ids = key_ids
        else:
            candidates = [(negatives[i, j], j) for j in range(negatives.shape[1])]
            ids = None if key_ids is None else key_ids[i]
        s_plus = score(query[i], positive[i], temperature, similarity)
        s_minus = [
            score(query[i], key, temperature, similarity)
            for key, j in candidates
            if ids is None or not (share_an_id(query_ids[i], ids[j]) or is_padding(ids[j]))
        ]
        mass = negative_mass(s_plus, s_minus, temperature, policy)
        losses.append(-torch.log(s_plus.exp() / (s_plus.exp() + mass)))
    return torch.stack(losses)


def nt_xent(a, b, *, temperature=0.1, ids=None, policy=None) -> Tensor:
    """Row i of the 2n has its partner n rows away; everything but those two is a negative."""
    n = len(a)
    rows = [*a, *b]
    ids = None if ids is None else ids.tolist() * 2
    losses = []
    for i in range(2 * n):
        partner = (i + n) % (2 * n)
        if ids is not None and is_padding(ids[i]):
            losses.append(a.new_zeros(()))
            continue
        s_plus = score(rows[i], rows[partner], temperature, "cosine")
        s_minus = [
            score(rows[i], rows[j], temperature, "cosine")
            for j in range(2 * n)
            if j not in (i, partner) and (ids is None or not (share_an_id(ids[i], ids[j]) or is_padding(ids[j])))
        ]
        mass = negative_mass(s_plus, s_minus, temperature, policy)
        losses.append(-torch.log(s_plus.exp() / (s_plus.exp() + mass)))
    return torch.stack(losses)


def symmetric_info_nce(a, b, *, temperature=0.07, ids=None) -> Tensor:
    forwards = info_nce(a, b, temperature=temperature, query_ids=ids)
    backwards = info_nce(b, a, temperature=temperature, query_ids=ids)
    return (forwards + backwards) / 2


def sigmoid(a, b, *, temperature=0.1, bias=-10.0, ids=None) -> Tensor:
    """Σ_j −log σ(±(s_ij + bias)) of each row i."""
    n = len(a)
    ids = None if ids is None else ids.tolist()
    losses = []
    for i in range(n):
        total = a.new_zeros(())
        for j in range(n):
            if ids is not None and is_padding(ids[i]):
                continue
            if i != j and ids is not None and (share_an_id(ids[i], ids[j]) or is_padding(ids[j])):
                continue
            sign = 1 if i == j else -1
            total = total - torch.log(1 / (1 + torch.exp(-sign * (score(a[i], b[j], temperature, "cosine") + bias))))
        losses.append(total)
    return torch.stack(losses)


def nce(
    query,
    positive,
    negatives,
    *,
    log_partition,
    items=None,
    noise_log_prob=None,
    temperature=0.07,
    query_ids=None,
    key_ids=None,
    previous=None,
    proximal=0.0,
) -> Tensor:
    """h = e^s/Z / (e^s/Z + m p): probability that a key is the query's own and not one of m noise samples."""
    losses = []
    for i in range(len(query)):
        kept = [
            j
            for j in range(len(negatives))
            if query_ids is None
            or not (share_an_id(query_ids[i].tolist(), key_ids[j].tolist()) or is_padding(key_ids[j].tolist()))
        ]
        m = len(kept)

        def h(key, noise, i=i, m=m):
            model = torch.exp(score(query[i], key, temperature, "cosine") - log_partition)
            return model / (model + m * noise)

        def noise(which, index):
            if items is not None:
                return 1 / items
            return math.exp(noise_log_prob) if isinstance(noise_log_prob, float) else noise_log_prob[which][index].exp()

        loss = query.new_zeros(())
        if m:
            loss = -torch.log(h(positive[i], noise(0, i)))
            for j in kept:
                loss = loss - torch.log(1 - h(negatives[j], noise(1, j)))
        if previous is not None:
            loss = loss + proximal * ((query[i] / query[i].norm() - previous[i]) ** 2).sum()
        losses.append(loss)
    return torch.stack(losses)


def sup_con(features, labels, *, temperature=0.1) -> Tensor:
    """L_out; NaN for an anchor without a positive, which the mean leaves out."""
    n = len(features)
    labels = labels.tolist()
    losses = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        positives = [j for j in others if labels[j] == labels[i] and labels[i] != -1]
        scores = {j: score(features[i], features[j], temperature, "cosine") for j in others}
        if not positives:
            losses.append(features.new_full((), math.nan))
            continue
        denominator = torch.stack([scores[j].exp() for j in others]).sum()
        losses.append(-torch.stack([torch.log(scores[p].exp() / denominator) for p in positives]).mean())
    return torch.stack(losses)


def pair_margin(a, b, same, *, margin=1.0) -> Tensor:
    losses = []
    for i in range(len(a)):
        distance = ((a[i] - b[i]) ** 2).sum().sqrt()
        losses.append(distance**2 / 2 if same[i] else torch.clamp(margin - distance, min=0) ** 2 / 2)
    return torch.stack(losses)


def triplet(anchor, positive, negative, *, margin=0.2) -> Tensor:
    losses = []
    for i in range(len(anchor)):
        a, p, n = (row / row.norm() for row in (anchor[i], positive[i], negative[i]))
        losses.append(torch.clamp(margin + ((a - p) ** 2).sum() - ((a - n) ** 2).sum(), min=0))
    return torch.stack(losses)


def dcl(a, b, *, temperature=0.1, sigma=0.0, ids=None) -> Tensor:
    """−w s+ + log Σ e^{s−}; 0 for padding and for a row without negatives."""
    rows, n = torch.cat([a, b]), len(a)
    ids = None if ids is None else ids.tolist() * 2
    cosines = [score(rows[i], rows[(i + n) % (2 * n)], 1.0, "cosine") for i in range(2 * n)]
    counted = [i for i in range(2 * n) if ids is None or not is_padding(ids[i])]
    mean = sum((cosines[i] / sigma).exp() for i in counted) / len(counted) if sigma else None
    losses = []
    for i in range(2 * n):
        others = [j for j in range(2 * n) if j not in (i, (i + n) % (2 * n))]
        if ids is not None:
            others = [j for j in others if not share_an_id(ids[i], ids[j]) and not is_padding(ids[j])]
        if not others or (ids is not None and is_padding(ids[i])):
            losses.append(rows.new_zeros(()))
            continue
        weight = 2 - (cosines[i] / sigma).exp() / mean if sigma else 1.0
        mass = sum(score(rows[i], rows[j], temperature, "cosine").exp() for j in others)
        losses.append(-weight * cosines[i] / temperature + mass.log())
    return torch.stack(losses)
