#!/bin/sh
# Makes a throw-away authority and a certificate for each node, once; for trying out. The
# authority's key is deleted: whoever needs another certificate makes all of them again.
#
#     certificates.sh FOLDER NODE...
set -eu
umask 077
folder=$1
shift
cd "$folder"
if [ -e complete ]; then
    exit 0
fi
new_key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
# shellcheck disable=SC2086 - these are several words
openssl req -x509 $new_key -days 3650 -subj "/CN=hourwheel trial authority" \
    -addext "basicConstraints=critical,CA:TRUE" -keyout authority.key -out authority.pem
for node in "$@"; do
    # shellcheck disable=SC2086
    openssl req $new_key -subj "/CN=$node" -keyout "$node.key" -out "$node.csr"
    printf 'subjectAltName=DNS:%s,DNS:localhost,IP:127.0.0.1\n' "$node" >"$node.ext"
    openssl x509 -req -in "$node.csr" -days 3650 -CA authority.pem -CAkey authority.key \
        -CAcreateserial -extfile "$node.ext" -out "$node.pem"
    rm "$node.csr" "$node.ext"
done
rm -f authority.key authority.srl
: >complete
