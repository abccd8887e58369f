"""`python -m slinky` is `slinky`."""

from slinky.cli import main

main()
