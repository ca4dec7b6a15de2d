#!/bin/sh
# Find Java 17 or newer (JAVA_HOME, then PATH); install a headless one where there is apt-get and the right to use it.
set -eu

version() { "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }

found() {
    command -v "$1" >/dev/null 2>&1 || return 1
    number=$(version "$1")
    [ -n "$number" ] && [ "$number" -ge 17 ]
}

if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
    found "$JAVA_HOME/bin/java" && exit 0
    echo "JAVA_HOME=$JAVA_HOME holds Java $(version "$JAVA_HOME/bin/java"); Spark needs 17 or newer: point it to one, or unset it" >&2
    exit 1
fi
found java && exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing a headless Java" >&2
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends default-jre-headless >/dev/null
    found java && exit 0
fi
echo "Java 17 or newer is needed and was not found: install a headless runtime (Debian, Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME" >&2
exit 1
