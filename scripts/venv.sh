#!/bin/sh
# Make the virtual environment that every make target uses; argument: where.
set -eu
venv=$1
python=${PYTHON3:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "Python 3.10 or newer is needed; $("$python" --version) was found (set PYTHON3 to another one)" >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || {
    echo "the virtual environment could not be made; Debian and Ubuntu need the package python3-venv" >&2
    exit 1
}
echo "installing dependencies into $venv (a minute or two, once)" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
