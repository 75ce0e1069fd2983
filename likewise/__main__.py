"""`python -m likewise` is `likewise`."""

from likewise.cli import main

main()
