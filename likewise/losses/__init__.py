"""How is the look-up scored? Each loss is a pure function, and an `nn.Module` with the same arguments.

losses.info_nce(query, positive, negatives)         one query among its candidates
losses.nt_xent(a, b)                                two views of each item, SimCLR's
losses.dcl(a, b)                                    the same without the positive in the denominator
losses.symmetric_info_nce(a, b)                     both directions, CLIP's
losses.sigmoid(a, b)                                every pair is classified separately, SigLIP's
losses.nce(query, positive, negatives, ...)         the positive against noise samples, InstDisc's
losses.sup_con(features, labels)                    all items of a label together
losses.pair_margin(a, b, same)                      distances of pairs
losses.triplet(anchor, positive, negative)          distances of triplets
"""

from likewise.losses.dcl import DCL, dcl
from likewise.losses.info_nce import InfoNCE, SymmetricInfoNCE, info_nce, symmetric_info_nce
from likewise.losses.margin import PairMargin, Triplet, pair_margin, semi_hard, triplet
from likewise.losses.nce import NCE, estimate_log_partition, nce
from likewise.losses.nt_xent import NTXent, nt_xent
from likewise.losses.policies import Debiased, Hardest, HardWeighted
from likewise.losses.sigmoid import Sigmoid, sigmoid
from likewise.losses.sup_con import SupCon, sup_con

__all__ = [
    "DCL",
    "NCE",
    "Debiased",
    "HardWeighted",
    "Hardest",
    "InfoNCE",
    "NTXent",
    "PairMargin",
    "Sigmoid",
    "SupCon",
    "SymmetricInfoNCE",
    "Triplet",
    "dcl",
    "estimate_log_partition",
    "info_nce",
    "nce",
    "nt_xent",
    "pair_margin",
    "semi_hard",
    "sigmoid",
    "sup_con",
    "symmetric_info_nce",
    "triplet",
]
