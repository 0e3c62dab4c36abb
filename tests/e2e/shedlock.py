"""shedlock: the statements of ShedLock's JdbcTemplateLockProvider with usingDbTime() on PostgreSQL, as it sends them.

    shedlock.py SOCKETS PORT lock|extend|unlock NAME [TERM]    t or f: whether ShedLock takes it for done
    shedlock.py SOCKETS PORT race COUNT FILE mount DIRECTORY   COUNT attempts at the lock `race`, by a file,
    shedlock.py SOCKETS PORT race COUNT FILE sql               by leasefs.try_lock,
    shedlock.py SOCKETS PORT race COUNT FILE shedlock          or by ShedLock: how many overlapped, how many held

A holder makes FILE, and removes it before it unlocks, so that one which finds it overlaps.
"""
import os
import sys
import time

import psycopg2

NOW = "timezone('utc', CURRENT_TIMESTAMP)"
UNTIL = NOW + " + cast(%(most)s as interval)"
SET = " SET lock_until = " + UNTIL + ", locked_at = " + NOW + ", locked_by = %(by)s WHERE shedlock.name = %(name)s AND shedlock.lock_until <= " + NOW
INSERT = "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(%(name)s, " + UNTIL + ", " + NOW + ", %(by)s) ON CONFLICT (name) DO UPDATE" + SET
UPDATE = "UPDATE shedlock" + SET
LEAST = "locked_at + cast(%(least)s as interval)"
UNLOCK = "UPDATE shedlock SET lock_until = CASE WHEN " + LEAST + " > " + NOW + " THEN " + LEAST + " ELSE " + NOW + " END WHERE name = %(name)s AND locked_by = %(by)s"
EXTEND = "UPDATE shedlock SET lock_until = " + UNTIL + " WHERE name = %(name)s AND locked_by = %(by)s AND lock_until > " + NOW

sockets, port, what = sys.argv[1:4]
conn = psycopg2.connect(host=sockets, port=port, user="postgres", dbname="postgres")
conn.autocommit = True
cursor = conn.cursor()


def run(statement, name, most="30000 milliseconds", by="some-host"):
    cursor.execute(statement, dict(name=name, most=most, least="0 milliseconds", by=by))
    return cursor.rowcount > 0


def lock(name, *term):
    """The first time a client inserts; it updates when that had no effect, and from then on."""
    return run(INSERT, name, *term) or run(UPDATE, name, *term)


def race(count, file, kind, mount=None):
    overlaps = held = 0
    path = "%s/race" % mount
    for number in range(count):
        if kind == "mount":
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                got = True
            except FileExistsError:
                got = False
        elif kind == "sql":
            cursor.execute("SELECT leasefs.try_lock('race', 'sql', '30 s')")
            got = cursor.fetchone()[0] is not None
        else:
            got = run(UPDATE if number else INSERT, "race")
        if not got:
            time.sleep(0.0002)
            continue
        held += 1
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL))
            os.unlink(file)
        except FileExistsError:
            overlaps += 1
        if kind == "mount":
            os.unlink(path)
        elif kind == "sql":
            cursor.execute("SELECT leasefs.unlock('race', 'sql')")
        else:
            run(UNLOCK, "race")
    print(overlaps, held)


if what == "race":
    race(int(sys.argv[4]), *sys.argv[5:])
elif what == "lock":
    print("t" if lock(*sys.argv[4:]) else "f")
else:
    print("t" if run(EXTEND if what == "extend" else UNLOCK, sys.argv[4]) else "f")
