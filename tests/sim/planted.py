#!/usr/bin/env python3
"""planted: bugs put on purpose into a copy of one source at a time, and how many worlds it takes to catch each.

Some no world can show: another test program must catch them.

    planted.py [--seeds N] [--only WORD] [--bugs N,…] [--quick]
    planted.py --check

from the build directory; top_srcdir is taken from the environment.  --quick: those that few worlds catch.
--check: prints the bugs whose text does not stand in its source once, and plants nothing.

A bug is caught when a world breaks a rule that the worlds of the sound program, of the same seeds, do not break.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
JOBS = int(os.environ.get("SIM_JOBS", "2"))
STORES = {"m": "memory", "l": "local", "s": "sync", "r": "redis", "z": "zookeeper", "w": "sentinel", "q": "redlock"}

# Store (+: few worlds catch it), file, what stands there (once), what is put there.  In place of a store: the test program
# that must catch it, and the test case of it, or the script that runs the program.
BUGS = r"""
m+|backend/lockspace/grant.c|if (t->head.fence < q->granted && (t->entry->type != ENTRY_SEQUENCE|if (false && (t->entry->type != ENTRY_SEQUENCE
m|backend/lockspace/grant.c|if (lost && delay > 0 && t->head.held|if (false && delay > 0 && t->head.held
m+|backend/lockspace/grant.c|*blocker = lockspace_blocker(space, q->lock, t);|*blocker = q->lock->type == ENTRY_DIRECTORY && lockspace_position(t) <= q->lock->directory->attributes.width ? NULL : lockspace_blocker(space, q->lock, t);
m+|backend/lockspace/grant.c|*blocker = lockspace_blocker(space, q->lock, t);|*blocker = q->lock->type != ENTRY_DIRECTORY && lockspace_shared(t) ? NULL : lockspace_blocker(space, q->lock, t);
m+|fs/hold/hold.c|        hold_spend_handles(fs, hold, why != BACKEND_RELEASED \\|\\| ticket->guarded);|        hold_spend_handles(fs, hold, false);
m+|backend/deadlock.c|        s->found = true;|        s->found = false;
m|fs/ops/lock.c|    if (lost && hold) {|    if ((lost \\|\\| result == BACKEND_BUSY) && hold) {
m+|backend/lockspace/queue.c|                if (!k->head.held && queue_outranks(space, lock, t, k) && queue_outranks(space, lock, k, t)) {|                if (false) {
m+|backend/lockspace/grant.c|skiplist_length(&q->waiters) == 0 \|\||skiplist_length(&q->waiters) <= 1 \|\|
m+|backend/lockspace/grant.c|    lockspace_expel(space, now, t, why);\n    lockspace_grant_waiters(space, now, lock, start, end);|    lockspace_expel(space, now, t, why);\n    (void)lock, (void)start, (void)end;
m+|backend/lockspace/lockspace.c|    space->next_fence++;\n|
m+|backend/lockspace/lockspace.c|fence ? BACKEND_RELEASED : BACKEND_BROKEN|fence ? BACKEND_BROKEN : BACKEND_BROKEN
m+|backend/lockspace/lockspace.c|(!fence \\|\\| t->head.fence == fence)|(!fence \\|\\| t->head.fence >= fence)
m+|backend/clock.c|    return clock_milliseconds(CLOCK_BOOTTIME);|    return clock_milliseconds(CLOCK_REALTIME);
m+|backend/local/loop.c|    return ticket == l->reporting_end \\|\\| (event && event->flags & EVENT_ENDED);|    return false;
m+|fs/hold/heirs.c|    if (who && who == hold->owner) {\n        return true; /* as in hold_is_owned_by */|    if (who) {\n        return true;
m+|fs/hold/heirs.c|(fs->options->owner_user \\|\\| !lives) && uid == hold->uid|uid == hold->uid
m|fs/hold/heirs.c|    return (lives && who && hold_is_descendant(hold, who, uid, owner)) \\|\\||    return
m+|fs/hold/heirs.c|    return owner && (owner_alive(owner) \\|\\| hold_can_pass_on(hold, true) \\|\\| hold_orphans(hold, true));|    return owner != NULL;
m+|fs/hold/heirs.c|    return owner && (owner_alive(owner) \\|\\| hold_can_pass_on(hold, true) \\|\\| hold_orphans(hold, true));|    return false;
m+|fs/hold/hold.c|        backend_release(fs->backend, ticket, done, arg);|        if (done) {\n            done(arg, BACKEND_OK);\n        }
m+|fs/hold/hold.c|    if (node->record->visible) {\n        node->record->visible = false;|    if (false) {\n        node->record->visible = false;
m+|fs/ops/file.c|    h->record->closing = !h->record->locking && !h->record->refused;|    h->record->closing = !h->record->locking;
m+|fs/ops/file.c|    h->record->closing = !h->record->locking && !h->record->refused;|    h->record->closing = !h->record->refused;
m+|fs/ops/file.c|    handle_release_lock_owner(r, r->file.lock_owner, file_flush_unlocked);|    file_flush_unlocked(r, BACKEND_OK);
m+|fs/ops/file.c|    if (matters && !exits && file_is_opener(h, r)) {|    if (matters && file_is_opener(h, r)) {
m+|fs/ops/file.c|    if (matters && !exits && file_is_opener(h, r)) {|    if (matters && !exits) {
m|fs/ops/content.c|    return hold_find_first(r->node) \\|\\| hold_find_first(tree_current_node(r->fs->tree, r->node));|    return hold_find_first(r->node);
m+|fs/hold/rights.c|    if (uid == rights->uid) {|    if (true) {
m+|fs/kernel/request.c|        } else if (r->queue) {\n            request_unpark(r);|        } else if (false) {\n            request_unpark(r);
r|fs/kernel/request.c|    while ((r = TAILQ_FIRST(&fs->sleeping)) && r->wake <= now && clock_now() - now < REQUEST_WAKE_LIMIT) {|    while ((r = TAILQ_FIRST(&fs->sleeping)) && r->wake + 60000 <= now && clock_now() - now < REQUEST_WAKE_LIMIT) {
l+|backend/local/loop.c|    if (local_is_recorded(l, ticket) && !ticket->guarded) {\n        local_store_put_end(l->store, ticket->fence, ticket->kind);\n    }|    (void)l;
l+|backend/local/replay.c|(handle_lock && claim.wait && !claim.sequence)|(handle_lock && (claim.wait \\|\\| lease->kind == BACKEND_FCNTL))
l+|fs/hold/verdict.c|    if (found->verdict == OPENERS_NOBODY) {|    if (found->verdict == OPENERS_NOBODY \\|\\| (survivor->hold->owner && !owner_alive(survivor->hold->owner))) {
l+|fs/hold/verdict.c|    if (found->verdict == OPENERS_NOBODY) {|    if (found->verdict == OPENERS_NOBODY \\|\\| (found->count == 1 && found->processes[0].unseen)) {
l+|backend/journal/file.c|        if (n < 0 && errno == EINTR) {\n            continue;\n        }\n        if (n < 0) {\n            return -errno;\n        }\n        data += n;\n        length -= (size_t)n;|        if (n < 0) {\n            return -errno;\n        }\n        return 0;
tests/unit/check_journal_faults:writes|backend/journal/file.c|    file->chain = file->written_chain;\n    file->sequence = file->written_sequence;\n    if (file->map.base|    if (file->map.base
l|backend/journal/file.c|    bool lost = mark->rebooted && bad >= mark->synced;|    bool lost = false;
l|backend/journal/file.c|        file->size = bad;\n        return journal_file_make_room(|        return journal_file_make_room(
m|backend/lockspace/grant.c|    lockspace_start_term(t, now, delay, 0);|    lockspace_start_term(t, now, delay / 2, 0);
r|backend/remote/text.c|    return sent + ttl - (ttl / 100 + 2);|    return sent + 2 * ttl;
r|backend/redis/script/uncontended_release.lua|has:sub(1, #UNCONTENDED + 32) == UNCONTENDED .. ticket|has:sub(1, #UNCONTENDED) == UNCONTENDED
r|backend/redis/script/uncontended_release.lua|  call('DEL', KEYS[1])\n|
r|backend/redis/script/uncontended_acquire.lua|  if there <= 1 and made and|  if made and
r|backend/redis/uncontended.c|    return t->head.mode == BACKEND_EXCLUSIVE && !t->lock->sequence|    return !t->lock->sequence
r|backend/redis/script/renew.lua|call('ZADD', TERM, number_text(now + left), id)|call('ZADD', TERM, number_text(now), id)
r|backend/redis/script/renew.lua|    call('PEXPIRE', L, number_text(left + t.d))|    call('PEXPIRE', L, number_text(1))
r|backend/redis/script/set.lua|  set_meta(id, t, a.meta)|  set_meta(id, t, nil)
r|backend/redis/script/uncontended_acquire.lua|('00000' .. clock[2]):sub(-6)|'000000'
r|backend/redis/script/uncontended_renew_many.lua|call('PEXPIREAT', KEYS[i], delay == '0' and till or|call('PEXPIREAT', KEYS[i], delay == '0' and string.format('%.0f', now) or
z|backend/zookeeper/session.c|z->validity = timeout / 2 - MIN(timeout / 8, ZOOKEEPER_MARGIN);|z->validity = 4 * timeout;
z|backend/zookeeper/batch.c|    } else if (batch->lost) {\n        batch->was_sent = true;|    } else if (batch->lost) {\n        batch->was_sent = false;
z|backend/zookeeper/rank.c|        bool excludes = !data.ours \\|\\| (data.mode == BACKEND_EXCLUSIVE && !data.upgrading);|        bool excludes = !data.ours;
z|backend/zookeeper/rank.c|before < change->width)) {|before <= change->width)) {
z|backend/zookeeper/rank.c|    if (freed \\|\\| node->blocker_changed) {|    if (false) {
z|backend/zookeeper/update.c|        batch_remove_node(batch, node, change->against_will && node->kind != BACKEND_PROVISIONAL);|        batch_exists(batch, node->path);
z|backend/zookeeper/revoke.c|    if (revoke_of(batch)->chosen) {\n        revoke_delete(batch);\n        return;\n    }|
z|backend/zookeeper/session.c|        remote_on_event(&z->remote, held->pdata[i], REMOTE_ENDED, BACKEND_LOST);\n|
z|backend/zookeeper/batch.c|    if (node->marked) {|    if (false) {
s|backend/local/loop.c|    if (!sequence \\|\\| local_store_synced(l->store) >= sequence) {\n        done(arg, result, ticket, NULL);|    if (true) {\n        done(arg, result, ticket, NULL);
w|backend/redis/conn/request.c|    return conn->options.wait > 0 && request->script|    return false && request->script
w|backend/remote/epoch.c|    if (closed && !e->closed_since && confirmed) {|    (void)confirmed;\n    if (closed && !e->closed_since) {
q|backend/redlock/vote.c|    return servers / 2 + 1;|    return servers / 2;
q|backend/redlock/node.c|    return node->lasting ? 0 : redlock_node_hold_off(clock_now(), node->born, term);|    (void)term;\n    return 0;
tests/contract/contract_redlock:two mounts|backend/redlock/acquire.c|    remote_make_id(flow->id);|    g_strlcpy(flow->id, t->id, sizeof flow->id);
r|backend/redis/script/uncontended_renew_many.lua|value and find(value, tickets[i], AT - 32, true) == AT - 32 and find|value and find
z|backend/zookeeper/session.c|z->ready &&\n               clock_now() - z->heartbeat_sent > z->validity / 2|false && z->ready
q|backend/redlock/script/hold.lua|elseif give and last_number() <= tonumber(number) then|elseif give then
m+|backend/lockspace/grant.c|    if (guard == 0) {|    if (true) {
r+|backend/redis/script/revoke.lua|  if left > 0 then|  if false then
tests/unit/check_redis_grace:away|backend/remote/epoch.c|    int64_t longest = e->own_term;|    int64_t longest = 0;
r|backend/redis/script/release.lua|grant()\nfinish()\nreturn found|finish()\nreturn found
tests/unit/check_redis_grace:grace|backend/redis/script/enter.lua|  closes = not same_life or state|  closes = state
r|backend/remote/update.c|    t->due = renewals[i].due > 0 ? now + renewals[i].due : CLOCK_NEVER;|    t->due = CLOCK_NEVER;
r|backend/redis/script/common.lua|  if closed and not blocker then return '' end|  if false then return '' end
leasefs:tests/e2e/test_restart.sh|fs/hold/update.c|    if (hold->inherited) {\n        hold_store(fs, hold);|    if (false) {\n        hold_store(fs, hold);
tests/message/check_survive:survive|fs/hold/resume.c|            return process->uid == hold->uid \\|\\| process->uid == 0 \\|\\| who == hold->owner \\|\\| opened;\n        }\n    }\n    return false;|            (void)opened;\n        }\n    }\n    return true;
tests/message/check_survive:survive|fs/hold/resume.c|    } else if (!survivor) {\n        request_reply(r, -EBUSY);|    } else if (false) {\n        request_reply(r, -EBUSY);
tests/message/check_survive:survive|fs/hold/resume.c|hold->ticket->fence == r->resume.token|hold->ticket->fence >= r->resume.token
tests/contract/contract_redis:faults|backend/remote/background.c|    request->done = NULL;\n    request->ttl = 0;\n    remote_request_send(request, NULL, background_on_released, ttl);|    request->done = NULL;\n    remote_request_finish(request, answer->result);\n    background_send_next(r);
tests/contract/contract_redis:survive|backend/redis/script/uncontended_release.lua| == UNCONTENDED .. ticket and not another then| == UNCONTENDED .. ticket then
r|backend/redis/script/reclaim.lua|      if at > number and call(|      if false and call(
q|backend/redlock/recover.c|kind < BACKEND_LEASE \\|\\| kind > BACKEND_FCNTL|kind < BACKEND_LEASE \\|\\| kind > BACKEND_LEASE
leasefs:tests/e2e/test_takeover.sh|fs/daemon/filesystem.c|    control_stop(fs);\n|    control_stop(fs);\n    GPtrArray *nodes = tree_all(fs->tree);\n    for (guint i = 0; fs->replaced && i < nodes->len; i++) {\n        struct hold *hold;\n        LIST_FOREACH(hold, &((struct node *)nodes->pdata[i])->holds, link) {\n            if (hold->ticket) {\n                backend_release(fs->backend, hold->ticket, NULL, NULL);\n            }\n        }\n    }\n
l|fs/daemon/channel.c|    keep_request_resume(channel->keep, slot);\n    channel_process(channel);|    keep_request_done(channel->keep, slot);\n    return;
l+|fs/hold/inherit.c|        inherit_join(fs, h, hold, meta);|        (void)inherit_join;
tests/message/check_death:stores|fs/ops/sequence.c|    if (sequence_find_made(r)) {|    if (false && sequence_find_made(r)) {
tests/message/check_death:deaths|fs/daemon/channel.c|    if (slot->length && slot->interrupted) {|    if (false) {
r|backend/remote/background.c|    request->renewal.verify_only = verify_only;\n    request->ttl = t->head.ttl;\n    request->renewal.left = background_term(t, verify_only);|    (void)verify_only;\n    request->ttl = t->head.ttl;\n    request->renewal.left = background_term(t, false);
"""


def bugs():
    for line in BUGS.strip().split("\n"):
        parts = re.split(r"(?<!\\)\|", line)
        yield [part.replace("\\\\|", "|").replace("\\|", "|").replace("\\n", "\n") for part in parts]


def build(program, file, text):
    """The path of the program with that text in place of the file."""
    shutil.rmtree("planted", ignore_errors=True)
    os.makedirs("planted")
    os.environ["CCACHE_DISABLE"] = "1"  # it does not notice that another file is included now
    source = file
    if file.endswith(".lua"):
        include, source = os.path.join("planted", file[:-4] + ".inc"), os.path.dirname(file) + ".c"
        os.makedirs(os.path.dirname(include), exist_ok=True)
        with open(include, "w") as out:
            for line in text.splitlines():
                out.write('"' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"\n')
        text = read_source(source)
    with open("planted/source.c", "w") as out:
        out.write(text)
    flags = shlex.split(os.environ["SIM_COMPILE"])
    subprocess.run(flags + ["-w", "-O0", "-g0", "-c", "planted/source.c", "-o", "planted/source.o"], check=True)
    name, target = re.sub(r"\W", "_", program), os.path.join("planted", os.path.basename(program))
    with open("planted/link.mk", "w") as out:
        out.write(f"include Makefile\n{target}: {program}\n\t$(CC) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $({name}_LDFLAGS)"
                  f" $(LDFLAGS) -o $@ planted/source.o $(filter-out {source[:-2]}.o,$({name}_OBJECTS)) $({name}_LDADD) $(LIBS)\n")
    subprocess.run(["make", "-s", "-f", "planted/link.mk", target], check=True)
    return target


def run_worlds(program, store, seeds, first):
    """rule → the first seed that breaks it."""
    text = subprocess.run([program, "-n", str(seeds), "-f", str(first), "-s", STORES[store], "-o", "300", "-q", "-j", str(JOBS)],
                          capture_output=True, text=True).stdout
    found = {}
    for seed, rule in re.findall(r"^seed (\d+): (.*)$", text, re.M):
        found[rule] = min(found.get(rule, 1 << 60), int(seed))
    return found


def catch_by_worlds(program, store, sound, seeds, largest):
    """The rule that a world breaks, and how many worlds it takes; or None."""
    first, step = 1, 10
    while first <= seeds:
        broken = run_worlds(program, store, step, first)
        if broken and (store, first) not in sound:
            sound[store, first] = run_worlds("tests/sim/sim", store, step, first)
        broken = {rule: seed for rule, seed in broken.items() if rule not in sound[store, first]}
        if broken:
            return min(broken.items(), key=lambda item: item[1])
        first, step = first + step, min(2 * step, largest)
    return None


def run_test(program, case):
    """The tests that fail, and whether any ran."""
    command, environment = [program], dict(os.environ, top_builddir=".", srcdir=TOP, CK_RUN_CASE=case)
    if case.endswith(".sh"):
        command, environment["LEASEFS"] = [os.path.join(TOP, case)], os.path.abspath(program)
        environment["LEASERUN"] = os.path.abspath("leaserun")
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment).stdout
    failed = re.findall(r"^not ok \d+ - (?:[^\s:]+:[\w ]+:)?([^\n:]+)", text, re.M)
    return failed, failed or re.search(r"^ok \d+ (?!.*# SKIP)", text, re.M)


def catch_by_test(program, without, case):
    """The test that fails with the program, and not with the one without the bug; or None."""
    failed, _ = run_test(program, case)
    sound, ran = run_test(without, case)
    wrong = "fails without the bug" if sound else None if ran else "cannot run here"
    return (wrong or failed[0], "missed" if wrong else "-") if wrong or failed else None


def read_source(file):
    path = os.path.join(TOP, file)
    if not os.path.exists(path):
        return ""
    with open(path) as source:
        return source.read()


def check():
    """Prints the bugs that do not apply."""
    wrong = [(number, file, old) for number, (_, file, old, _) in enumerate(bugs(), 1) if read_source(file).count(old) != 1]
    for number, file, old in wrong:
        print(f"{number} {file}: {' '.join(old.split())[:60]}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--step", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bugs", type=lambda text: {int(number) for number in text.split(",")})
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        return check()
    sound = {}
    missed = number = planted = 0
    print(f"{'bug':>4} {'seeds':>6}  {'rule':<16} where and what")
    for store, file, old, new in bugs():
        number += 1
        quick, store = store.endswith("+"), store.rstrip("+")
        title = f"{file}: {' '.join(old.split())[:60]}"
        wanted = arguments.only in title and (quick or not arguments.quick)
        if not wanted or (arguments.bugs and number not in arguments.bugs):
            continue
        planted += 1
        text = read_source(file)
        if text.count(old) != 1:
            print(f"{number:>4} {'-':>6}  {'does not apply':<16} {title}")
            missed += 1
            continue
        store, _, case = store.partition(":")
        program = build(store if case else "tests/sim/sim", file, text.replace(old, new))
        caught = (catch_by_test(program, store, case) if case
                  else catch_by_worlds(program, store, sound, arguments.seeds, arguments.step))
        rule, where = caught or ("", "missed")
        missed += where == "missed"
        print(f"{number:>4} {where:>6}  {rule:<16} {title}", flush=True)
    print(f"# bugs: {planted}; missed: {missed}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
