"""Links from printed notes to the troubleshooting sections of the documentation.

Each value of SECTIONS is the anchor of a heading below "Troubleshooting by symptom" of the page.
"""

PAGE = "docs/guide/reading-a-run.md"
SECTIONS = {
    "filling": "queue-filling",
    "chance": "loss-at-chance",
    "collapse": "collapsed",
    "length": "embeddings-not-of-unit-length",
    "range": "similarities-out-of-range",
    "temperature": "temperature-at-its-limit",
    "not finite": "not-finite",
    "memory": "out-of-memory",
    "rank": "a-rank-died",
    "threshold": "one-large-group-of-near-duplicates",
}


def see(symptom: str) -> str:
    """Return the section to read about a symptom, in brackets, to end a sentence with."""
    return f"(see {PAGE}#{SECTIONS[symptom]})"
