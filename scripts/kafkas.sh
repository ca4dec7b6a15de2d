#!/bin/sh
# Fetch every Kafka that the tests run, side by side: it is waiting for the network, mostly. Argument: the virtual environment.
# What cannot be fetched now is tried again by the test that needs it.
for version in 4.3.1 3.9.2 2.0.1 1.0.0 0.10.2.2 0.9.0.1 0.8.2.2; do
    "$1/bin/python" -c "from mirrormaker.embedded.downloads import jars; jars('$version')" &
done
wait
