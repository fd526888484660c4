"""The modules of benchmarks/quality take those of benchmarks/figures by name, as the programs do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3] / "benchmarks" / "figures")]
