"""`python -m dray` is `dray`."""

from dray.cli import main

main()
