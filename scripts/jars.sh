#!/bin/sh
# Fetch every Kafka release that the tests run, all at the same time: most of it is waiting for the network.
# Argument: the virtual environment, with PySpark in it.
# A test whose release could not be fetched here fetches it again, and fails if it cannot.
for version in 4.3.1 3.9.2 2.0.1 1.0.0 0.10.2.2 0.9.0.1 0.8.2.2; do
    PYTHONPATH=src "$1/bin/python" -c "
import sys
from mirrormaker.embedded.downloads import jars
from mirrormaker.errors import EmbeddedError
try:
    jars('$version')
except EmbeddedError as error:
    sys.exit(str(error))
" &
done
wait
