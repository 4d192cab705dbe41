# What `helm test` runs: a message is published for later, and received when it is due, not before.
# HOURWHEEL_SERVER says where; DELAY_MS how much later.
set -eu
topic="helm-test-$(date +%s)-$$"
hourwheel topics create "$topic"
clean() {
    hourwheel groups delete "$topic" --yes || true
    hourwheel topics delete "$topic" --yes || true
}
trap clean EXIT
hourwheel publish "$topic" wake-up --in "${DELAY_MS}ms"
found=$(hourwheel consume "$topic" --group "$topic" --max 1 --wait 60s --json)
echo "$found"
field() { echo "$found" | sed -n "s/.*\"$1\": \"*\([^,\"]*\).*/\1/p"; }
if [ "$(field body)" != wake-up ]; then
    echo "FAILED: the message did not come" >&2
    exit 1
fi
if [ "$(field receive_ms)" -lt "$(field due_ms)" ]; then
    echo "FAILED: the message came before it was due" >&2
    exit 1
fi
echo "the message came when it was due"
