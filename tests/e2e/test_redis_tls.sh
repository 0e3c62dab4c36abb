#!/bin/bash
# A Redis server behind TLS: with a certificate that counts, with others, without TLS, and away for a while.  In a build
# that has TLS.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
command -v openssl >/dev/null || skip_all "no openssl"

certificate() { # NAME OF-WHOM, as subjectAltName has it
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -keyout "$TEST_DIR/$1.key" -out "$TEST_DIR/$1.pem" \
        -addext "subjectAltName=$2" 2>"$TEST_DIR/openssl" || { sed 's/^/# /' "$TEST_DIR/openssl"; exit 1; }
}

free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# A server that shows this certificate; TLS_URI.
serve() { # CERTIFICATE [ARGUMENT…]
    TLS_PORT=$(free_port)
    redis_start --tls-port "$TLS_PORT" --tls-cert-file "$TEST_DIR/$1.pem" --tls-key-file "$TEST_DIR/$1.key" \
        --tls-ca-cert-file "$TEST_DIR/$1.pem" --tls-auth-clients no "${@:2}"
    TLS_URI=rediss://127.0.0.1:$TLS_PORT
}

two_mounts_lock() { # URI
    mount_both "$1" ttl=5
    expect flock "$MOUNT_A/lock" true
    expect touch "$MOUNT_A/lease"
    expect_not touch "$MOUNT_B/lease" 2>/dev/null
    expect rm "$MOUNT_A/lease"
    expect eventually 5 touch "$MOUNT_B/lease" 2>/dev/null
}

refused() { # WORD BACKEND: in one line
    local status=0
    new_mountpoint
    timeout 30 "$LEASEFS" -o timeout=2s "$2" "$MNT" >"$TEST_DIR/refused" 2>&1 </dev/null || status=$?
    expect_is "$status" 1 "exit status"
    expect_is "$(wc -l <"$TEST_DIR/refused")" 1 "lines"
    expect grep -qF -e "$1" "$TEST_DIR/refused"
    say "$(cat "$TEST_DIR/refused")"
}

certificate ours IP:127.0.0.1
certificate others DNS:other.example
export SSL_CERT_FILE=$TEST_DIR/ours.pem
serve ours
LOCAL_URI=$TLS_URI PLAIN_URI=$REDIS_URI
REDIS_URI=$TLS_URI
mount_two ttl=2

it "locks are taken, waited for and given back, by two mounts"
expect touch "$MOUNT_A/lease"
expect_not touch "$MOUNT_B/lease" 2>/dev/null
expect rm "$MOUNT_A/lease"
expect touch "$MOUNT_B/lease"
expect rm "$MOUNT_B/lease"
start flock "$MOUNT_A/handle" sleep 1
expect eventually 5 exists handle
expect timeout 20 flock "$MOUNT_B/handle" true

it "a hundred at once"
expect timeout 60 sh -c "for i in \$(seq 100); do flock $MOUNT_A/many sh -c 'echo x >>$TEST_DIR/many' & done; wait"
expect_is "$(wc -l <"$TEST_DIR/many")" 100

it "a server that was away is found again, by daemons in their sandbox"
expect grep -q '^sandbox: .*seccomp' "$MOUNT_A/.leasefs/status"
redis_restart
for mount in "$MOUNT_A" "$MOUNT_B"; do
    expect eventually 20 grep -q '^state: connected' "$mount/.leasefs/status"
    expect eventually 20 touch "$mount/again" 2>/dev/null # a server without its data keeps them waiting
    expect rm "$mount/again"
done

it "background: so is one that is not there when the mount begins; authorities may be in a directory"
redis_stop
mkdir "$TEST_DIR/authorities"
cp "$TEST_DIR/ours.pem" "$TEST_DIR/authorities"
openssl rehash "$TEST_DIR/authorities"
SSL_CERT_FILE=/dev/null SSL_CERT_DIR=$TEST_DIR/authorities mount_backend "$LOCAL_URI" background
expect_not grep -q '^state: connected' "$MNT/.leasefs/status"
redis_again
expect eventually 20 grep -q '^state: connected' "$MNT/.leasefs/status"

it "a certificate that nobody vouches for is refused, with the reason"
SSL_CERT_FILE=$TEST_DIR/others.pem refused 'self-signed certificate' "$LOCAL_URI"

it "so is one for another name"
serve others
SSL_CERT_FILE=$TEST_DIR/others.pem refused 'mismatch' "$TLS_URI"

it "and a server without TLS"
refused 'no connection with TLS: no answer for 2000 ms' "${PLAIN_URI/redis:/rediss:}"

it "Sentinels and their master behind TLS"
serve ours
sentinel=$(free_port)
mkdir "$TEST_DIR/sentinel"
printf '%s\n' "port 0" "tls-port $sentinel" "tls-replication yes" "tls-auth-clients no" "dir $TEST_DIR/sentinel" \
    "tls-cert-file $TEST_DIR/ours.pem" "tls-key-file $TEST_DIR/ours.key" "tls-ca-cert-file $TEST_DIR/ours.pem" \
    "sentinel monitor locks 127.0.0.1 $TLS_PORT 1" >"$TEST_DIR/sentinel/conf"
start redis-server "$TEST_DIR/sentinel/conf" --sentinel >"$TEST_DIR/sentinel/log"
answers_ping() { [ "$(redis-cli --tls --cacert "$TEST_DIR/ours.pem" -p "$sentinel" PING 2>/dev/null)" = PONG ]; }
expect eventually 20 answers_ping
two_mounts_lock "rediss+sentinel://127.0.0.1:$sentinel/locks"

it "a Cluster behind TLS"
serve ours --cluster-enabled yes --tls-cluster yes --cluster-port "$(free_port)" --cluster-config-file nodes.conf
redis_cli CLUSTER ADDSLOTSRANGE 0 16383 >/dev/null
cluster_is_up() { redis_cli CLUSTER INFO | grep -q '^cluster_state:ok'; }
expect eventually 20 cluster_is_up
two_mounts_lock "rediss+cluster://127.0.0.1:$TLS_PORT/?prefix={locks}"

finish
