#!/usr/bin/env bash
# Two servers: one answers a query with its own noise, another adds noise of its own and publishes.
# If one server's noise has a backdoor, the other's still protects what is published.
# Three commands; on real machines each server runs its own, with its own folder of certificates.
# Run: bash examples/05_two_servers.sh
set -euo pipefail

dpaudit() { "${PYTHON:-python}" -m dpaudit "$@"; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; wait; rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python}" - <<'EOF'
import numpy

numpy.save("counts.npy", numpy.array([120, 45, 300, 8, 77, 210, 0, 19], dtype=numpy.float32))
EOF

echo "1. certificates by which the two know each other"
dpaudit serve init --out certificates 2> /dev/null

echo
echo "2. the server that adds noise and publishes, in the background"
# not by the function above: $! would be a shell around the server, and killing it would leave the
# server running
"${PYTHON:-python}" -m dpaudit serve noise --identity certificates/noise --journal noise.journal \
  --publish published --sigma 2 --bound 1000 --dim 8 > noise.json 2> noise.log &
server=$!
until [ -s noise.json ]; do
  kill -0 "$server" 2> /dev/null || { cat noise.log; exit 1; }
  sleep 0.1
done
cat noise.json
address=$(sed 's/.*"address": "\([^"]*\)".*/\1/' noise.json)

echo
echo "3. the server that answers"
answer() {
  dpaudit serve answer --identity certificates/answer --peer "$address" --query counts.npy \
    --sigma 2 --journal answer.journal --release "$1" 2>> answer.log
}
answer week-7

echo
echo "The same command again repeats the answer and publishes nothing new:"
answer week-7

echo
"${PYTHON:-python}" - <<'EOF'
from pathlib import Path

import numpy

counts = numpy.load("counts.npy")
for path in sorted(Path("published").glob("*.npy")):
    values = numpy.load(path)
    print(f"published {path}: {' '.join(f'{x:.1f}' for x in values)}")
    print(f"the query, which nobody else has seen: {' '.join(f'{x:.1f}' for x in counts)}")
    error = numpy.sqrt(((values - counts) ** 2).mean())
    print(f"error {error:.2f} per value, by design 2·√2 = 2.83")
EOF
echo
echo "what the noise server logged:"
cat noise.log
