"""What a cluster's executors need to run streams: this package and the libraries it imports, sent along with the job.

Two archives: the libraries (80 MB), packed once per user and version, and our own 170 KB. Spark unpacks both beside each executor.
Nothing needs to be installed there but Python of this version.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import mirrormaker
from mirrormaker.cache import cache_directory


def _is_installed(name: str) -> bool:
    try:
        return distribution(name) is not None
    except PackageNotFoundError:
        return False


# The last two are for Kerberos, and go along where they are installed; of the system they need libgssapi-krb5-2.
_LIBRARIES = ("pyarrow", "numpy", "kafka-python", "crc32c", *filter(_is_installed, ("gssapi", "decorator")))
_NOT_NEEDED = ("/tests/", "/include/", "pyarrow/src/", "/doc/", "/docs/")
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
CODE, LIBRARIES = "mirrormaker-code", "mirrormaker-libraries"  # the names of both on an executor


def settings(directory: Path, given: str = "") -> dict[str, str]:
    """Spark's settings for it; `given` are archives of the user's own."""
    archives = [given] if given else []
    archives += [f"{code(directory)}#{CODE}", f"{libraries()}#{LIBRARIES}"]
    return {"spark.archives": ",".join(archives), "spark.executorEnv.PYTHONPATH": f"./{CODE}:./{LIBRARIES}"}


def code(directory: Path) -> Path:
    """This package, as it is now."""
    home = Path(mirrormaker.__file__).parent
    files = {Path("mirrormaker", file.relative_to(home)): file for file in home.rglob("*.py*")}
    return _pack(directory / f"{CODE}.tar.gz", files)


def libraries_path() -> Path:
    """Where the packed libraries of these very versions are kept."""
    versions = " ".join(f"{name}=={distribution(name).version}" for name in _LIBRARIES)
    name = f"libraries-{hashlib.sha256(f'{sys.platform} {PYTHON} {versions}'.encode()).hexdigest()[:12]}.tar.gz"
    return cache_directory() / name


def libraries() -> Path:
    """The libraries, packed at first use and kept for this user."""
    path = libraries_path()
    if path.exists():
        return path
    files: dict[Path, Path] = {}
    for library in map(distribution, _LIBRARIES):
        for file in library.files or ():
            if ".." not in file.parts and not any(part in f"/{file}" for part in _NOT_NEEDED):
                files[Path(file)] = Path(str(library.locate_file(file)))
    path.parent.mkdir(parents=True, exist_ok=True)
    return _pack(path, files)


def _pack(path: Path, files: dict[Path, Path]) -> Path:
    """Whole or not at all: another process may be packing the same."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
        for name, file in sorted(files.items()):
            if file.is_file():
                archive.add(file, str(name))
    unfinished.rename(path)
    return path
