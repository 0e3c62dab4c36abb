# shellcheck shell=bash disable=SC2154 # sourced, behind lib.sh
# What two mounts of one store show each other: two_mounts GUARANTEE, with an actor A on $MOUNT_A, and B on $MOUNT_B.

two_mounts() {
    it "a lease is refused on the other mount, shown there, and free after rm"
    expect touch "$MOUNT_A/lease"
    expect_not touch "$MOUNT_B/lease"
    expect_not rm "$MOUNT_B/lease"
    expect_is "$(ls "$MOUNT_B")" lease
    expect_re "$(on "$MOUNT_B" attribute lease token)" '^[1-9][0-9]{15}$'
    expect_is "$(on "$MOUNT_B" attribute lease guarantee)" "$1"
    says A 'acquire("text", "some content")' ok
    expect_is "$(cat "$MOUNT_B/text")" "some content"
    expect rm "$MOUNT_A/lease"
    expect_not test -e "$MOUNT_B/lease"
    expect touch "$MOUNT_B/lease"
    expect rm "$MOUNT_B/lease"

    it "flock waits for the other mount, and has a greater token then"
    says A 'f = op("handle", "RDWR|CREAT"); flock(f, "EX")' ok
    before=$(attribute handle token)
    says B 'f = op("handle", "RDWR|CREAT"); flock(f, "EX|NB")' EAGAIN
    tell B 'flock(f, "EX")'
    expect eventually 10 waiters handle 1
    says A 'flock(f, "UN")' ok
    expect_is "$(hear B)" ok
    expect test "$(attribute handle token)" -gt "$before"
    says A 'flock(f, "SH|NB")' EAGAIN
    says B 'flock(f, "SH")' ok
    says A 'flock(f, "SH|NB")' ok
    says B 'flock(f, "EX|NB")' EAGAIN
    says A 'flock(f, "UN")' ok
    says B 'flock(f, "UN")' ok
}
