# shellcheck shell=sh
# checks.sh: what the checks of the sources share.  Sourced by tests/check_*.sh; a result is a line of TAP.
failed=0
number=0

# expect_none COMPLAINTS DESCRIPTION: a check that passes if there are no complaints.
expect_none() {
    number=$((number + 1))
    if [ -z "$1" ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        echo "$1" | sed 's/^/# /'
        failed=1
    fi
}

end_checks() {
    echo "1..$number"
    exit "$failed"
}
