"""Search, groups, loners and suspects as loops over single numbers: the reference."""

import math

import numpy as np


def cosine(a, b):
    """In float64, rounded once to float32; 0 where a row is zeros."""
    dot, aa, bb = (
        math.fsum(float(x) * float(y) for x, y in zip(*pair, strict=True)) for pair in ((a, b), (a, a), (b, b))
    )
    return np.float32(dot / math.sqrt(aa * bb)) if aa and bb else np.float32(0)


def search(vectors, queries, k, exclude=None):
    """For each query its (cosine, place)s, most alike first, then by place."""
    found = []
    for number, query in enumerate(queries):
        own = None if exclude is None else exclude[number]
        scored = [(cosine(query, row), place) for place, row in enumerate(vectors) if place != own]
        found.append(sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:k])
    return found


def groups(vectors, threshold):
    """(places, smallest linking cosine) of each group, by union-find over the whole matrix."""
    parent = list(range(len(vectors)))

    def root(item):
        while parent[item] != item:
            item = parent[item]
        return item

    links = []
    for i in range(len(vectors)):
        for j in range(i):
            similarity = cosine(vectors[i], vectors[j])
            if similarity >= np.float32(threshold):
                links.append((i, similarity))
                parent[root(i)] = root(j)
    members, lowest = {}, {}
    for item in range(len(vectors)):
        members.setdefault(root(item), []).append(item)
    for item, similarity in links:
        lowest[root(item)] = min(similarity, lowest.get(root(item), 1))
    found = [(tuple(items), float(lowest[first])) for first, items in members.items() if len(items) > 1]
    return sorted(found, key=lambda group: (-len(group[0]), group[0][0]))


def outliers(vectors, n, k):
    """(mean cosine with the k nearest others, place), the smallest first."""
    neighbours = search(vectors, vectors, k, range(len(vectors)))
    means = [math.fsum(float(similarity) for similarity, _ in row) / len(row) for row in neighbours]
    return sorted((mean, place) for place, mean in enumerate(means))[:n]


def suspects(vectors, labels, n, k, temperature=0.07):
    """(how far ahead, place, suggested label, its share, own share), the furthest ahead first."""
    labelled = [place for place, label in enumerate(labels) if label >= 0]
    found = []
    for place in labelled:
        others = [other for other in labelled if other != place]
        near = sorted((-cosine(vectors[place], vectors[other]), other) for other in others)[:k]
        votes = {}
        for negative, other in near:
            votes.setdefault(labels[other], []).append(math.exp(-float(negative) / temperature))
        total = math.fsum(math.fsum(weights) for weights in votes.values())
        shares = {label: round(math.fsum(weights) / total, 9) for label, weights in votes.items()}
        own = shares.pop(labels[place], 0.0)
        if shares:
            share, suggested = max((share, -label) for label, share in shares.items())
            if share > own:
                found.append((share - own, place, -suggested, share, own))
    return sorted(found, key=lambda suspect: (-suspect[0], suspect[1]))[:n]
