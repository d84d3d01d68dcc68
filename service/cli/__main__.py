"""`python -m service.cli`: the `advisor` command."""

from __future__ import annotations

import sys

from service.cli import main

sys.exit(main())
