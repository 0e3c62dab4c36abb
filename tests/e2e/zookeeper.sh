# shellcheck shell=bash
# zookeeper.sh: a ZooKeeper server for the tests on real mounts, and two mounts of it.  Sourced after lib.sh:
#
#     zookeeper_start
#     mount_two ttl=10           # MOUNT_A and MOUNT_B; MNT is MOUNT_A
#
# The server is this test's own, on a port of 127.0.0.1 and in a directory of its own, and ends with it.  It sets
# of it: ZOOKEEPER_PORT ZOOKEEPER_PID ZOOKEEPER_URI (each zookeeper_root makes that another root).

zookeeper_jar=/usr/share/java/zookeeper.jar
command -v java >/dev/null || skip_all "no java (package default-jre-headless)"
[ -r "$zookeeper_jar" ] || skip_all "no $zookeeper_jar (package libzookeeper-java)"
"$PYTHON" -c 'import kazoo' 2>/dev/null || skip_all "no kazoo (package python3-kazoo)"

zookeeper_says() { # WORD
    local said=
    { exec 7<>"/dev/tcp/127.0.0.1/$ZOOKEEPER_PORT"; } 2>/dev/null || return 1
    echo "$1" >&7
    read -r -t 5 -u 7 -N 2 said
    exec 7<&-
    [ "$said" = rw ]
}
zookeeper_up_or_ended() { gone "$ZOOKEEPER_PID" || zookeeper_says isro; }

# The one that was started before, with its port and what it has on disk, or the first.
zookeeper_launch() {
    setpriv --pdeathsig KILL java -Xmx160m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$zookeeper_jar" \
        org.apache.zookeeper.server.ZooKeeperServerMain "$TEST_DIR/zookeeper.cfg" \
        </dev/null >"$TEST_DIR/zookeeper.log" 2>&1 &
    ZOOKEEPER_PID=$!
    started+=("$ZOOKEEPER_PID")
    eventually 60 zookeeper_up_or_ended && ! gone "$ZOOKEEPER_PID"
}

zookeeper_start() {
    local tries
    mkdir "$TEST_DIR/zookeeper"
    for tries in {1..20}; do
        ZOOKEEPER_PORT=$((20000 + SRANDOM % 12000)) # below those that the kernel gives to clients
        printf '%s\n' tickTime=500 "dataDir=$TEST_DIR/zookeeper" "clientPort=$ZOOKEEPER_PORT" \
            clientPortAddress=127.0.0.1 maxClientCnxns=0 maxSessionTimeout=120000 admin.enableServer=false enforceQuota=true \
            4lw.commands.whitelist=isro >"$TEST_DIR/zookeeper.cfg"
        zookeeper_launch && return
    done
    say "the ZooKeeper server did not come up after $tries tries:"
    sed 's/^/# /' "$TEST_DIR/zookeeper.log"
    exit 1
}

zookeeper_root() { ZOOKEEPER_ROOT=/$1 ZOOKEEPER_URI=zookeeper://127.0.0.1:$ZOOKEEPER_PORT/$1; }

mount_two() { mount_both "$ZOOKEEPER_URI" "${1:-}"; } # [OPTIONS]

# zookeeper_does PYTHON: with a client `c`, whose root is that of the mounts; what it prints.
zookeeper_does() {
    "$PYTHON" - "127.0.0.1:$ZOOKEEPER_PORT$ZOOKEEPER_ROOT" "$1" <<'END'
import logging, sys
from kazoo.client import KazooClient
from kazoo.security import make_acl
logging.disable(logging.CRITICAL)
c = KazooClient(hosts=sys.argv[1], timeout=10)
c.start(timeout=30)
exec(sys.argv[2])
c.stop()
END
}

# kazoo_start NAME: a partner, see kazoo_client.py.
kazoo_start() {
    partner "$1" "$PYTHON" "$E2E_DIR/kazoo_client.py" "127.0.0.1:$ZOOKEEPER_PORT" "$ZOOKEEPER_ROOT"
}

# Without a JDK: a JRE has the compiler's classes, only not the command javac.
curator_compile() {
    curator_jar=/usr/share/java/curator-recipes.jar
    [ -r "$curator_jar" ] || skip_all "no $curator_jar (package libcurator-recipes-java)"
    java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -m jdk.compiler/com.sun.tools.javac.Main -cp "$curator_jar" -d "$TEST_DIR" \
        "$E2E_DIR/CuratorClient.java" || skip_all "no Java compiler"
}

# curator_start NAME: a partner, see CuratorClient.java.
curator_start() {
    partner "$1" java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$curator_jar:$TEST_DIR" CuratorClient \
        "127.0.0.1:$ZOOKEEPER_PORT$ZOOKEEPER_ROOT"
}
