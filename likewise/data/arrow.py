"""The errors of Arrow, which reads CSV and Parquet files."""

from likewise.data.builtin import needed


def arrow_errors() -> tuple[type[Exception], ...]:
    """Return the types of error that pyarrow, which must be installed, raises for files that it cannot read.

    Most derive from OSError or ValueError; those about types that it does not support have only Arrow's own base.
    """
    return OSError, ValueError, needed("pyarrow", "Parquet", "parquet").ArrowException
