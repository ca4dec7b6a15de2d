#!/bin/sh
# Create an empty virtual environment. Arguments: where, and optionally with which Python.
set -eu
venv=$1
python=${2:-${PYTHON3:-python3}}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or newer is needed (PySpark 4.3 asks for it); $("$python" --version) was found: set PYTHON3 to another one" >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || {
    echo "the virtual environment could not be created; Debian and Ubuntu need the package python3-venv" >&2
    exit 1
}
