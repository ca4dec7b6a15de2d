#!/bin/sh
# Run the unit tests on other Pythons. Usage: pythons.sh VENV all|newest [install]
#
# all: every supported Python that this machine has. newest: only the newest one besides the Python of VENV.
# install: create the virtual environments (.venv-3.12 and so on), but run nothing.
# UNIT_WORKERS: so many files at a time (2).
set -eu
venv=$1 which=$2 only=${3:-}
main=$("$venv/bin/python" -c 'import sys; print("3.%d" % sys.version_info[1])')

# Print the path of a Python: on PATH, or one of pyenv's. pyenv's own commands on PATH fail unless a version was switched on.
find_python() {
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1"; do
        if "$candidate" -c '' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

install() {
    echo "installing dependencies into .venv-$1 (a minute, once)" >&2
    sh scripts/venv.sh ".venv-$1" "$2"
    ".venv-$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
    sh scripts/kerberos.sh ".venv-$1"
    touch ".venv-$1/.ready"
}

found=""
for version in 3.13 3.12 3.11; do
    if [ "$version" = "$main" ]; then
        [ "$which" = newest ] || found="$found $version"
    elif find_python "$version" >/dev/null; then
        found="$found $version"
        [ "$which" = all ] || break
    fi
done
if [ -z "$found" ]; then
    echo "no other Python from 3.11 to 3.13 was found: the unit tests ran on $main only" >&2
    exit 0
fi

failed=0
for version in $found; do
    if [ "$version" = "$main" ]; then
        python="$venv/bin/python"
    else
        python=".venv-$version/bin/python"
        if [ ! -e ".venv-$version/.ready" ] || [ pyproject.toml -nt ".venv-$version/.ready" ]; then
            install "$version" "$(find_python "$version")"
        fi
    fi
    [ "$only" = install ] && continue
    echo "unit tests on Python $version"
    # The main environment may hold promtool.
    PATH="$PATH:$(cd "$venv/bin" && pwd)" "$python" -m pytest tests/unit -n "${UNIT_WORKERS:-2}" -q -p no:cacheprovider || failed=1
done
exit $failed
