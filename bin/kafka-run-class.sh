#!/bin/sh
# Starts a tool by the name of its Java class, as in Kafka: bin/kafka-run-class.sh kafka.tools.MirrorMaker OPTIONS
set -eu
case "${1:-}" in
kafka.tools.MirrorMaker) command=kafka-mirror-maker ;;
kafka.tools.ConsumerOffsetChecker) command=kafka-consumer-offset-checker ;;
*)
    echo "kafka-run-class.sh: ${1:-no class}: only kafka.tools.MirrorMaker and kafka.tools.ConsumerOffsetChecker can be started" >&2
    exit 1
    ;;
esac
shift
# The environment that `make setup` made in this repository comes before an installed command.
here=$(dirname "$(readlink -f "$0")")/../.venv/bin/$command
[ -x "$here" ] && exec "$here" "$@"
command -v "$command" >/dev/null 2>&1 && exec "$command" "$@"
echo "kafka-run-class.sh: $command is not installed: run make setup in the repository, or pip install it" >&2
exit 1
