#!/bin/bash
# versions.sh: an older and this version on one server.  It builds an earlier revision, and runs the tests of two mounts
# with one mount of each version, both ways round, on Redis, several Redis servers, ZooKeeper and PostgreSQL.
#
#   make check-versions       as root; takes some minutes for each revision
#
# Environment: VERSIONS_BEFORE, revisions (default: the newest tag; before there is one, see release.sh); VERSIONS_TESTS,
# which tests; LEASEFS and top_builddir, of this version.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"

TESTS=${VERSIONS_TESTS:-hosts redlock zookeeper postgresql history_redis history_postgresql}

build() { # REVISION: $SCRATCH/REVISION/build/leasefs
    say "building $1 ($(git -C "$SOURCE" log -1 --format='%cd, %s' --date=iso "$1"))"
    copy_sources_of "$1" "$SCRATCH/$1"
    mkdir "$SCRATCH/$1/build"
    (
        cd "$SCRATCH/$1" || exit
        quietly "$SCRATCH/build.log" autoreconf -fi
        cd build || exit
        quietly "$SCRATCH/build.log" ../configure ${CC:+CC="$CC"}
        quietly "$SCRATCH/build.log" make -j2 leasefs
    )
}

pair() { # NAME FIRST OTHER: the tests, with this program at the first mount, and at the others by turns
    local test status
    for test in $TESTS; do
        status=0
        LEASEFS=$2 LEASEFS_OTHER=$3 top_srcdir=$SOURCE E2E_LIMIT=${E2E_LIMIT:-600} bash "$SOURCE/tests/e2e/test_$test.sh" \
            >"$SCRATCH/said" 2>&1 </dev/null || status=$?
        say "$1: test_$test: $(grep -c '^ok' "$SCRATCH/said") passed, $(grep -c '^not ok' "$SCRATCH/said") failed, status $status"
        [ "$status" = 0 ] && grep -q '^ok' "$SCRATCH/said" || { failed=1; grep -B6 -E '^(not ok|Bail)' "$SCRATCH/said" || true; }
    done
}

this=$(readlink -f "${LEASEFS:-${top_builddir:-$SOURCE}/leasefs}")
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/leasefs-release.XXXXXX")
trap leave EXIT
failed=0
for revision in ${VERSIONS_BEFORE:-$(before)}; do
    build "$revision"
    pair "$revision, then this" "$SCRATCH/$revision/build/leasefs" "$this"
    pair "this, then $revision" "$this" "$SCRATCH/$revision/build/leasefs"
done
[ "$failed" = 0 ] || die "what failed is above"
say "versions.sh: all is in order"
