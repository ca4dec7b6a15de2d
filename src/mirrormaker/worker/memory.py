"""The memory of a stream's process: what is freed is used again, instead of going back to the kernel after each batch.

Every answer, and all batches that are packed from it, take some megabytes for some milliseconds. The C library gives blocks of that
size back to the kernel at once, and the kernel fills the next ones with zeros, page by page. That took half of the CPU time of
unpacking and packing.
"""

from __future__ import annotations

import ctypes
import time

import pyarrow as pa

# Of the C library's malloc.h: from how many bytes on a block is mapped alone, and how many freed bytes are kept.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_MUCH = 1 << 20  # bytes in the buffer: a stream with so many is not quiet
_QUIET = 10.0  # seconds after which a quiet stream gives its freed memory back


class FreedMemory:
    """Keeps the memory that a stream frees, up to a limit, for as long as records come in bulk."""

    def __init__(self, most: int) -> None:
        """Keep about `most` bytes from now on. A C library without these functions keeps what it likes."""
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        self._used_at: float | None = None
        set_option = getattr(libc, "mallopt", None)
        if set_option is not None:
            limit = min(most, 2**31 - 1)
            set_option(_MMAP_THRESHOLD, limit)
            set_option(_TRIM_THRESHOLD, limit)

    def tick(self, most_buffered: int, now: float | None = None) -> bool:
        """Give freed memory back if the stream has been quiet for a while; return True if it was given back now.

        `most_buffered`: so many bytes were in the buffer at once since the last call.
        """
        now = time.monotonic() if now is None else now
        if most_buffered >= _MUCH:
            self._used_at = now
            return False
        if self._used_at is None or now - self._used_at < _QUIET:
            return False
        self._used_at = None
        pa.default_memory_pool().release_unused()
        if self._trim is not None:
            self._trim(0)
        return True
