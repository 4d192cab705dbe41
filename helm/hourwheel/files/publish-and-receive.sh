# What `helm test` runs: a message is published for later, and received then and not before.
# HOURWHEEL_SERVER says where; DELAY_MS how much later.
set -eu
topic="helm-test-$(date +%s)-$$"
hourwheel topics create "$topic"
clean() {
    hourwheel groups delete "$topic" --yes || true
    hourwheel topics delete "$topic" --yes || true
}
trap clean EXIT
hourwheel publish "$topic" early --in "${DELAY_MS}ms"
receive() { hourwheel consume "$topic" --group "$topic" --max 1 --wait "$1" --json; }
if receive 0s | grep early; then
    echo "FAILED: the message came at once" >&2
    exit 1
fi
receive 60s | grep early
echo "the message came when it was due"
