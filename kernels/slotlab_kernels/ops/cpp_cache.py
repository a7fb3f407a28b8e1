"""Where compiled kernels are kept. What lies there is run, so it must be whole, and nobody else's work."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path


class Unusable(Exception):
    """Kernels cannot be compiled, kept or loaded here; the message is one line."""


def cache_folder() -> Path:
    """The user's folder for what we compile, made if it is not there. Unusable if it cannot be, or if others may write to it."""
    folder = _named()
    try:
        for at in [*reversed(folder.parents), folder]:
            if not at.exists():
                at.mkdir(mode=0o700, exist_ok=True)
        for at in (folder, *folder.parents):
            _refuse_others(at, at.stat(), ours=at == folder)
    except OSError as error:
        raise Unusable(f"{folder} cannot be used for what is compiled: {error.strerror or error}") from None
    return folder


def fault(library: Path) -> str | None:
    """Why this file must not be loaded; None if it is what `seal` left."""
    try:
        expected = _read(_beside(library)).decode(errors="replace")
        found = _read(library)
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is not there"
    except OSError as error:
        return f"{library.name} cannot be read: {error.strerror or error}"
    except Unusable as error:
        return str(error)
    return None if hashlib.sha256(found).hexdigest() == expected else f"{library.name} is not what was compiled"


def seal(built: Path, library: Path) -> None:
    """Move what was built and tried to its place, and write its checksum beside it. OSError where the disk does not take it."""
    checksum, aside = hashlib.sha256(built.read_bytes()).hexdigest(), built.with_suffix(".sha256")
    aside.write_text(checksum)
    for path in (built, aside):
        path.chmod(0o600)
    built.replace(library)
    aside.replace(_beside(library))


def _beside(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _named() -> Path:
    """As the XDG specification has it: a path that is empty or relative counts for none. No link is left in it."""
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not asked.is_absolute():
        asked = _home() / ".cache"
    return Path(os.path.realpath(asked / "slotlab"))


def _home() -> Path:
    try:
        home = Path.home()
    except RuntimeError:
        raise Unusable("there is no home folder to keep what is compiled") from None
    if not home.is_absolute() or not home.is_dir():
        raise Unusable(f"the home folder {str(home)!r} is not there, so what is compiled cannot be kept")
    return home


def _read(path: Path) -> bytes:
    """A plain file of the user's own, not followed if it is a link, not waited for if it is a pipe."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as opened:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            raise Unusable(f"{path.name} is not a plain file")
        _refuse_others(path, info, ours=True)
        return opened.read()


def _refuse_others(path: Path, info: os.stat_result, ours: bool) -> None:
    """Unusable if others than the user (and root, who owns the folders above) may put something else in the place of `path`.

    In a folder with the sticky bit, as /tmp, nobody can replace what is not theirs.
    """
    if info.st_uid != os.geteuid() and (ours or info.st_uid != 0):
        raise Unusable(f"{path} belongs to another user")
    sticky = not ours and info.st_mode & stat.S_ISVTX
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        raise Unusable(f"others may write to {path} (chmod go-w is the remedy)")
