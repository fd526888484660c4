import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.soak
def test_the_documented_session_ends_as_it_says() -> None:
    """examples/walkthrough on this machine's real kernels: clean, slower, wrong three times, accepted by updating."""
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    flags = {"PYTHON": sys.executable, "SLOW": "1", "FLAGS": "--attnperf-threshold=50"}
    script = ROOT / "examples" / "walkthrough" / "session.sh"
    result = subprocess.run(
        ["bash", str(script)], cwd=ROOT, env={**environment, **flags}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert result.stdout.count("INCORRECT: walkthrough/native.sdpa_flash") == 3
    assert result.stdout.count("SLOWER: walkthrough/native.sdpa_flash") == 1
