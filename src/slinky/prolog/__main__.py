"""`python3 -m slinky.prolog`, and what the one file begins with."""

import sys

from slinky.prolog.waiting import main

sys.exit(main())
