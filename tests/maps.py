"""Maps of embeddings by PCA or by t-SNE, which is most of what a short run costs."""

import contextlib
import sys

import pytest


@contextlib.contextmanager
def maps_by(fewest_for_tsne):
    from likewise.report import plane  # not at the top: it imports scikit-learn, which most tests do not need

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plane, "FEWEST_FOR_TSNE", fewest_for_tsne)
        yield


def plain_maps():
    """Place items by PCA, however many there are."""
    return maps_by(sys.maxsize)


def real_maps():
    """Place items as users get them: by t-SNE, unless they are few."""
    return maps_by(50)
