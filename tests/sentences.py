"""Sentences of three topics, for tests: the topic is the label."""

import numpy as np

TOPICS = {
    "music": ("a band", "a song", "the piano", "a drum", "their concert", "an old melody", "the choir", "a guitar"),
    "food": ("a soup", "the bread", "some cheese", "an apple", "their dinner", "a spicy curry", "the baker", "a cake"),
    "travel": ("a train", "the harbour", "a map", "their journey", "a hotel", "the border", "a bus", "an airport"),
}
VERBS = ("is near", "goes well with", "follows", "reminds us of", "was better than", "comes before")


def sentences(count, seed=0):
    """Return texts and labels in the form that `likewise.data.open` takes."""
    rng = np.random.default_rng(seed)
    topics = list(TOPICS)
    labels = rng.integers(0, len(topics), count)
    texts = []
    for label in labels:
        first, second, third = rng.choice(TOPICS[topics[label]], 3, replace=False)
        texts.append(f"{first} {rng.choice(VERBS)} {second} and {third}, number {len(texts)}")
    return {"text": texts, "y": [topics[label] for label in labels]}
