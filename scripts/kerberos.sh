#!/bin/sh
# What the tests with Kerberos need: a KDC and the Python package gssapi, where there is apt-get and the right to use it.
# Without them those tests are skipped. Argument: the virtual environment.
set -eu
venv=$1

has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
has_library() { "$venv/bin/python" -c 'import gssapi' 2>/dev/null; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

if has krb5kdc && has kadmin.local && has_library; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing a KDC, and compiling gssapi (a minute, once)" >&2
    apt-get update -qq >/dev/null || true
    install krb5-kdc krb5-admin-server libkrb5-dev gcc libc6-dev || true
    has_library || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[kerberos]' || true
fi
has krb5kdc && has kadmin.local && has_library ||
    echo "going on without Kerberos: its tests are skipped (they need krb5-kdc, krb5-admin-server, libkrb5-dev, gcc and root)" >&2
