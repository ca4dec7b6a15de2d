#!/bin/sh
# Fetch every Kafka release that the tests run, and Hadoop's YARN, all at the same time: most of it is waiting for the network.
# Argument: the virtual environment, with PySpark in it.
# A test whose release could not be fetched here fetches it again, and fails if it cannot.
fetch() {
    PYTHONPATH=src "$1/bin/python" -c "
import sys
from mirrormaker.embedded.downloads import hadoop_jars, jars
from mirrormaker.errors import EmbeddedError
try:
    $2
except EmbeddedError as error:
    sys.exit(str(error))
"
}

for version in 4.3.1 3.9.2 2.0.1 1.0.0 0.10.2.2 0.9.0.1 0.8.2.2; do
    fetch "$1" "jars('$version')" &
done
fetch "$1" "hadoop_jars()" &
wait
