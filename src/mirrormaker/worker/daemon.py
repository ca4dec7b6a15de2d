"""The parent process of all Python workers: it imports what every stream needs, so that a stream starts with a fork."""

import gc

import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark import daemon

import mirrormaker.worker.stream  # noqa: F401

if __name__ == "__main__":
    # A garbage collection writes to every object that it looks at: a worker would get a copy of all that was imported here.
    gc.collect()
    gc.freeze()
    daemon.manager()
