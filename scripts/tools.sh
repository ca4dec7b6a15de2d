#!/bin/sh
# What some tests need and can do without: Chromium for the status page, promtool for the alert rules. Argument: the virtual environment.
# Chromium is installed where there is apt-get and the right to use it. Of prometheus only promtool is taken out of its package: a test run
# must not leave a service behind.
set -u
venv=$(cd "$1" && pwd)

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

update() {
    [ -n "${updated:-}" ] || as_root apt-get update -qq >/dev/null 2>&1
    updated=1
}

chromium() { command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; }
promtool() { command -v promtool >/dev/null 2>&1 || [ -x "$venv/bin/promtool" ]; }
may_install() { command -v apt-get >/dev/null 2>&1 && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }

if ! chromium && may_install; then
    echo "installing chromium" >&2
    update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1
fi
if ! promtool && command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; then
    echo "fetching promtool" >&2
    may_install && update
    scratch=$(mktemp -d)
    (cd "$scratch" && apt-get download -qq prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb . && cp usr/bin/promtool "$venv/bin/") 2>/dev/null
    rm -rf "$scratch"
fi
chromium || echo "chromium and chromedriver were not found: the tests of the status page in a browser are skipped" >&2
promtool || echo "promtool was not found: the tests of the alert rules are skipped" >&2
exit 0
