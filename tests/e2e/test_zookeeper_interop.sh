#!/bin/bash
# Curator's and kazoo's recipes beside two mounts of one ZooKeeper server: each excludes the others, waits for them, and
# goes on when they have released or died.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"

nodes() { [ "$(ask K "nodes $1" | wc -w)" -eq "$2" ]; } # PATH COUNT

curator_compile
zookeeper_start
zookeeper_root interop
mount_two ttl=10
mount_backend "$ZOOKEEPER_URI" ttl=2
MOUNT_C=$MNT MNT=$MOUNT_A
actor A
on "$MOUNT_B" actor B
on "$MOUNT_C" actor C
curator_start J
kazoo_start K

it "Curator's mutex excludes touch and flock, and flock waits for it"
says J "lock m" held
expect_not touch "$MOUNT_A/m"
expect_not flock -n "$MOUNT_B/m" true
says A 'm = op("m", "RDWR|CREAT"); flock(m, "EX|NB")' EAGAIN
tell A 'flock(m, "EX")'
expect eventually 10 waiters m 1
says J release ok
expect_is "$(hear A)" ok

it "flock and touch exclude Curator's mutex, and it waits for them"
says J "try m" refused
tell J "lock m"
expect constantly 150 quiet J
says A 'flock(m, "UN")' ok
expect_is "$(hear J)" held
says J release ok
expect touch "$MOUNT_B/m"
says J "try m" refused
tell J "lock m"
expect eventually 10 waiters m 1
expect rm "$MOUNT_B/m"
expect_is "$(hear J)" held
expect_not touch "$MOUNT_A/m"
says J release ok

it "in line they are first come, first served, and each has a greater token"
says B 'm = op("m", "RDWR|CREAT"); flock(m, "EX")' ok
before=$(attribute m token)
tell J "lock m"
expect eventually 10 waiters m 1
tell A 'flock(m, "EX")'
expect eventually 10 waiters m 2
says B 'flock(m, "UN")' ok
expect_is "$(hear J)" held
expect constantly 150 quiet A
says J release ok
expect_is "$(hear A)" ok
expect test "$(attribute m token)" -gt "$before"
says A 'flock(m, "UN")' ok

it "a queue whose sequence files are named lock- and Curator's mutex of the directory exclude each other"
expect mkdir "$MOUNT_A/q"
says A 'q = op("q/lock-", "RDWR|CREAT"); flock(q, "EX")' ok
says J "try q" refused
tell J "lock q"
expect eventually 10 nodes q 2
says B 'q = op("q/lock-", "RDWR|CREAT"); flock(q, "EX|NB")' EAGAIN
tell B 'flock(q, "EX")'
says A 'close(q)' ok
expect_is "$(hear J)" held
expect constantly 150 quiet B
says J release ok
expect_is "$(hear B)" ok
says B 'close(q)' ok

it "a queue of a width and Curator's semaphore of as many leases count each other"
expect mkdir "$MOUNT_A/s" "$MOUNT_A/s/leases"
expect setfattr -n user.lease.width -v 2 "$MOUNT_A/s/leases"
says J "semaphore s 2" held
says A 's = op("s/leases/lease-", "RDWR|CREAT"); flock(s, "EX|NB")' ok
says J "trysemaphore s 2" refused
says B 's = op("s/leases/lease-", "RDWR|CREAT"); flock(s, "EX|NB")' EAGAIN
says B 'close(s)' ok
tell J "semaphore s 2"
expect constantly 150 quiet J
says A 'close(s)' ok
expect_is "$(hear J)" held
says J release ok

it "who waits beside Curator's semaphore holds its mutex meanwhile, as Curator does"
says A 's = op("s/leases/lease-", "RDWR|CREAT"); flock(s, "EX|NB")' ok
says B 'l = op("s/locks", "RDWR|CREAT"); flock(l, "EX")' ok
says B 's = op("s/leases/lease-", "RDWR|CREAT"); flock(s, "EX|NB")' EAGAIN
tell B 'flock(s, "EX"); flock(l, "UN")'
tell J "semaphore s 2"
expect constantly 150 quiet J
says A 'close(s)' ok
expect_is "$(hear B)" ok
expect constantly 150 quiet J
says B 'close(s)' ok
expect_is "$(hear J)" held
says J release ok
says J release ok

it "kazoo's Lock that is told of -lock- and a queue exclude each other"
says A 'q = op("q/lock-", "RDWR|CREAT"); flock(q, "EX")' ok
says K "try q lock-" refused
tell K "lock q lock-"
expect constantly 150 quiet K
says A 'close(q)' ok
expect_is "$(hear K)" held
says A 'q = op("q/lock-", "RDWR|CREAT"); flock(q, "EX|NB")' EAGAIN
tell A 'flock(q, "EX")'
says K release ok
expect_is "$(hear A)" ok
says A 'close(q)' ok

it "what a killed process held with flock another's client gets at once"
actor D
says D 'm = op("m", "RDWR|CREAT"); flock(m, "EX")' ok
tell J "lock m"
expect eventually 10 waiters m 1
end_actor D
expect_is "$(hear J 5)" held
says J release ok

it "what was held by clients that are killed is free after their session, and not before"
curator_start X
kazoo_start Y
says X "lock x-mutex" held
says X "semaphore s 2" held
says X "semaphore s 2" held
says Y "lock y-lock -lock-" held
end_actor X
end_actor Y
expect_not touch "$MOUNT_A/x-mutex"
expect_not touch "$MOUNT_A/y-lock"
says A 's = op("s/leases/lease-", "RDWR|CREAT"); flock(s, "EX|NB")' EAGAIN
expect flock -w 20 "$MOUNT_A/x-mutex" true
expect flock -w 20 "$MOUNT_B/y-lock" true
says A 'flock(s, "EX")' ok
says A 'close(s)' ok

it "what a mount held whose daemon is killed its clients get after its session, and not before"
expect touch "$MOUNT_C/c-lease"
says C 'f = op("c-flock", "RDWR|CREAT"); flock(f, "EX")' ok
says C 'q = op("q/lock-", "RDWR|CREAT"); flock(q, "EX")' ok
says C 's = op("s/leases/lease-", "RDWR|CREAT"); flock(s, "EX")' ok
says C 't = op("s/leases/lease-", "RDWR|CREAT"); flock(t, "EX")' ok
crash "$MOUNT_C"
for refused in "try c-lease" "try c-flock" "try q" "trysemaphore s 2"; do says J "$refused" refused; done
says K "try c-flock -lock-" refused
for held in "lock c-lease" "lock q" "semaphore s 2"; do says J "$held" held; done
says K "lock c-flock -lock-" held
for _ in 1 2 3; do says J release ok; done
says K release ok

it "with layout=kazoo its Lock, WriteLock and ReadLock, and touch, flock and flock -s exclude each other"
mount_backend "$ZOOKEEPER_URI" ttl=2,layout=kazoo
actor E
for kind in lock write read; do
    says E "f = op('k-$kind', 'RDWR|CREAT'); flock(f, 'EX')" ok
    tell K "$kind k-$kind"
    expect eventually 10 waiters "k-$kind" 1
    expect constantly 150 quiet K
    says E 'flock(f, "UN")' ok
    expect_is "$(hear K)" held
    expect_not touch "$MNT/k-$kind"
    says E 'flock(f, "EX|NB")' EAGAIN
    tell E 'flock(f, "EX")'
    expect eventually 10 waiters "k-$kind" 1
    says K release ok
    expect_is "$(hear E)" ok
    says E 'flock(f, "SH")' ok
    says K "try$kind k-$kind" refused
    says E 'close(f)' ok
    expect touch "$MNT/k-$kind"
    says K "try$kind k-$kind" refused
    expect rm "$MNT/k-$kind"
    says K "try$kind k-$kind" held
    says K release ok
done
finish
