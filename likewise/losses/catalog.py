"""The table of losses by name: one row for each."""

from torch import nn

from likewise.losses.dcl import KIND as DCL
from likewise.losses.info_nce import KIND as INFO_NCE
from likewise.losses.info_nce import SYMMETRIC
from likewise.losses.kind import LossKind
from likewise.losses.margin import PAIRS, TRIPLETS
from likewise.losses.nce import KIND as NCE
from likewise.losses.nt_xent import KIND as NT_XENT
from likewise.losses.sigmoid import KIND as SIGMOID
from likewise.losses.sup_con import KIND as SUP_CON
from likewise.recipe import Loss, RecipeError

LOSSES: dict[str, LossKind] = {
    kind.name: kind for kind in (INFO_NCE, NT_XENT, SYMMETRIC, SIGMOID, NCE, PAIRS, TRIPLETS, SUP_CON, DCL)
}


def build_loss(options: Loss, items: int) -> nn.Module:
    """Build the loss module of a recipe; a learned temperature is one of its parameters."""
    try:
        return LOSSES[options.kind].build(options, items)
    except ValueError as error:
        raise RecipeError(str(error)) from None
