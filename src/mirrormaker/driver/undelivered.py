"""The file of records that could not be delivered, written before the mirror goes on without them."""

from __future__ import annotations

import json
import os
from pathlib import Path


class Undelivered:
    """One JSON line per record, in a file that is created with the first one."""

    def __init__(self, path: str) -> None:
        self.path, self.count = Path(path), 0

    def write(self, topic: str, partition: int, offset: int, cause: str) -> None:
        """Append a record's place and the cause, and wait until they are on disk."""
        with self.path.open("a", encoding="utf-8") as file:
            line = {"topic": topic, "partition": partition, "offset": offset, "cause": cause}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.count += 1
