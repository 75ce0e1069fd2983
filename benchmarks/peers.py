"""Import the libraries that likewise is compared with, also if torch is a CPU-only build."""

import warnings

import torch

# torchvision's compiled operators do not load beside every torch, and nothing measured here uses
# them. Declared without an implementation, they let its Python parts import.
_OPERATORS = ["nms", "qnms", "roi_align", "qroi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"]
_BACKWARD = ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"]


def prepare_torchvision() -> None:
    """Declare the operators of torchvision that its own library failed to bring."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in [*_OPERATORS, *(f"_{name}_backward" for name in _BACKWARD)]:
        library.define(f"{name}(Tensor input) -> Tensor")
    _kept.append(library)


_kept: list[torch.library.Library] = []  # a library lives as long as its object
warnings.filterwarnings("ignore")
try:
    import torchvision  # noqa: F401
except RuntimeError:
    prepare_torchvision()

from info_nce import InfoNCE as InfoNCEPyTorch  # noqa: E402
from lightly.loss import NTXentLoss as LightlyNTXent  # noqa: E402
from lightly.utils.benchmarking import knn_predict as lightly_knn  # noqa: E402
from open_clip.loss import ClipLoss as OpenClipLoss  # noqa: E402
from pytorch_metric_learning.losses import NTXentLoss as MetricLearningNTXent  # noqa: E402

__all__ = ["InfoNCEPyTorch", "LightlyNTXent", "MetricLearningNTXent", "OpenClipLoss", "lightly_knn"]
