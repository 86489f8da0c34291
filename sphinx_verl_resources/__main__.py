"""``python -m sphinx_verl_resources`` is the ``verl-resources`` command."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
