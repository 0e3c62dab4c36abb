# shellcheck shell=bash
# system.sh: what the scripts share that run on a booted system: each line goes to the console after "@@ ".  Sourced, by
# one that systemd runs there (see install_bootable in release.sh).
exec > >(sed -u 's/^/@@ /' >/dev/console) 2>&1
# systemd's services have neither
export HOME=/root LEASEFS=/usr/bin/leasefs E2E_LIMIT=9000 E2E_SLACK=5000 top_builddir=/root/leasefs top_srcdir=/root/leasefs
# shellcheck source=../e2e/lib.sh
. /root/leasefs/tests/e2e/lib.sh

run_test() { # NAME
    it "tests/e2e/test_$1.sh, here"
    if E2E_LIMIT=1500 LC_ALL=C bash "/root/leasefs/tests/e2e/test_$1.sh" >"$TEST_DIR/said" 2>&1 </dev/null; then
        pass
        say "$(grep -c '^ok' "$TEST_DIR/said") cases passed, $(grep -c '^ok.*# SKIP' "$TEST_DIR/said") skipped"
    else
        fail "status $?: $(grep -c '^ok' "$TEST_DIR/said") cases passed, $(grep -c '^not ok' "$TEST_DIR/said") failed"
        grep -B6 -E '^(not ok|Bail)' "$TEST_DIR/said" | sed 's/^/# /'
    fi
    grep -E '^(ok .*|1\.\.0 )# SKIP' "$TEST_DIR/said" | sed 's/^/# /'
}

end_system() { # reboot|poweroff
    end_case
    printf '1..%d\ndone\n' "$cases"
    sleep 1 # for the console
    systemctl --no-block "$1"
    # shellcheck disable=SC2034 # lib.sh reads it
    finished=yes
    exit
}
