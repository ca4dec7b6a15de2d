#!/bin/sh
# Install the Debian packages that this machine lacks. Usage: packages.sh VENV NEED..., a need is one of: java browser promtool kerberos.
#
# As root with apt-get, this script installs them, and a failed installation is an error.
# Elsewhere only java is an error: pytest skips the tests that need the others, and `make test` lists those at its end.
# WITHOUT="browser kerberos" leaves out needs on purpose.
set -eu
venv=$1
shift
PATH="$PATH:/usr/sbin:/sbin"  # a KDC lives there
log=$(mktemp)
trap 'rm -f "$log"' EXIT

on_path() { command -v "$1" >/dev/null 2>&1; }  # finds shell functions too: no function here has the name of a program
may_install() { on_path apt-get && [ "$(id -u)" = 0 ]; }

java=java
if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then java="$JAVA_HOME/bin/java"; fi
java_version() { "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }
new_enough() {
    on_path "$1" || return 1
    number=$(java_version "$1")
    [ -n "$number" ] && [ "$number" -ge 17 ]
}
has_python_headers() {
    "${PYTHON3:-python3}" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

has() {
    case $1 in
    java) new_enough "$java" ;;
    browser) on_path chromium && on_path chromedriver ;;
    promtool) on_path promtool || [ -x "$venv/bin/promtool" ] ;;
    kerberos) on_path krb5kdc && on_path kadmin.local && on_path krb5-config && on_path gcc && has_python_headers ;;
    *) echo "packages.sh: unknown need: $1" >&2; exit 2 ;;
    esac
}

packages_of() {
    case $1 in
    java) echo default-jre-headless ;;
    browser) echo chromium chromium-driver ;;
    promtool) ;;  # taken out of its package: installing that would leave a running Prometheus behind
    kerberos)
        echo krb5-kdc krb5-admin-server libkrb5-dev gcc libc6-dev
        has_python_headers || echo python3-dev
        ;;
    esac
}

# Print the end of the output of a command that fails, and nothing else.
quietly() {
    "$@" >"$log" 2>&1 && return 0
    echo "failed: $*" >&2
    tail -n 15 "$log" >&2
    return 1
}

fetch_promtool() {
    scratch=$(mktemp -d)
    mkdir -p "$venv/bin"
    target=$(cd "$venv/bin" && pwd)
    fetched=0
    (
        cd "$scratch"
        quietly apt-get -o APT::Sandbox::User="$(id -un)" download prometheus &&
            quietly dpkg -x prometheus_*.deb . &&
            quietly cp usr/bin/promtool "$target/"
    ) || fetched=1
    rm -rf "$scratch"
    return $fetched
}

missing="" packages=""
for need in "$@"; do
    case " ${WITHOUT:-} " in *" $need "*) continue ;; esac
    has "$need" && continue
    missing="$missing $need"
    packages="$packages $(packages_of "$need")"
done
[ -n "$missing" ] || exit 0

case $missing in
*java*)
    if [ "$java" != java ]; then
        echo "JAVA_HOME=$JAVA_HOME holds Java $(java_version "$java"); Spark needs 17 or newer: point it to one, or unset it" >&2
        exit 1
    fi
    ;;
esac

if may_install; then
    echo "installing:$missing" >&2
    quietly apt-get update -qq || echo "trying with the package lists that are there" >&2
    # shellcheck disable=SC2086  # one word per package
    if [ -n "$(echo $packages)" ]; then
        quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages || true
    fi
fi
case $missing in
*promtool*) if on_path apt-get && on_path dpkg; then fetch_promtool || true; fi ;;
esac

# Each need is looked for again: a package manager that reports success may still not have brought the program.
failed=0
for need in $missing; do
    has "$need" && continue
    case $need in
    java)
        echo "Java 17 or newer was not found: install a headless runtime (Debian, Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME" >&2
        failed=1
        ;;
    *)
        if may_install; then
            echo "$need could not be installed (see above); \`make test WITHOUT=$need\` skips the tests that need it" >&2
            failed=1
        else
            echo "$need was not found and cannot be installed without root and apt-get: the tests that need it are skipped" >&2
        fi
        ;;
    esac
done
exit $failed
