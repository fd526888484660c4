"""Makes the files beside this one importable, in whichever tree they lie; the backends come from the root conftest."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
