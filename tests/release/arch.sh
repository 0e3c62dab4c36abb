#!/bin/bash
# arch.sh: the tests that need no mount and no server, on another processor: cross-built, and run by qemu-user.
#
#   make check-arch           as root, with a network; takes some minutes for each processor
#
# On s390x, whose byte order is the other one, only those of what is stored run.
# Environment: ARCHES (arm64 s390x), and see release.sh.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"

ARCHES=${ARCHES:-arm64 s390x}
declare -A TRIPLET=([arm64]=aarch64-linux-gnu [s390x]=s390x-linux-gnu) EMULATOR=([arm64]=qemu-aarch64-static [s390x]=qemu-s390x-static)
# These cases fail under qemu-user only. It has no seccomp; each process has one more thread; the command of each is qemu.
# In this system / is not a mount point.
KNOWN='check_(owner|sandbox|leaserun|journal_faults|journal_map|openers)[. ]|attributes_of_the_lease_are_shown|'
KNOWN+='would_wait_for_itself_is_refused|nobody_inherits_after_the_first_second|'
KNOWN+='handle_of_an_earlier_leases_child_does_not_keep_the_next|a_lease_among_very_many_takes_few_bytes|'
KNOWN+='no_thread_runs_before_it_is_started'
STORED="tests/unit/check_journal tests/unit/check_journal_compact tests/unit/check_local tests/contract/contract_local"

libraries() { # ARCHITECTURE
    printf "%s:$1\n" libfuse3-dev libglib2.0-dev libev-dev libhiredis-dev libssl-dev libcap-ng-dev libseccomp-dev libpq-dev \
        libzookeeper-st-dev check
}

try() { # ARCHITECTURE
    local host=${TRIPLET[$1]} tests="" failed log=$SCRATCH/$1.log
    say "$1: libraries and the program"
    in_root dpkg --add-architecture "$1"
    in_root apt-get -qq update
    # shellcheck disable=SC2046 # several words
    quietly "$log" in_root apt-get -qq install -y --no-install-recommends "gcc-$host" $(libraries "$1")
    mkdir "$ROOT/src/$1"
    quietly "$log" in_root sh -c "cd /src/$1 && PKG_CONFIG=$host-pkg-config ../configure --host=$host --enable-werror && make -j2 all"
    in_root sh -c "cd /src/$1 && ${EMULATOR[$1]} ./leasefs --version"
    [ "$1" != s390x ] || tests="plain_programs='$STORED'"
    say "$1: the tests"
    in_root sh -c "cd /src/$1 && CK_TIMEOUT_MULTIPLIER=20 make -j2 -k check-plain $tests LOG_COMPILER=${EMULATOR[$1]}" >>"$log" 2>&1 || true
    failed=$(grep -rhE '^(FAIL|ERROR): ' "$ROOT/src/$1/tests" --include='*.log' | grep -vE "$KNOWN|exited with status 1$" || true)
    grep -rhE '^:test-result: ' "$ROOT/src/$1/tests" --include='*.trs' | sort | cut -d ' ' -f 2 | uniq -c
    [ -z "$failed" ] || die "$failed"
    grep -rqE '^PASS: .*journal_of_a_machine_with_another_byte_order' "$ROOT/src/$1/tests" --include='*.log' || die "the tests did not run"
}

inside() {
    make_root make autoconf automake pkg-config gawk libc6-dev qemu-user-static
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$ROOT/etc/hosts"
    cp -a "$SCRATCH/leasefs" "$ROOT/src"
    quietly "$SCRATCH/build.log" in_root sh -c 'cd /src && autoreconf -fi'
    for arch in $ARCHES; do try "$arch"; done
}

release debootstrap unshare -- "$@"
