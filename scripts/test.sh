#!/bin/sh
# Run every test, then list the skipped ones. Argument: the virtual environment. `make test` calls this after its set-up.
set -u
venv=$1
SKIPPED_TESTS=$(mktemp)  # tests/support/skips.py writes to it
export SKIPPED_TESTS

failed=0
# Two files at a time. The unit tests on another Python run beside them, one file at a time: tests with clusters wait a lot.
# The shell starts a background job with SIGINT and SIGQUIT ignored; tests look at that, and Ctrl+C must end this job too.
beside=$(mktemp)
UNIT_WORKERS=1 env --default-signal=INT,QUIT sh scripts/pythons.sh "$venv" newest >"$beside" 2>&1 &
"$venv/bin/pytest" -n "${WORKERS:-2}" --dist loadfile --no-loadscope-reorder -m "not alone" || failed=1
wait $! || failed=1
cat "$beside"
rm -f "$beside"
# Then the tests that measure, which need the machine for themselves.
"$venv/bin/pytest" -m alone || failed=1

echo
if [ -s "$SKIPPED_TESTS" ]; then
    echo "Skipped, so not tested:"
    sort -u "$SKIPPED_TESTS"
else
    echo "No test was skipped."
fi
rm -f "$SKIPPED_TESTS"
[ $failed = 0 ] || echo "Some tests failed: see above."
exit $failed
