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
# qemu-user has no seccomp.
EMULATED_AWAY="tests/unit/check_sandbox"
STORED="tests/unit/check_journal tests/unit/check_journal_compact tests/unit/check_local tests/contract/contract_local"

libraries() { # ARCHITECTURE
    printf "%s:$1\n" libfuse3-dev libglib2.0-dev libev-dev libhiredis-dev libssl-dev libcap-ng-dev libseccomp-dev libpq-dev \
        libzookeeper-st-dev check
}

try() { # ARCHITECTURE
    local host=${TRIPLET[$1]} tests="" test log=$SCRATCH/$1.log
    say "$1: libraries and the program"
    in_root dpkg --add-architecture "$1"
    in_root apt-get -qq update
    # shellcheck disable=SC2046 # several words
    quietly "$log" in_root apt-get -qq install -y --no-install-recommends "gcc-$host" $(libraries "$1")
    mkdir "$ROOT/src/$1"
    quietly "$log" in_root sh -c "cd /src/$1 && PKG_CONFIG=$host-pkg-config ../configure --host=$host --enable-werror && make -j2 all"
    in_root sh -c "cd /src/$1 && ${EMULATOR[$1]} ./leasefs --version"
    case $1 in
    s390x) tests=$STORED ;;
    *) for test in $(make_variable "$1" plain_programs); do [[ " $EMULATED_AWAY " = *" $test "* ]] || tests+=" $test"; done ;;
    esac
    say "$1: the tests"
    in_root sh -c "cd /src/$1 && make -j2 -k check-plain plain_programs='$tests' LOG_COMPILER=${EMULATOR[$1]}" >>"$log" 2>&1 || {
        grep -E '^(FAIL|ERROR)' "$log"
        die "what failed is above"
    }
    grep -E '^# (TOTAL|PASS|SKIP|FAIL|ERROR)' "$log"
}
make_variable() { in_root sh -c "cd /src/$1 && printf 'show:\n\t@echo \$($2)\n' | make -s -f Makefile -f - show"; }

inside() {
    make_root make autoconf automake pkg-config gawk libc6-dev qemu-user-static
    cp -a "$SCRATCH/leasefs" "$ROOT/src"
    quietly "$SCRATCH/build.log" in_root sh -c 'cd /src && autoreconf -fi'
    for arch in $ARCHES; do try "$arch"; done
}

release debootstrap unshare -- "$@"
