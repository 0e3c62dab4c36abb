"""postgresql_isolation: every interleaving of what two or three sessions do with the functions of schema.sql.

    postgresql_isolation.py SOCKETS PORT

As PostgreSQL's isolationtester does it: a session is a list of transactions, each a call and its COMMIT or ROLLBACK.  All
orders of these steps are tried; a session that waits for another goes on when it may.  After each order the tables are
looked at, and the outcomes of the calls.  Prints TAP.
"""
import itertools
import select
import sys
import time

import psycopg2
import psycopg2.extensions

sockets, port = sys.argv[1:]
OPTIONS = dict(host=sockets, port=port, user="postgres", dbname="postgres", options="-c search_path=pg_catalog,\\ pg_temp")
orders = failures = cases = 0


class Session:
    def __init__(self, number):
        self.channel = "m%d" % number
        self.conn = psycopg2.connect(async_=True, **OPTIONS)
        self.wait()
        self.cursor = self.conn.cursor()
        self.run("LISTEN leasefs_" + self.channel)
        self.pending = False
        self.error = None
        self.events = []

    def wait(self):
        while True:
            state = self.conn.poll()
            if state == psycopg2.extensions.POLL_OK:
                return
            want = [self.conn]
            reads, writes = (want, []) if state == psycopg2.extensions.POLL_READ else ([], want)
            select.select(reads, writes, [], 10)

    def run(self, text, values=None):
        self.cursor.execute(text, values)
        self.wait()
        return self.result()

    def result(self):
        return self.cursor.fetchall() if self.cursor.description else []

    def outcome(self, read):
        """What a call answered; of an error its SQLSTATE."""
        error, self.error = self.error, None
        return error or read(self.result())

    def begin(self, text, values=None):
        self.cursor.execute(text, values)
        self.pending = True

    def is_ready(self):
        """Polls; True once the answer is there."""
        try:
            self.pending = self.conn.poll() != psycopg2.extensions.POLL_OK
        except psycopg2.Error as error:
            self.pending, self.error = False, error.pgcode
        return not self.pending

    def take_events(self):
        self.run("SELECT 1")
        self.conn.poll()
        self.events += [n.payload for n in self.conn.notifies]
        self.conn.notifies.clear()


monitor = psycopg2.connect(**OPTIONS)
monitor.autocommit = True
look = monitor.cursor()
sessions = [Session(i) for i in range(3)]
look.execute("SELECT leasefs.enter_epoch('m0', '', '0123456789abcdef', 0, 0, 0, 3600000, 0, true, false)")


def query(text, values=()):
    look.execute(text, values)
    return look.fetchall()


def is_blocked(session):
    return bool(query("SELECT cardinality(pg_blocking_pids(%s))", [session.conn.get_backend_pid()])[0][0])


def settle():
    """Each pending session has answered, or waits for another."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if all(s.is_ready() or is_blocked(s) for s in sessions if s.pending):
            return
    raise AssertionError("a session neither answers nor waits")


class Call:
    """One transaction: a function's call, committed or rolled back."""

    def __init__(self, text, commit=True, read=lambda rows: rows[0][0]):
        self.text, self.commit, self.read = text, commit, read


def interleavings(lengths):
    labels = [i for i, n in enumerate(lengths) for _ in range(n)]
    return sorted(set(itertools.permutations(labels)))


def play(order, plans, names):
    """Returns what each session's calls answered; an error is told by its SQLSTATE."""
    steps = [[part for call in plan for part in (("call", call), ("end", call))] for plan in plans]
    outcomes = [[] for _ in plans]
    waiting = [None] * len(plans)
    todo = list(order)

    def finish_waiting():
        for i, call in enumerate(waiting):
            if call and not sessions[i].pending:
                waiting[i] = None
                outcomes[i].append(sessions[i].outcome(call.read))

    while todo:
        settle()
        finish_waiting()
        at = next((k for k, i in enumerate(todo) if not sessions[i].pending), None)
        if at is None:
            raise AssertionError("all sessions wait: a deadlock that nobody ends")
        i = todo.pop(at)
        what, call = steps[i].pop(0)
        session = sessions[i]
        if what == "call":
            session.run("BEGIN")
            session.begin(call.text % names)
            settle()
            if session.pending:
                waiting[i] = call
            else:
                outcomes[i].append(session.outcome(call.read))
        else:
            session.run("COMMIT" if call.commit else "ROLLBACK")
            settle()
            finish_waiting()
    return outcomes


def acquire(name, ticket, mount, mode=0, wait=False, ttl=60000, kind=1, owner="NULL", first=0, last=0, commit=True, sequence=False):
    path, parent, leaf = ("%%(%s)s" % name,) * 3 if not name.endswith("/") else (None,) * 3
    if sequence:
        text = "'%%(%s)s/'::bytea, '%%(%s)s', 'job-'" % (name, name)
    else:
        text = "'%%(%s)s'::bytea, '', '%%(%s)s'" % (name, name)
    return Call("SELECT result, number, name FROM leasefs.acquire(%s, %s, '%s%%(n)s', '%s', 'host', %d, %d, %d, 60000, %s, false, "
                "NULL, %s, %d, %d, NULL, '', '', NULL)"
                % (text, str(sequence).lower(), ticket, mount, kind, mode, ttl, str(wait).lower(), owner, first, last), commit)


def release(name, ticket, mount, commit=True):
    return Call("SELECT leasefs.release('%%(%s)s'::bytea, '%s%%(n)s', '%s', NULL, NULL, NULL)" % (name, ticket, mount), commit)


def convert(name, ticket, mode):
    return Call("SELECT leasefs.convert('%%(%s)s'::bytea, '%s%%(n)s', 2, %d, 60000, 60000, NULL, NULL, 0, 0, NULL, NULL, NULL)"
                % (name, ticket, mode))


def renew(name, ticket):
    return Call("SELECT leasefs.renew('%%(%s)s'::bytea, '%s%%(n)s', 0, 60000, 60000, NULL, NULL, NULL)" % (name, ticket))


def rename(name, ticket, to):
    return Call("SELECT result FROM leasefs.rename('%%(%s)s'::bytea, '%s%%(n)s', '%%(%s)s'::bytea, '', '%%(%s)s', NULL, NULL)"
                % (name, ticket, to, to))


def holders(name):
    return query("SELECT id, mode, owner, number, x, s FROM leasefs.ticket WHERE path = %s AND held AND deadline > leasefs.ms() "
                 "ORDER BY number", [name.encode()])


def check_always(names):
    """What must be true whatever was done."""
    for name in names.values():
        held = query("SELECT t FROM leasefs.ticket t WHERE path = %s AND held", [name.encode()])
        bad = query("SELECT count(*) FROM leasefs.ticket a JOIN leasefs.ticket b USING (path) WHERE path = %s AND a.id < b.id AND "
                    "a.held AND b.held AND leasefs.conflicts(a, b)", [name.encode()])[0][0]
        assert bad == 0, "two that exclude each other hold %s: %r" % (name, held)
        counted = query("SELECT h.others, (SELECT count(*) FROM leasefs.ticket t WHERE t.path = h.path AND t.slot <> 0), h.last, "
                        "(SELECT max(number) FROM leasefs.ticket t WHERE t.path = h.path AND t.id IS NOT NULL) "
                        "FROM leasefs.ticket h WHERE h.path = %s AND h.slot = 0", [name.encode()])
        for others, rows, last, highest in counted:
            assert others == rows, "%s counts %d rows, there are %d" % (name, others, rows)
            assert highest is None or highest <= last, "%s: a number above the last" % name
        stuck = query("SELECT count(*) FROM leasefs.ticket w WHERE w.path = %s AND w.id IS NOT NULL AND NOT w.held AND NOT "
                      "(leasefs.block(w, w.place)).blocked", [name.encode()])[0][0]
        assert stuck == 0, "%s: one waits that nobody blocks" % name


def case(title, plans, check, before=()):
    """`check(names, outcomes, events)` after each order; `before` are calls of the first session."""
    global orders, failures, cases
    cases += 1
    wrong = None
    count = 0
    for order in interleavings([2 * len(plan) for plan in plans]):
        orders += 1
        count += 1
        names = {key: "%s%d" % (key, orders) for key in "abcd"}
        filled = dict(names, n=orders)
        for call in before:
            sessions[0].run(call.text % filled)
        for s in sessions:
            s.take_events()
            s.events.clear()
        try:
            outcomes = play(order, plans, filled)
            for s in sessions:
                s.take_events()
            check_always(names)
            check(names, outcomes, [s.events for s in sessions])
        except (AssertionError, psycopg2.Error) as error:
            wrong = wrong or "order %s: %s" % ("".join(map(str, order)), error)
            for s in sessions:
                if s.pending:
                    s.conn.cancel() if hasattr(s.conn, "cancel") else None
                try:
                    s.wait()
                    s.run("ROLLBACK")
                except psycopg2.Error:
                    pass
                s.pending = False
    failures += wrong is not None
    print("%s %d - %s (%d orders)" % ("ok" if not wrong else "not ok", cases, title, count))
    if wrong:
        print("# " + wrong.replace("\n", " "))
    sys.stdout.flush()


def expect(condition, *what):
    assert condition, repr(what)


def one_of(*wanted):
    return lambda names, outcomes, events: expect(tuple(o[0] for o in outcomes) in wanted, outcomes)


case("of two that take a lock one has it", [[acquire("a", "x", "m0")], [acquire("a", "y", "m1")]],
     one_of(("granted", "busy"), ("busy", "granted")))
case("so it is of a lock that was released before", [[acquire("a", "x", "m0")], [acquire("a", "y", "m1")]],
     one_of(("granted", "busy"), ("busy", "granted")), before=[acquire("a", "w", "m2"), release("a", "w", "m2")])
case("of three that take a lock one has it",
     [[acquire("a", "x", "m0")], [acquire("a", "y", "m1")], [acquire("a", "z", "m2")]],
     lambda n, o, e: expect(sorted(x[0] for x in o) == ["busy", "busy", "granted"], o))
case("a lock whose taker rolls back is free", [[acquire("a", "x", "m0", commit=False)], [acquire("a", "y", "m1")]],
     lambda n, o, e: expect(o[1][0] == "granted" or o[0][0] == "busy" or len(holders(n["a"])) == 1, o))
case("a waiter holds once the holder has released, and is told so once",
     [[acquire("a", "x", "m0"), release("a", "x", "m0")], [acquire("a", "y", "m1", wait=True)]],
     lambda n, o, e: (expect([h[0][0] for h in holders(n["a"])] in (["y"], []) or holders(n["a"])[0][0][0] == "y", holders(n["a"])),
                      expect(len([x for x in e[1] if x.startswith("g ")]) == (o[1][0] == "queued"), e, o)))
case("a release that is rolled back grants nothing, and tells nobody",
     [[release("a", "x", "m0", commit=False)], [acquire("a", "y", "m1", wait=True)]],
     lambda n, o, e: (expect(holders(n["a"])[0][0][0] == "x", holders(n["a"])), expect(not [x for x in e[1] if x.startswith("g")], e)),
     before=[acquire("a", "x", "m0")])
case("waiters are granted in their order",
     [[release("a", "x", "m0")], [acquire("a", "y", "m1", wait=True)], [acquire("a", "z", "m2", wait=True)]],
     lambda n, o, e: expect(len(holders(n["a"])) == 1 and query("SELECT min(number) FROM leasefs.ticket WHERE path = %s AND id IS NOT NULL",
                            [n["a"].encode()])[0][0] == holders(n["a"])[0][3], holders(n["a"])),
     before=[acquire("a", "x", "m0")])
case("of two that share, neither becomes exclusive beside the other",
     [[convert("a", "x", 0)], [convert("a", "y", 0)]], one_of(("busy", "busy")),
     before=[acquire("a", "x", "m0", mode=1), acquire("a", "y", "m1", mode=1)])
case("of one that leaves and one that becomes exclusive",
     [[release("a", "x", "m0")], [convert("a", "y", 0)]], one_of(("gone", "ok"), ("gone", "busy")),
     before=[acquire("a", "x", "m0", mode=1), acquire("a", "y", "m1", mode=1)])
case("a lock that has expired is renewed or taken, not both",
     [[renew("a", "x")], [acquire("a", "y", "m1")]],
     one_of(("ok", "busy"), ("stale", "granted")), before=[acquire("a", "x", "m0", ttl=0)])
case("two that are renamed to each other's names both stay", [[rename("a", "x", "b")], [rename("b", "y", "a")]],
     one_of(("busy", "busy")), before=[acquire("a", "x", "m0"), acquire("b", "y", "m1")])
case("a rename and who takes the name exclude each other", [[rename("a", "x", "b")], [acquire("b", "y", "m1")]],
     one_of(("ok", "busy"), ("busy", "granted")), before=[acquire("a", "x", "m0")])
case("a rename frees its name for who waits",
     [[rename("a", "x", "b")], [acquire("a", "y", "m1", wait=True)]],
     lambda n, o, e: expect(o[0] == ["ok"] and holders(n["a"])[0][0][0] == "y" and holders(n["b"])[0][0][0] == "x", o),
     before=[acquire("a", "x", "m0")])

MKDIR = "SELECT leasefs.mkdir('%(a)s'::bytea, '', '%(a)s', 0, 1, 0, 0, '', 'nonce%(n)s', NULL)"
RMDIR = "SELECT leasefs.rmdir('%(a)s'::bytea, NULL)"
INSIDE = Call("SELECT result FROM leasefs.acquire('%(a)s/l'::bytea, '%(a)s', 'l', false, 'y%(n)s', 'm1', 'host', 1, 0, 60000, 60000, "
              "false, false, NULL, NULL, NULL, NULL, NULL, '', '', NULL)")
case("a name is a directory or a lock", [[Call(MKDIR)], [acquire("a", "y", "m1")]],
     one_of(("ok", "directory"), ("exists", "granted")))
case("a directory is removed, or a lock taken in it", [[Call(RMDIR)], [INSIDE]],
     one_of(("ok", "missing"), ("notempty", "granted")), before=[Call(MKDIR)])
case("two that make a directory: one has made it",
     [[Call(MKDIR)], [Call(MKDIR.replace("nonce", "other"))]], one_of(("ok", "exists"), ("exists", "ok")))
case("tickets of a queue have numbers and names of their own, in one order",
     [[acquire("a", "x", "m0", sequence=True, wait=True)], [acquire("a", "y", "m1", sequence=True, wait=True)],
      [acquire("a", "z", "m2", sequence=True, wait=True)]],
     lambda n, o, e: (lambda rows: expect([r[1] for r in rows] == sorted(r[1] for r in rows) and len({r[1] for r in rows}) == 3 and
                                          [r[2] for r in rows] == [True, False, False], rows))(
         query("SELECT number, encode(name, 'escape'), held FROM leasefs.ticket WHERE path = %s AND id IS NOT NULL ORDER BY number",
               [(n["a"] + "/").encode()])), before=[Call(MKDIR)])
case("ranges that are apart are held together", [[acquire("a", "x", "m0", kind=3, owner="1", first=0, last=9)],
                                                  [acquire("a", "y", "m1", kind=3, owner="2", first=10, last=19)]],
     one_of(("granted", "granted")))
case("ranges that overlap are not", [[acquire("a", "x", "m0", kind=3, owner="1", first=0, last=10)],
                                     [acquire("a", "y", "m1", kind=3, owner="2", first=10, last=19)]],
     one_of(("granted", "busy"), ("busy", "granted")))
case("a break and a release of the same ticket",
     [[Call("SELECT result FROM leasefs.revoke('%(a)s'::bytea, '{x%(n)s}', 'broken', 'm1', '1', NULL, NULL, false, NULL)")],
      [release("a", "x", "m0")]], lambda n, o, e: expect(holders(n["a"]) == [], o), before=[acquire("a", "x", "m0")])
TRY = "SELECT leasefs.try_lock('%(a)s', 'token%(n)s', '30 s') IS NOT NULL"
case("SQL and a mount exclude each other", [[Call(TRY)], [acquire("a", "y", "m1")]],
     lambda n, o, e: expect((o[0][0], o[1][0]) in ((True, "busy"), (False, "granted"), ("25001", "granted")), o))
case("many are renewed while one of them is released",
     [[Call("SELECT cardinality(leasefs.renew_many('{%(a)s,%(b)s}', '{x%(n)s,y%(n)s}', '{0,0}', '{60000,60000}', NULL))")],
      [release("a", "x", "m0")]],
     lambda n, o, e: expect(o[0][0] in (1, 2) and o[1][0] == "gone" and len(holders(n["b"])) == 1, o),
     before=[acquire("a", "x", "m0"), acquire("b", "y", "m0")])

# A mount that starts again as m1.  stale: a request of the daemon before that has read the ticket y when it stops at a gate.
RECOVER = Call("SELECT id FROM leasefs.recover('start%(n)s', 'm1', '', false, 500)", read=lambda rows: [r[0] for r in rows])
START = [Call(acquire("a", ticket, "m0", mode=1, kind=2).text.replace("'host'", "'start%(n)s'")) for ticket in "xy"]
look.execute("CREATE FUNCTION public.stale(_path bytea, _id text) RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE t leasefs.ticket; "
             "BEGIN PERFORM leasefs.take(_path); t := leasefs.find(_path, _id); PERFORM pg_advisory_xact_lock(1); "
             "IF t.id IS NOT NULL THEN PERFORM leasefs.drop(t); END IF; RETURN t.id IS NOT NULL; END$$")


def gone(name, ids):
    return query("SELECT count(*) FROM leasefs.ticket WHERE path = %s AND id IS NOT NULL", [name.encode()])[0][0] == 2 - ids


case("a recovery whose answer is lost is repeated, and finds the same", [[RECOVER, RECOVER]],
     lambda n, o, e: expect(len(o[0][0]) == 2 and all(o[0][0]) and sorted(o[0][0]) == sorted(o[0][1]), o), before=START)
case("a request of the daemon before and a recovery exclude each other",
     [[Call("SELECT public.stale('%(a)s', 'y%(n)s')")], [RECOVER], [Call("SELECT pg_advisory_xact_lock(1)")]],
     lambda n, o, e: expect(gone(n["a"], o[0][0]), o), before=START)
case("a ticket that has another id is not dropped",
     [[Call("SELECT leasefs.drop(jsonb_populate_record(t, '{\"id\": \"other\"}')) IS NULL FROM leasefs.ticket t WHERE t.path = '%(a)s'")]],
     lambda n, o, e: expect(gone(n["a"], 0), o), before=START)
case("a recovery that other transactions stop is repeated",
     [[Call("SELECT leasefs.take('%(a)s')")], [Call(RECOVER.text.replace("false", "true"), read=RECOVER.read)]],
     lambda n, o, e: expect(o[1][0] == "55P03" or len(o[1][0]) == 2 and all(o[1][0]), o), before=START)

# After a loss of data.  40001: the call is rolled back, and to be repeated.
look.execute("UPDATE leasefs.life SET closed = true")
case("a lock that is restored waits for its directory", [[Call(MKDIR)], [Call(
    "SELECT leasefs.restore('%(a)s/l'::bytea, '%(a)s', 'l', false, 'x%(n)s', 'm1', 'host', 1, 0, 60000, 60000, NULL, NULL, NULL, NULL, "
    "5, 1, '', '', NULL)")]], one_of(("ok", "restored"), ("ok", "40001")))
look.execute("UPDATE leasefs.life SET closed = false")

# ShedLock's statements.  40001: the call is rolled back, and to be repeated.
query("CREATE TABLE public.shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, "
      "locked_by varchar(255) NOT NULL); SELECT leasefs.use_shedlock('shedlock')")
INSERT = Call("WITH done AS (INSERT INTO public.shedlock AS s VALUES ('%(a)s', timezone('utc', now()) + '30 s', timezone('utc', now()), 'host') "
              "ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, "
              "locked_by = excluded.locked_by WHERE s.lock_until <= timezone('utc', now()) RETURNING 1) SELECT count(*) FROM done")
UNLOCK = Call("WITH done AS (UPDATE public.shedlock SET lock_until = timezone('utc', now()) WHERE name = '%(a)s' AND locked_by = 'host' "
              "RETURNING 1) SELECT count(*) FROM done")


def apart(names, outcomes, events):
    theirs = query("SELECT count(*) FROM public.shedlock WHERE name = %s AND locked_by = 'host' AND lock_until > timezone('utc', now())",
                   [names["a"]])[0][0]
    expect(theirs + len(holders(names["a"])) <= 1, outcomes, theirs, holders(names["a"]))


case("ShedLock and a mount exclude each other", [[INSERT], [acquire("a", "y", "m1")]],
     lambda n, o, e: (apart(n, o, e), expect((o[0][0], o[1][0]) in ((1, "busy"), (0, "granted"), (1, "40001")), o)))
case("so they do where each has had the lock before", [[INSERT, UNLOCK], [acquire("a", "y", "m1"), release("a", "y", "m1")]],
     apart, before=[acquire("a", "w", "m2"), release("a", "w", "m2"), INSERT, UNLOCK])
case("ShedLock and SQL exclude each other", [[INSERT], [Call(TRY)]],
     lambda n, o, e: (apart(n, o, e), expect((o[0][0], o[1][0]) in ((1, False), (0, True)), o)))
case("a waiter and ShedLock exclude each other behind a release", [[release("a", "x", "m0")], [INSERT]],
     apart, before=[acquire("a", "x", "m0"), acquire("a", "y", "m1", wait=True)])
case("a lock that has expired is renewed, or ShedLock has it", [[renew("a", "x")], [INSERT]],
     apart, before=[acquire("a", "x", "m0", ttl=0)])
case("a rename and ShedLock exclude each other", [[rename("b", "x", "a")], [INSERT]],
     lambda n, o, e: (apart(n, o, e), expect((o[0][0], o[1][0]) in (("ok", 0), ("busy", 1), ("40001", 1)), o)),
     before=[acquire("b", "x", "m0")])
print("1..%d" % cases)
print("# %d orders" % orders)
sys.exit(failures > 0)
