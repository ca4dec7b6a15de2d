"""Shipping to a cluster's executors: this package and the libraries that it imports, sent along with the job.

There are two archives: the libraries (80 MB), packed once per user and version, and this package (170 KB). Spark
unpacks both beside each executor. So nothing needs to be installed there but a Python of this version.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import mirrormaker
from mirrormaker.cache import cache_directory


def _is_installed(name: str) -> bool:
    try:
        return distribution(name) is not None
    except PackageNotFoundError:
        return False


# Libraries that every Python with Arrow UDFs has, and libraries that only we need. The last two are for Kerberos, and
# are shipped if they are installed here; they need the system's libgssapi-krb5-2.
_OWN_LIBRARIES = ("kafka-python", "crc32c", *filter(_is_installed, ("gssapi", "decorator")))
STREAM_LIBRARIES = ("pyarrow", "numpy", *_OWN_LIBRARIES)
_NOT_NEEDED = ("/tests/", "/include/", "pyarrow/src/", "/doc/", "/docs/")
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# The names of both archives on an executor.
CODE, LIBRARIES = "mirrormaker-code", "mirrormaker-libraries"


PYTHONPATH = f"./{CODE}:./{LIBRARIES}"


def settings(directory: Path, key: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session that ship everything, with the setting `key`; the user's archives are kept."""
    shipped = [given[key]] if given.get(key) else []
    shipped += [f"{code(directory)}#{CODE}", f"{libraries()}#{LIBRARIES}"]
    return {key: ",".join(shipped), "spark.executorEnv.PYTHONPATH": PYTHONPATH}


def add_to(context: Any) -> None:
    """Ship this package to the executors of a running SparkContext.

    Arrow and numpy are not shipped: every Python with Arrow UDFs has them, and the context's other jobs must find their
    own versions. PySpark cannot ship to one job alone, so those jobs get the rest too; and executors that start later
    fetch it as well, so both archives are in the user's cache and stay there.
    """
    home = cache_directory()
    home.mkdir(parents=True, exist_ok=True)
    for name, archive in ((CODE, code(home)), (LIBRARIES, libraries(_OWN_LIBRARIES))):
        if name not in context._python_includes:
            context.addArchive(f"{archive}#{name}")
            context._python_includes.append(name)


def code(directory: Path) -> Path:
    """Pack this package into an archive in `directory`; its name has a checksum of the contents."""
    home = Path(mirrormaker.__file__).parent
    # Python writes its compiled files under a name that ends with a number, and renames them.
    whole = (file for file in sorted(home.rglob("*")) if file.is_file() and not file.suffix[1:].isdigit())
    files = {Path("mirrormaker", file.relative_to(home)): file for file in whole}
    contents = hashlib.sha256()
    for name, file in files.items():
        contents.update(f"{name} {file.stat().st_size} ".encode() + file.read_bytes())
    path = directory / f"{CODE}-{contents.hexdigest()[:12]}.tar.gz"
    return path if path.exists() else _pack(path, files)


def libraries_path(names: Sequence[str] = STREAM_LIBRARIES) -> Path:
    """Return where the packed libraries are kept; their versions are part of the name."""
    versions = " ".join(f"{name}=={distribution(name).version}" for name in names)
    name = f"libraries-{hashlib.sha256(f'{sys.platform} {PYTHON} {versions}'.encode()).hexdigest()[:12]}.tar.gz"
    return cache_directory() / name


def libraries(names: Sequence[str] = STREAM_LIBRARIES) -> Path:
    """Return the packed libraries; the first call packs them, and keeps them for this user."""
    path = libraries_path(names)
    if path.exists():
        return path
    files: dict[Path, Path] = {}
    for library in map(distribution, names):
        for file in library.files or ():
            if ".." not in file.parts and not any(part in f"/{file}" for part in _NOT_NEEDED):
                files[Path(file)] = Path(str(library.locate_file(file)))
    path.parent.mkdir(parents=True, exist_ok=True)
    return _pack(path, files)


def driver_libraries() -> list[str]:
    """Return the libraries of a driver that runs in a cluster: all that we depend on, except Spark itself."""
    needed: dict[str, None] = {}
    waiting = [*(distribution("mirrormaker").requires or ()), *_OWN_LIBRARIES]
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        if "extra ==" not in requirement and name not in {*needed, "pyspark"} and _is_installed(name):
            needed[name] = None
            waiting += distribution(name).requires or ()
    return sorted(needed)


def _pack(path: Path, files: dict[Path, Path]) -> Path:
    """Write an archive under another name and rename it: another process may be packing the same one."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
        for name, file in sorted(files.items()):
            if file.is_file():
                archive.add(file, str(name))
    unfinished.rename(path)
    return path
