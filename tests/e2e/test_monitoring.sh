#!/bin/bash
# The files for Prometheus and Grafana: mounts have every metric and label of an alert rule or a panel, and an alert
# fires when its event has happened.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
SOURCES=$(cd "$(dirname "$0")/../.." && pwd)
ALERTS=$SOURCES/share/leasefs-alerts.yml
DASHBOARD=$SOURCES/share/leasefs-dashboard.json
[ -n "$PYTHON" ] || skip_all "no python3"
"$PYTHON" -c 'import prometheus_client' 2>/dev/null || skip_all "no python3-prometheus-client"

monitoring() { "$PYTHON" "$E2E_DIR/monitoring.py" "$@" 2>&1; }

redis_start
mount_redis ttl=2
REDIS_MOUNT=$MNT
mount_backend "local:$TEST_DIR/store" ttl=2,user_content=64K,allow_other

# The causes of series that appear only when there is a reason.
dd if=/dev/zero of="$MNT/large" bs=128k count=1 2>/dev/null
setpriv --reuid 12345 --clear-groups touch "$MNT/users"
redis_pause
touch "$REDIS_MOUNT/away" 2>/dev/null
redis_resume
eventually 20 grep -q '^leasefs_connected 1' "$REDIS_MOUNT/.leasefs/metrics"

scrape() { cat "$MNT/.leasefs/metrics" >"$TEST_DIR/local.prom" && cat "$REDIS_MOUNT/.leasefs/metrics" >"$TEST_DIR/redis.prom"; }
expect_measured() { # FILE: all that it asks for is there
    local answer
    if answer=$(monitoring check "$1" "$TEST_DIR/local.prom" "$TEST_DIR/redis.prom"); then pass; else fail "$answer"; fi
}

it "every metric and label of the alert rules is in a scrape of a mount"
scrape
expect_measured "$ALERTS"
expect_between 10 "$(monitoring expressions "$ALERTS" | wc -l)" 50 "rules"

it "every metric and label of the dashboard is, and each panel has an expression, a title and a place of its own"
expect_measured "$DASHBOARD"
expect_is "$(monitoring panels "$DASHBOARD")" ok

it "what a mount tells of waits, losses, breaks, the store and quotas is asked for by both"
for metric in leasefs_wait_seconds leasefs_lost_total leasefs_broken_total leasefs_user_locks leasefs_user_content_bytes; do
    expect grep -q "$metric" "$ALERTS"
    expect grep -q "$metric" "$DASHBOARD"
done
expect grep -q 'leasefs_connected' "$DASHBOARD"

it "the check would notice a name or a label that no mount tells"
sed 's/leasefs_connected/leasefs_conected/' "$ALERTS" >"$TEST_DIR/wrong.yml"
expect_is "$(monitoring check "$TEST_DIR/wrong.yml" "$TEST_DIR/local.prom")" "*leasefs_conected*"
sed 's/{uid!=/{user!=/' "$ALERTS" >"$TEST_DIR/wrong.yml"
expect_is "$(monitoring check "$TEST_DIR/wrong.yml" "$TEST_DIR/local.prom" "$TEST_DIR/redis.prom")" "*label user*"
sed 's/result="full"/result="fool"/' "$ALERTS" >"$TEST_DIR/wrong.yml"
expect_is "$(monitoring check "$TEST_DIR/wrong.yml" "$TEST_DIR/local.prom" "$TEST_DIR/redis.prom")" "*fool*"

it "they are installed"
expect grep -qE '^dist_pkgdata_DATA \+?= .*share/leasefs-alerts.yml.* share/leasefs-dashboard.json' "$SOURCES/Makefile.am"

# --- with Prometheus itself ---

if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
    skip "Prometheus takes the alerts, the metrics and the dashboard" "no prometheus"
    finish
fi

it "promtool accepts the rules and the metrics"
expect promtool check rules "$ALERTS" >"$TEST_DIR/promtool" 2>&1
expect promtool check metrics <"$TEST_DIR/local.prom" >"$TEST_DIR/promtool" 2>&1

it "each alert fires for its event, and none while a mount is in ordinary use"
sed "s|RULES|$ALERTS|" "$E2E_DIR/alert_cases.yml" >"$TEST_DIR/cases.yml"
expect promtool test rules "$TEST_DIR/cases.yml" >"$TEST_DIR/promtool" 2>&1 || sed 's/^/# /' "$TEST_DIR/promtool"
expect_is "$(grep -c 'alertname="' "$TEST_DIR/cases.yml")" "$(grep -c 'alert:' "$ALERTS")"

it "Prometheus scrapes mounts, and the alert for a store that is away fires"
sed 's/for: 30s/for: 1s/' "$ALERTS" >"$TEST_DIR/alerts.yml"
partner web "$PYTHON" "$E2E_DIR/monitoring.py" serve "$REDIS_MOUNT/.leasefs/metrics"
PORT=$(ask web port)
cat >"$TEST_DIR/prometheus.yml" <<CONFIG
global: { scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms }
rule_files: [ "$TEST_DIR/alerts.yml" ]
scrape_configs:
  - job_name: leasefs
    static_configs: [ { targets: [ "127.0.0.1:$PORT" ] } ]
CONFIG
WEB=$((20000 + SRANDOM % 12000))
start prometheus --config.file="$TEST_DIR/prometheus.yml" --storage.tsdb.path="$TEST_DIR/tsdb" \
    --web.listen-address="127.0.0.1:$WEB" >"$TEST_DIR/prometheus.log" 2>&1
query_has() { monitoring ask "http://127.0.0.1:$WEB/api/v1/$1" | grep -q "$2"; }
expect eventually 30 query_has 'query?query=leasefs_connected' '"1"'
expect query_has 'query?query=leasefs_held' '"lease"'
queries_are_valid() { # every expression of both is one that Prometheus takes
    local expression
    while read -r expression; do
        monitoring query "http://127.0.0.1:$WEB/api/v1/query" "$expression" || return 1
    done < <(monitoring expressions "$ALERTS" && monitoring expressions "$DASHBOARD")
}
expect queries_are_valid
expect_not query_has alerts LeasefsStoreAway
touch "$REDIS_MOUNT/held" # its renewal shows that the store is away
redis_pause
expect eventually 30 grep -q '^leasefs_connected 0' "$REDIS_MOUNT/.leasefs/metrics"
expect eventually 30 query_has alerts '"alertname":"LeasefsStoreAway"[^}]*}[^}]*}[^}]*"state":"firing"'
redis_resume
expect eventually 30 query_has 'query?query=leasefs_connected' '"1"'

finish
