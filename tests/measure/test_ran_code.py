"""Which compiled kernels a case launches: Triton's, Inductor's and others', and which launch is whose."""

from __future__ import annotations

import base64
import gc
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import weakref
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.measure import ran_code
from pytest_attnperf.measure.autotuners import INDUCTOR
from pytest_attnperf.measure.ran_code import LOADED_MOST, RanCode, WatchedKernel, record_code, record_kernel
from pytest_attnperf.records import Launch

ROOT = Path(__file__).parents[2]
FORWARD = Launch("forward", grid=(8, 1, 1), block=(128, 1, 1), shared_bytes=4096)
ONE, OTHER = b"\x7fELF one", b"\x7fELF other"


def identity(data: bytes) -> str:
    """The id of an object."""
    return hashlib.sha256(data).hexdigest()[:32]


def kernel(data: bytes = ONE, **changed: Any) -> WatchedKernel:
    """One that fits FORWARD."""
    return replace(WatchedKernel("forward", data, 128, 4096), **changed)


def ran_of(*kernels: WatchedKernel) -> RanCode:
    """A case that launched these."""
    ran = RanCode()
    for loaded in kernels:
        ran.add(loaded)
    return ran


def object_of(ran: RanCode, launch: Launch = FORWARD, function: int = 0) -> str:
    """The object of one launch."""
    (found,) = ran.identify_launches([launch], [function])
    assert replace(found, object_id="") == launch
    return found.object_id


class FakeCompiled:
    """Shaped like Triton's CompiledKernel; `binaries` by kind."""

    def __init__(self, binaries: dict[str, bytes], function: Any = None, **metadata: Any) -> None:
        given = {"name": "forward", "num_warps": 4, "warp_size": 32, "shared": 4096, **metadata}
        self.metadata = SimpleNamespace(**{key: value for key, value in given.items() if value is not None})
        self.asm: dict[str, Any] = {"ttir": "module {}", **binaries}
        self.kernel, self.function = b"by its own name", function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments: None


class FakeJit:
    """Shaped like Triton's JITFunction; launches what it was made with."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch."""
        return self.compiled


class FakeAutotuner:
    """Shaped like Inductor's CachingAutotuner, of which `run` and what a launcher has are read."""

    def __init__(self, **scope: Any) -> None:
        code = (lambda *arguments, stream: None).__code__
        launcher = FunctionType(code, {"__builtins__": {}, **scope})
        launcher.cache_hash = "HASH"  # type: ignore[attr-defined]
        self.launchers, self.triton_meta = [launcher], {"device": 0}
        self.device_props = SimpleNamespace(type="cuda", warp_size=32)

    def run(self, *args: Any, stream: int = 0) -> None:
        """Launch."""
        self.launchers[0](*args, stream=stream)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of the tests where the real ones stand."""
    for (name, owner), own in (
        (ran_code.TRITON, FakeJit),
        (ran_code.COMPILED, FakeCompiled),
        (INDUCTOR, FakeAutotuner),
    ):
        module = ModuleType(name)
        setattr(module, owner, own)
        monkeypatch.setitem(sys.modules, name, module)


def launched(compiled: Any, **options: Any) -> RanCode:
    """A case in which Triton launched this."""
    ran = RanCode()
    with record_code(ran):
        assert FakeJit(compiled).run(1, grid=(8,), warmup=False, **options) is compiled
    return ran


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(("kind", "warps", "width"), [("cubin", 4, 32), ("hsaco", 2, 64)])
def test_what_triton_launches(kind: str, warps: int, width: int) -> None:
    """The object of either vendor is kept, and a block has as many threads as its warps."""
    ran = launched(FakeCompiled({kind: ONE}, num_warps=warps, warp_size=width))
    assert object_of(ran) == identity(ONE)
    assert object_of(ran, replace(FORWARD, block=(256, 1, 1))) == ""


@pytest.mark.usefixtures("fakes")
def test_older_metadata() -> None:
    """Where the warp size stands with the target only, and the binary is known by no kind, both are found."""
    target = SimpleNamespace(warp_size=32)
    assert object_of(launched(FakeCompiled({}, warp_size=None, target=target))) == identity(b"by its own name")


@pytest.mark.usefixtures("fakes")
def test_what_was_only_compiled_was_not_launched() -> None:
    """A warm-up compiles; launching its result by itself is seen."""
    ran, compiled = RanCode(), FakeCompiled({"cubin": ONE})
    with record_code(ran):
        FakeJit(compiled).run(1, grid=(8,), warmup=True)
        FakeJit(None).run(1, grid=(8,), warmup=False)
        assert object_of(ran) == ""
        compiled[(8, 1, 1)](1)
    assert object_of(ran) == identity(ONE)
    assert ran.build_unknown_entry([FORWARD]) == {}


@pytest.mark.usefixtures("fakes")
def test_a_kernel_is_read_once_and_let_go() -> None:
    """A thousand launches read a kernel once, and nobody holds it when the case goes on to be timed."""
    ran, compiled, asked = RanCode(), FakeCompiled({"cubin": ONE}), []

    def read() -> WatchedKernel:
        asked.append(1)
        return kernel()

    with record_code(ran):
        for _ in range(3):
            ran.record_launched(compiled, read)
        FakeJit(compiled).run(grid=(8,), warmup=False)
    assert asked == [1]
    alive = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert alive() is None
    assert object_of(ran) == identity(ONE)


@pytest.mark.usefixtures("fakes")
def test_nothing_is_seen_outside() -> None:
    """The wrappers are gone after the context, also where the case raised, and a notice goes nowhere."""
    before = (FakeJit.run, FakeCompiled.__getitem__, FakeAutotuner.run)
    ran = RanCode()
    with pytest.raises(RuntimeError, match="the case"), record_code(ran):
        assert FakeJit.run is not before[0]
        raise RuntimeError("the case")
    assert (FakeJit.run, FakeCompiled.__getitem__, FakeAutotuner.run) == before
    FakeJit(FakeCompiled({"cubin": ONE})).run(grid=(8,), warmup=False)
    record_kernel("forward", ONE, 128, 4096)
    assert object_of(ran) == ""


@pytest.mark.usefixtures("fakes")
def test_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watching loads neither Triton nor Inductor."""
    names = (ran_code.TRITON[0], ran_code.COMPILED[0], INDUCTOR[0])
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    with record_code(RanCode()):
        pass
    assert not [name for name in names if name in sys.modules]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("missing", ["metadata", "asm"])
def test_internals_of_another_version(missing: str) -> None:
    """What cannot be read is unknown with its reason; the kernel was launched all the same."""
    compiled = FakeCompiled({"cubin": ONE})
    delattr(compiled, missing)
    ran = launched(compiled)
    (reason,) = ran.build_unknown_entry([FORWARD]).values()
    assert reason.startswith("unknown: AttributeError: ")
    assert missing in reason
    assert object_of(ran) == ""


@pytest.mark.usefixtures("fakes")
def test_inductor_with_tritons_object() -> None:
    """Where Inductor launches through Triton, the object is Triton's."""
    ran = RanCode()
    with record_code(ran):
        FakeAutotuner(bin=FakeCompiled({"cubin": ONE}), runner=None).run(1)
    assert object_of(ran) == identity(ONE)


class FakeStatic:
    """Shaped like torch's StaticallyLaunchedCudaKernel, which forgets its file once it has loaded it."""

    name, num_warps, shared, function, cubin_path, cubin_raw = "forward", 4, 4096, 77, None, None

    def run(self, *arguments: Any) -> None:
        """Launch."""


@pytest.mark.usefixtures("fakes")
def test_inductor_with_an_object_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own launcher loads a file of Triton's cache, which is read; one that is gone is a reason."""
    folders: Any = ModuleType("torch._inductor.runtime.cache_dir_utils")
    folders.triton_cache_dir = lambda device: str(tmp_path)
    monkeypatch.setitem(sys.modules, folders.__name__, folders)
    gone, ran = RanCode(), RanCode()
    with record_code(gone):
        FakeAutotuner(runner=FakeStatic().run).run(1)
    assert gone.build_unknown_entry([FORWARD]) == {
        "machine_code": "unknown: FileNotFoundError: forward is not in Triton's cache any more"
    }
    (tmp_path / "HASH").mkdir()
    (tmp_path / "HASH/forward.cubin").write_bytes(ONE)
    with record_code(ran):
        FakeAutotuner(runner=FakeStatic().run).run(1)
    assert (object_of(ran, function=77), object_of(ran, function=78)) == (identity(ONE), "")


def test_what_other_launchers_tell() -> None:
    """A launcher that is not Triton's says what it launches; static shared memory counts where a graph counts it."""
    ran = RanCode()
    with record_code(ran):
        record_kernel("forward", ONE, 128, 1024, static_lds_bytes=3072, function=5)
    assert [object_of(ran), object_of(ran, replace(FORWARD, shared_bytes=1024))] == [identity(ONE)] * 2
    assert object_of(ran, replace(FORWARD, shared_bytes=3072)) == ""
    assert object_of(ran, function=5) == identity(ONE)


@pytest.mark.parametrize(
    "launch",
    [
        replace(FORWARD, name="backward"),
        replace(FORWARD, block=(64, 2, 2)),
        replace(FORWARD, block=()),
        replace(FORWARD, shared_bytes=8192),
        replace(FORWARD, kind="copy"),
    ],
)
def test_what_does_not_fit_is_not_known(launch: Launch) -> None:
    """Another name, block or size of shared memory, and what is no kernel, is not the kernel that was seen."""
    assert object_of(ran_of(kernel()), launch) == ""


@pytest.mark.parametrize("name", ["forward.kd", "forward [clone .kd]"])
def test_names_of_descriptors(name: str) -> None:
    """ROCm's tools may name a kernel by its descriptor."""
    assert object_of(ran_of(kernel()), replace(FORWARD, name=name)) == identity(ONE)


def test_a_handle_tells_versions_of_one_name_apart() -> None:
    """Two versions of equal shape are told apart by the driver's handle only; without it neither is named."""
    ran = ran_of(kernel(function=1), kernel(OTHER, function=2))
    assert [object_of(ran, function=handle) for handle in (1, 2, 3, 0)] == [identity(ONE), identity(OTHER), "", ""]
    assert object_of(ran, replace(FORWARD, shared_bytes=5120), function=1) == identity(ONE)


def test_a_handle_that_was_used_again_proves_nothing() -> None:
    """A driver gives the handle of an unloaded kernel to another one: name and block must fit, and only one object."""
    ran = ran_of(kernel(function=1), kernel(OTHER, function=1))
    assert object_of(ran, function=1) == ""
    assert object_of(ran_of(kernel(function=1)), replace(FORWARD, name="other"), function=1) == ""


def test_a_kernel_without_a_handle_is_told_by_its_shape() -> None:
    """Where the launcher had no handle to give, name, block and shared memory decide, if one object fits."""
    assert object_of(ran_of(kernel(), kernel()), function=9) == identity(ONE)
    assert object_of(ran_of(kernel(), kernel(OTHER)), function=9) == ""
    assert object_of(ran_of(kernel(), kernel(OTHER, function=4)), function=9) == identity(ONE)


def test_large_objects_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object beyond the limit is unknown with its size as the reason, and does not make another one fit."""
    monkeypatch.setattr(ran_code, "OBJECT_BYTES_MOST", len(ONE))
    ran = ran_of(kernel(), kernel(OTHER))
    assert object_of(ran) == ""
    assert ran.build_unknown_entry([FORWARD]) == {
        "machine_code": f"unknown: the object of forward has {len(OTHER)} bytes and was left out, being larger than "
        f"{len(ONE)}"
    }
    assert ran.build_unknown_entry([replace(FORWARD, object_id=identity(ONE))]) == {}


def test_what_was_loaded_last_is_sent_ahead() -> None:
    """Each kernel once with its object, whatever its launches looked like; of an autotuner's many the last ones, and of
    one whose object is not known nothing."""
    ran = RanCode()
    for shared in (1024, 2048):
        ran.add(WatchedKernel("forward", ONE, 128, shared))
    ran.add(WatchedKernel("unknown", b"", 128, 0))
    (sent,) = ran.list_kernel_objects()
    assert (sent.name, sent.threads, zlib.decompress(base64.b64decode(sent.data))) == ("forward", 128, ONE)
    for number in range(LOADED_MOST + 2):
        ran.add(WatchedKernel(f"tried_{number}", ONE, 128, 0))
    assert [kernel.name for kernel in ran.list_kernel_objects()] == [
        f"tried_{number}" for number in range(2, LOADED_MOST + 2)
    ]


def test_only_what_ran_is_sent() -> None:
    """Of an autotuner's candidates the one that the launches name is sent, compressed."""
    ran = ran_of(kernel(function=1), kernel(OTHER, function=2))
    ((name, text),) = ran.encode_objects(ran.identify_launches([FORWARD, FORWARD], [2, 2])).items()
    assert (name, zlib.decompress(base64.b64decode(text))) == (identity(OTHER), OTHER)
    assert ran.encode_objects([FORWARD]) == {}


def test_real_triton_without_a_gpu(tmp_path: Path) -> None:
    """The installed Triton, with a driver that loads nothing: what was launched is seen, what was only compiled or came
    later is not, and two versions of one shape are told apart by handle."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        pytest.skip("triton is not installed")
    if not Path(found.origin).with_name("backends").joinpath("nvidia").is_dir():
        pytest.skip("this triton was built without its NVIDIA backend")
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, str(Path(__file__).with_name("launch_without_gpu.py"))]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["before"], seen["unknown"]) == ("", {})
    one, other = seen["by_handle"]
    small, large, later = seen["by_shape"]
    assert (small, later) == ("", "")
    assert len({one, other, large}) == 3
    objects = {name: zlib.decompress(base64.b64decode(text)) for name, text in seen["code"].items()}
    assert objects.keys() == {one, other, large}
    assert all(identity(data) == name and data.startswith(b"\x7fELF") for name, data in objects.items())


def test_the_installed_torch_is_shaped_like_that() -> None:
    """A launcher of Inductor has in its globals what it launches; torch's own loads `<hash>/<name>.cubin`."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        pytest.skip("torch is not installed")
    folder = Path(found.origin).with_name("_inductor") / "runtime"
    relied_on = {
        "triton_heuristics.py": (
            '"bin": binary,',
            '"runner": self.kernel.run,',
            "exec(launcher_code, scope)",
            "launcher.cache_hash = triton_hash_to_path_key(self.kernel.hash)",
            "triton_cache_dir(self.compile_meta.get(",
            'f"{self.kernel.name}',
            "self.triton_meta",
            "self.device_props",
        ),
        "static_*_launcher.py": ("self.num_warps = ", "self.shared = ", "self.name = ", "self.function"),
        "cache_dir_utils.py": ("def triton_cache_dir(",),
    }
    for pattern, texts in relied_on.items():
        (path,) = folder.glob(pattern)
        missing = [text for text in texts if text not in path.read_text()]
        assert missing == [], path.name
