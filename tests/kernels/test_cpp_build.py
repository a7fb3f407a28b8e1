"""The compiled library: what is loaded was compiled by us, is whole, and was tried. What goes wrong is one line, and numba."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from slotlab_kernels.ops import choose_ops, cpp_build
from slotlab_kernels.ops.cpp_paths import forget, library, why_not

CPU = torch.device("cpu")
STUB = "\n".join(f'extern "C" long {symbol}() {{ return 0; }}' for symbol in cpp_build.SYMBOLS).replace(
    "packed_fp32() { return 0", "packed_fp32() { return 99"
)
REAL_PATH = os.environ["PATH"]


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library as the real compiler makes it."""
    forget()
    if why := why_not("cpp"):
        pytest.skip(f"the C++ ops cannot run here: {why}")
    copy = tmp_path_factory.mktemp("good") / "good.so"
    shutil.copy(library("cpp").kernels._name, copy)
    return copy


@pytest.fixture(autouse=True)
def cache(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache" / "slotlab"
    forget()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: Path) -> Path:
    """A g++ that leaves the good library, until `be` makes it another."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{REAL_PATH}")
    monkeypatch.setenv("GOOD", str(good))
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "g++"
    be(path, "cp $GOOD $out")
    return path


def be(path: Path, script: str) -> None:
    """Let this g++ do what the script says; `$out` is the file that is asked for."""
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fake && exit 0\nfor out; do :; done\n{script}\n')
    path.chmod(0o755)
    forget()


def stub(folder: Path, source: str) -> Path:
    (folder / "stub.cpp").write_text(source)
    command = ["g++", "-shared", "-fPIC", "-o", str(folder / "stub.so"), str(folder / "stub.cpp")]
    subprocess.run(command, check=True, env=os.environ | {"PATH": REAL_PATH})
    return folder / "stub.so"


def refused(cache: Path) -> str:
    """Why numba runs; nothing is left that a later run would load."""
    ops = choose_ops(CPU)
    assert ops.names["rope_store"] == "numba" and not [*cache.glob("*.so")]
    why = ops.remarks["cpp"]
    assert why.startswith("cannot run here: ") and "\n" not in why
    return why


def test_what_was_compiled_and_tried_is_kept_for_later_runs(fake: Path, cache: Path) -> None:
    assert choose_ops(CPU).remarks == {}
    assert len([*cache.glob("*.so")]) == 1 and cache.stat().st_mode & 0o777 == 0o700
    be(fake, "exit 1")
    assert why_not("cpp") is None, "nothing needed to be compiled"


@pytest.mark.parametrize(
    ("script", "why"),
    (
        ("exit 0", "reported success and left no file"),
        ("echo garbage > $out", "does not load"),
        ("head -c 30000 $GOOD > $out", "what g++ compiled"),
        ("mkdir $out", "left no file"),
        (r"printf 'error: \377\376 nicht gefunden' >&2; exit 1", r"error: \xff\xfe nicht gefunden"),
        ("exit 3", "exit code 3"),
        ("echo no space left on device: error; exit 1", "no space left"),
    ),
)
def test_a_compiler_that_fails_or_lies_leaves_numba_and_the_reason(fake: Path, cache: Path, script: str, why: str) -> None:
    be(fake, script)
    assert why in refused(cache)
    be(fake, "cp $GOOD $out")
    assert why_not("cpp") is None, "nothing bad was kept"


@pytest.mark.parametrize(
    ("source", "why"),
    (
        ("int x;", "has no prepare, packed_fp32"),
        (STUB, "computes [0.0, 0.0"),
        (STUB.replace("prepare() { return 0", "prepare() { return 1"), "refused what it needs by the system: Operation not perm"),
        (STUB.replace("pack_fp32() { return 0", "pack_fp32() { __builtin_trap()", 1), "dies of SIGILL"),
        (STUB.replace("pack_fp32() { return 0", 'pack_fp32() { for (;;) asm volatile("")', 1), "did not end in 1 s"),
    ),
)
def test_a_library_that_fails_its_trial_is_never_loaded(
    fake: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, why: str
) -> None:
    monkeypatch.setattr(cpp_build, "TRIAL_S", 1.0)
    be(fake, f"cp {stub(tmp_path, source)} $out")
    assert why in refused(cache)


def test_a_hanging_compiler_is_ended_with_what_it_started(
    fake: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpp_build, "COMPILE_S", 1.0)
    os.mkfifo(tmp_path / "alive")
    be(fake, f"sleep 1000 > {tmp_path / 'alive'} & wait")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    assert "g++ did not end in 1 s" in refused(cache)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "nobody has it open for writing any more"
    os.close(reader)


def test_a_file_that_is_no_program_is_no_compiler(fake: Path, cache: Path) -> None:
    fake.write_bytes(b"\x00\x01")
    forget()
    assert "does not start" in refused(cache)


def put(library: Path, content: bytes) -> None:
    """Another file in its place: this process has the old one in its memory."""
    library.unlink()
    library.write_bytes(content)
    library.chmod(0o600)


def damage_truncate(library: Path) -> None:
    put(library, library.read_bytes()[:20_000])


def damage_empty(library: Path) -> None:
    put(library, b"")


def damage_checksum(library: Path) -> None:
    library.with_suffix(".sha256").write_bytes(b"\xff\xfe")


def damage_no_checksum(library: Path) -> None:
    library.with_suffix(".sha256").unlink()


def damage_mode(library: Path) -> None:
    library.chmod(0o666)


def damage_link(library: Path) -> None:
    library.rename(library.with_name("elsewhere"))
    library.symlink_to("elsewhere")


def damage_pipe(library: Path) -> None:
    library.unlink()
    os.mkfifo(library, 0o600)


DAMAGES = (
    damage_truncate, damage_empty, damage_checksum, damage_no_checksum, damage_mode, damage_link, damage_pipe,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_anew_and_the_record_says_so(fake: Path, cache: Path, damage: object) -> None:
    library("cpp")
    (kept,) = cache.glob("*.so")
    assert callable(damage)
    damage(kept)
    forget()
    ops = choose_ops(CPU)
    assert ops.names["linear"].startswith("cpp")
    remark = ops.remarks[ops.names["linear"]]
    assert remark.startswith("compiled anew: ") and "\n" not in remark
    forget()
    assert choose_ops(CPU).remarks == {}


@pytest.mark.parametrize("mode", (0o777, 0o770, 0o702))
@pytest.mark.parametrize("above", (False, True))
def test_a_folder_that_others_may_write_is_not_used(fake: Path, cache: Path, mode: int, above: bool) -> None:
    library("cpp")
    open_to_all = cache.parent if above else cache
    open_to_all.chmod(mode)
    forget()
    why = why_not("cpp")
    assert why == f"others may write to {open_to_all} (chmod go-w is the remedy)"


def test_another_users_folder_is_not_used(fake: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library("cpp")
    forget()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert why_not("cpp") == f"{cache} belongs to another user"


def test_a_link_to_the_cache_is_judged_by_where_it_leads(
    fake: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library("cpp")
    (tmp_path / "link").symlink_to(cache.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    forget()
    assert why_not("cpp") is None
    cache.chmod(0o777)
    forget()
    assert str(cache) in (why_not("cpp") or "")


@pytest.mark.parametrize("value", ("", "caches", "./x"))
def test_a_cache_home_that_is_empty_or_relative_counts_for_none(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert why_not("cpp") is None
    assert [*(tmp_path / ".cache" / "slotlab").glob("*.so")] and not [*(tmp_path / "here").iterdir()]


@pytest.mark.parametrize("home", ("missing", "file", "relative"))
def test_a_home_that_cannot_be_used_leaves_numba_and_the_reason(
    fake: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", home if home == "relative" else str(tmp_path / home))
    assert "is not there, so what is compiled cannot be kept" in refused(cache)


def test_a_cache_home_that_cannot_be_written_leaves_numba_and_the_reason(
    fake: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self")
    assert "cannot be" in refused(cache)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/x")
    forget()
    assert "cannot be used for what is compiled: Not a directory" in refused(cache)


def test_concurrent_builders_compile_once_and_all_load_it(fake: Path, cache: Path, tmp_path: Path) -> None:
    be(fake, f"echo once >> {tmp_path / 'log'}; sleep 0.3; cp $GOOD $out")
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: library.__wrapped__("cpp"), range(4))]
    assert [library.remark for library in found] == [None] * 4
    assert (tmp_path / "log").read_text() == "once\n"
