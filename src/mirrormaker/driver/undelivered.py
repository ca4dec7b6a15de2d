"""Records that could not be delivered, written down before anything goes on without them."""

from __future__ import annotations

import json
import os
from pathlib import Path


class Undelivered:
    """JSON lines in a file that is made when the first one comes."""

    def __init__(self, path: str) -> None:
        self.path, self.count = Path(path), 0

    def write(self, topic: str, partition: int, offset: int, cause: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            line = {"topic": topic, "partition": partition, "offset": offset, "cause": cause}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.count += 1
