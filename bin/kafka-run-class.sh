#!/bin/sh
# The original's way to start its tools: bin/kafka-run-class.sh kafka.tools.MirrorMaker --consumer.config ...
set -eu
case "${1:-}" in
kafka.tools.MirrorMaker) command=kafka-mirror-maker ;;
kafka.tools.ConsumerOffsetChecker) command=kafka-consumer-offset-checker ;;
*)
    echo "kafka-run-class.sh: ${1:-no class}: only kafka.tools.MirrorMaker and kafka.tools.ConsumerOffsetChecker are here" >&2
    exit 1
    ;;
esac
shift
# What `make` has set up here comes before what is installed elsewhere.
here=$(dirname "$(readlink -f "$0")")/../.venv/bin/$command
[ -x "$here" ] && exec "$here" "$@"
command -v "$command" >/dev/null 2>&1 && exec "$command" "$@"
echo "kafka-run-class.sh: $command is not installed: run make setup in the repository, or pip install it" >&2
exit 1
