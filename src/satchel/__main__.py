"""``python -m satchel`` is the command ``satchel``."""

import sys

from satchel.cli import main

sys.exit(main())
