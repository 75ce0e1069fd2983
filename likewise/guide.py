"""Where the documentation explains a symptom: a sentence about it ends with the name of that section.

Each value is the anchor of a heading below "Troubleshooting by symptom" in docs/guide/reading-a-run.md.
"""

PAGE = "reading-a-run.md"
SECTIONS = {
    "filling": "queue-filling",
    "chance": "loss-at-chance",
    "collapse": "collapsed",
    "length": "rows-not-of-unit-length",
    "range": "similarities-out-of-range",
    "temperature": "temperature-at-its-limit",
    "not finite": "not-finite",
}


def see(symptom: str) -> str:
    """Return the section to read about a symptom, in brackets, to end a sentence with."""
    return f"(see {PAGE}#{SECTIONS[symptom]})"
