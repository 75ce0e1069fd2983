"""Run the command line as `python -m likewise`."""

from likewise.cli import main

main()
