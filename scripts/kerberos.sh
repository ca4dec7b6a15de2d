#!/bin/sh
# Install the Python package gssapi, which the Kerberos tests need. Argument: the virtual environment.
# It has no wheel for Linux and is compiled: scripts/packages.sh installs the compiler and the headers first.
set -eu
python="$1/bin/python"

case " ${WITHOUT:-} " in *" kerberos "*) exit 0 ;; esac
"$python" -c 'import gssapi' 2>/dev/null && exit 0
if ! command -v krb5-config >/dev/null 2>&1 || ! command -v gcc >/dev/null 2>&1; then
    echo "gssapi cannot be compiled without libkrb5-dev and gcc: the Kerberos tests are skipped" >&2
    exit 0
fi
echo "compiling gssapi (half a minute, once)" >&2
# The tests do not measure it: without optimisation it compiles in less than half the time.
CFLAGS=-O0 "$python" -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[kerberos]' || {
    echo "gssapi could not be installed (see above); \`make test WITHOUT=kerberos\` skips the tests that need it" >&2
    exit 1
}
