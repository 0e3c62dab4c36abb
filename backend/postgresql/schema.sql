-- schema: leases in a PostgreSQL database.  PostgreSQL 14 or newer.
--
-- A mount calls one function for each operation, so an operation is one round trip and one transaction.  Every function
-- that changes a lock first takes the advisory lock of its name (leasefs.take), so only one transaction at a time changes
-- a lock; rename takes two, in order.  So READ COMMITTED is enough: each statement after the advisory lock sees all
-- earlier commits.
--
-- A lock is the rows of leasefs.ticket with its path.  The row of slot 0 belongs to the lock, and stays when the lock is
-- free.  While nobody waits, the holder's ticket is in that row; then acquire and release change no indexed column, so
-- the update stays on its page and leaves nothing to clean up in an index.  Other tickets have rows of their own.
-- leasefs.sweep deletes the rows of locks that have been free for a minute.
--
-- The queue of a directory of sequence tickets has the directory's path and a slash as its path.
--
-- Times are ms since 1970 by clock_timestamp(), terms are ms.  Bytes of a lock are int8: the offset, which is unsigned,
-- with its highest bit inverted.

-- Run again, this text upgrades the schema of an older leasefs; the tables keep their rows.  A daemon works only with its own
-- format number.  A change that another daemon would misread needs the next format number.
--
-- Any other change needs the next revision number, which only grows, also with a new format number.  The first mount of a
-- newer leasefs runs this text while mounts of an older leasefs use the schema.  So each function keeps its name, its
-- parameters, its columns and their meaning; a new function gets a new name.  The text must not wait for a transaction that
-- uses a table, such as that of pg_dump, so it makes a column or an index only if it is missing.

SET client_min_messages = warning;
SET search_path = pg_catalog, pg_temp; -- the schema public of the administrator who runs this may have functions of others
DO $$
BEGIN
  PERFORM pg_advisory_xact_lock(1818322805); -- only one session at a time runs this text
  IF to_regclass('leasefs.format') IS NULL THEN
    CREATE SCHEMA IF NOT EXISTS leasefs;
    CREATE TABLE leasefs.format (version integer NOT NULL);
  END IF;
  IF to_regproc('leasefs.revision') IS NOT NULL THEN
    IF leasefs.revision() > 2 THEN
      RAISE EXCEPTION 'leasefs: the schema was made by a newer leasefs' USING ERRCODE = 'LF002';
    END IF;
  END IF;
  IF EXISTS (SELECT FROM leasefs.format f WHERE f.version > 2) THEN
    RAISE EXCEPTION 'leasefs: the schema was made by a newer leasefs';
  ELSIF EXISTS (SELECT FROM leasefs.format) THEN
    DROP FUNCTION IF EXISTS leasefs.recover(text, text, bytea, bigint, integer); -- of format 1
  ELSE
    CREATE TYPE leasefs.joined AS (
      id text,              -- of a claim that joined its lock owner's ticket
      bytes int8multirange, -- the bytes that it added
      x int8multirange,     -- those of them that were held exclusive before
      s int8multirange      -- and shared before
    );
    CREATE TYPE leasefs.answer AS ( -- of a function, about a ticket
      result text,     -- granted, queued, busy, free, missing, directory, notdirectory, …
      id text, number bigint,
      segments text,   -- START END MODE … in hexadecimal
      name bytea,      -- of a sequence ticket
      rank integer,    -- 0: the first waiter; 1: others wait before it
      wait bigint,     -- ms until the lock may change by itself; -1: not known
      kind smallint, mode smallint, age bigint, remaining bigint, ttl bigint, meta bytea, mount text,
      first bigint, last bigint,
      content bytea, holders integer, waiters integer, position integer
    );
    INSERT INTO leasefs.format VALUES (2);
  END IF;
  UPDATE leasefs.format SET version = 2;
END$$;

CREATE OR REPLACE FUNCTION leasefs.format_version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$SELECT version FROM leasefs.format$$;

CREATE OR REPLACE FUNCTION leasefs.revision() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2';

CREATE SEQUENCE IF NOT EXISTS leasefs.fence;

CREATE TABLE IF NOT EXISTS leasefs.directory (
  path bytea PRIMARY KEY,
  parent bytea NOT NULL,
  leaf bytea NOT NULL,
  ttl bigint NOT NULL,
  width bigint NOT NULL,
  delay bigint NOT NULL,
  sequence bigint NOT NULL, -- the number of the next sequence ticket
  meta bytea NOT NULL,
  nonce text NOT NULL       -- of the request that made it
);
DO $$
BEGIN
  IF to_regclass('leasefs.directory_parent') IS NULL THEN
    CREATE INDEX directory_parent ON leasefs.directory (parent, leaf);
  END IF;
END$$;
INSERT INTO leasefs.directory VALUES ('', '/', '', 0, 1, 0, 0, '', '') ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS leasefs.ticket (
  path bytea NOT NULL,
  slot bigint NOT NULL,  -- 0, or a hash of id
  place bigint NOT NULL, -- 0, or the number with which it queued
  parent bytea,          -- slot 0 of a name: its directory
  leaf bytea,            -- slot 0 of a name: the last part of it
  name bytea,            -- of a sequence ticket: its own name in the directory
  id text,               -- NULL: slot 0 without a ticket
  number bigint,         -- the fencing token
  kind smallint, mode smallint, -- as in backend.h
  mount text,            -- the mount's channel; or sql, guard, delay, which have none
  identity text,         -- of the mount, the same when it starts again; stays when the row is free
  handle bigint, owner bigint, -- the lock owner
  held boolean NOT NULL DEFAULT false,
  claimed boolean NOT NULL DEFAULT false, -- its mount has claimed the grant
  again boolean NOT NULL DEFAULT false,   -- it has queued again with its earlier number
  ttl bigint, acquired bigint, deadline bigint,
  delay bigint,          -- of a guard: its lock-delay; NULL: that of the directory
  meta bytea, content bytea,
  x int8multirange, s int8multirange, -- of a lock owner: bytes held exclusive and shared; NULL: all, by mode
  joined leasefs.joined[],
  watched text[],        -- mounts to notify when it ends
  -- of slot 0
  last bigint NOT NULL DEFAULT 0,    -- the highest number of a ticket
  top bigint NOT NULL DEFAULT 0,     -- the highest number of a holder
  others integer NOT NULL DEFAULT 0, -- rows of other slots
  odd boolean NOT NULL DEFAULT false, -- it has byte ranges, or several tickets of one identity
  refused bigint NOT NULL DEFAULT 0, -- the end of its lock-delay
  revoked text,                      -- the last revocation, to recognise a repetition
  freed bigint NOT NULL DEFAULT 0,   -- when it became free
  PRIMARY KEY (path, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
DO $$
BEGIN
  IF to_regclass('leasefs.ticket_place') IS NULL THEN
    CREATE INDEX ticket_place ON leasefs.ticket (path, place);
  END IF;
  IF to_regclass('leasefs.ticket_name') IS NULL THEN
    CREATE INDEX ticket_name ON leasefs.ticket (path, name) WHERE name IS NOT NULL;
  END IF;
  IF to_regclass('leasefs.ticket_parent') IS NULL THEN
    CREATE INDEX ticket_parent ON leasefs.ticket (parent, slot, leaf);
  END IF;
  IF to_regclass('leasefs.ticket_identity') IS NULL THEN
    CREATE INDEX ticket_identity ON leasefs.ticket (identity);
  END IF;
END$$;

CREATE TABLE IF NOT EXISTS leasefs.mount (
  channel text PRIMARY KEY,
  identity text NOT NULL,
  host text NOT NULL,
  deadline bigint NOT NULL,
  version text,
  since bigint
) WITH (fillfactor = 50);
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = 'leasefs.mount'::regclass AND a.attname = 'since') THEN
    ALTER TABLE leasefs.mount ADD COLUMN version text, ADD COLUMN since bigint; -- of revision 0
  END IF;
END$$;

-- The epoch: see backend/remote/epoch.h.  One row, or none before the first mount.
CREATE TABLE IF NOT EXISTS leasefs.epoch (
  stamp text NOT NULL,
  state text NOT NULL,    -- f (fresh: there was no earlier epoch), c (grace period) or o (open again)
  longest bigint NOT NULL, -- the longest term of any mount whose tickets may not be restored, or may be lost
  reports bigint NOT NULL,
  lost boolean NOT NULL,
  weak boolean NOT NULL,  -- a crash may lose confirmed commits, by a setting of the server or of a mount's role
  life text NOT NULL      -- system identifier and timeline
);
-- One row during an epoch.  The table is not logged, so a crash and a promotion empty it; a clean restart keeps it.
CREATE UNLOGGED TABLE IF NOT EXISTS leasefs.life (stamp text NOT NULL, closed boolean NOT NULL, since bigint NOT NULL);
CREATE TABLE IF NOT EXISTS leasefs.term ( -- the longest renewable term of each mount, and the epoch in which all its tickets are known
  mount text PRIMARY KEY,
  term bigint NOT NULL,
  stamp text NOT NULL,
  until bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS leasefs.restored (id text PRIMARY KEY); -- during a grace period

-- --- small parts ---

CREATE OR REPLACE FUNCTION leasefs.ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint$$;

-- --- the epoch ---

-- During a grace period ("closed") nothing is granted, and no ticket expires, because the clock may be another one.
CREATE OR REPLACE FUNCTION leasefs.is_closed() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c boolean;
BEGIN
  SELECT l.closed INTO c FROM leasefs.life l;
  RETURN COALESCE(c, true);
END$$;

-- _stamp: the epoch that the mount knows.  → is it a grace period?
CREATE OR REPLACE FUNCTION leasefs.check_epoch(_stamp text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l record;
BEGIN
  SELECT * INTO l FROM leasefs.life;
  IF _stamp IS NOT NULL AND (NOT FOUND OR l.stamp <> _stamp) THEN
    RAISE EXCEPTION 'leasefs: the server has another epoch than this mount knows' USING ERRCODE = 'LF001';
  END IF;
  RETURN COALESCE(l.closed, true);
END$$;

-- A mount reports the epoch that it knows, and gets the present one; see struct epoch_report and struct epoch_marker.
--
-- A server that crashed, was promoted or restored has no row in leasefs.life.  The first mount that notices it begins a
-- grace period: nothing new is granted while any earlier holder may still rely on its term, and mounts restore what they
-- hold.  A mount that has seen the grace period for that term, and a hundredth of it, ends it.  After a crash without
-- loss of data it ends as soon as all mounts have restored what they hold.
CREATE OR REPLACE FUNCTION leasefs.enter_epoch(_mount text, _stamp text, _fresh text, _term bigint, _others bigint, _reports bigint,
  _grace_max bigint, _closed_for bigint, _restored boolean, _strict boolean,
  OUT stamp text, OUT state text, OUT longest bigint, OUT others bigint, OUT reports bigint, OUT lost boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  TERM_KEPT CONSTANT bigint := 60000;
  m leasefs.epoch;
  own leasefs.term;
  was text;
  away bigint;
  closes boolean;
  now bigint := leasefs.ms();
  life text := (SELECT c.system_identifier FROM pg_control_system() AS c)::text || ' ' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
  weak boolean := current_setting('synchronous_commit') = 'off' OR current_setting('fsync') = 'off';
BEGIN
  PERFORM pg_advisory_xact_lock(1818322806, 0), set_config('synchronous_commit', 'on', true);
  SELECT * INTO m FROM leasefs.epoch;
  was := m.stamp || m.state;
  IF m.stamp IS NULL THEN
    closes := _stamp <> '' OR _strict AND extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000 < _term;
  ELSE
    closes := m.life <> life OR NOT EXISTS (SELECT FROM leasefs.life l WHERE l.stamp = m.stamp) OR
      m.state = 'f' AND _stamp <> '' AND _stamp <> m.stamp;
  END IF;
  IF closes THEN
    m.lost := COALESCE(m.lost OR m.weak OR m.life <> life OR m.state = 'f' AND _stamp <> '' AND _stamp <> m.stamp, true);
    m.stamp := _fresh;
    m.state := 'c';
  ELSIF m.stamp IS NULL THEN
    m.lost := false;
    m.stamp := _fresh;
    m.state := 'f';
  END IF;
  m.longest := COALESCE(m.longest, 0);
  m.reports := COALESCE(m.reports, 0);
  m.lost := m.state = 'c' AND (m.lost OR _reports > m.reports);
  m.weak := COALESCE(m.weak, false) OR weak;
  m.life := life;

  -- The terms of other mounts, and of those whose tickets are not all restored in this epoch.
  DELETE FROM leasefs.term t WHERE t.until < now;
  SELECT t.* INTO own FROM leasefs.term t WHERE t.mount = _mount;
  SELECT COALESCE(max(t.term), 0), COALESCE(max(t.term) FILTER (WHERE t.stamp <> m.stamp), 0) INTO others, away
  FROM leasefs.term t WHERE t.mount <> _mount;
  own.term := COALESCE(own.term, 0);
  IF m.state <> 'c' OR _stamp = '' OR _restored AND _stamp = m.stamp THEN own.stamp := m.stamp; END IF;
  IF own.stamp IS DISTINCT FROM m.stamp THEN away := GREATEST(away, own.term, _term); END IF;
  m.reports := GREATEST(m.reports, _reports) + CASE WHEN _term > own.term THEN 1 ELSE 0 END;
  m.longest := LEAST(_grace_max, CASE WHEN m.state <> 'c' THEN GREATEST(others, _term)
    WHEN m.lost THEN GREATEST(m.longest, others, _others, own.term, _term) ELSE away END);
  IF m.state = 'c' AND NOT closes AND _stamp = m.stamp AND
     (_closed_for >= m.longest + m.longest / 100 + 2 OR NOT m.lost AND m.longest = 0) THEN
    m.state := 'o';
    m.lost := false;
    m.longest := LEAST(GREATEST(others, _term), _grace_max);
    own.stamp := m.stamp;
  END IF;

  DELETE FROM leasefs.epoch;
  INSERT INTO leasefs.epoch VALUES (m.*);
  IF was IS DISTINCT FROM m.stamp || m.state THEN
    DELETE FROM leasefs.life;
    INSERT INTO leasefs.life VALUES (m.stamp, m.state = 'c', now);
    IF was IS NOT NULL THEN PERFORM pg_notify('leasefs_epoch', 'v ' || m.stamp); END IF;
  END IF;
  IF closes OR m.state = 'o' THEN DELETE FROM leasefs.restored; END IF;
  IF _term > 0 THEN
    INSERT INTO leasefs.term VALUES (_mount, _term, COALESCE(own.stamp, '-'), now + _term + TERM_KEPT)
    ON CONFLICT (mount) DO UPDATE SET term = excluded.term, stamp = excluded.stamp, until = excluded.until;
  ELSE
    DELETE FROM leasefs.term t WHERE t.mount = _mount;
  END IF;
  stamp := m.stamp;
  state := m.state;
  longest := m.longest;
  reports := m.reports;
  lost := m.lost;
END$$;

-- The first of the two int4 is leasefs's own, so other programs' advisory locks do not collide with these.
CREATE OR REPLACE FUNCTION leasefs.take(_path bytea) RETURNS void LANGUAGE sql VOLATILE AS
$$SELECT pg_catalog.pg_advisory_xact_lock(1818322803, pg_catalog.hashtext(pg_catalog.encode(_path, 'escape')))$$;

CREATE OR REPLACE FUNCTION leasefs.try_take(_path bytea) RETURNS boolean LANGUAGE sql VOLATILE AS
$$SELECT pg_catalog.pg_try_advisory_xact_lock(1818322803, pg_catalog.hashtext(pg_catalog.encode(_path, 'escape')))$$;

-- Takes both in an order that is the same for all callers.
CREATE OR REPLACE FUNCTION leasefs.take_two(_a bytea, _b bytea) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF hashtext(encode(_a, 'escape')) <= hashtext(encode(_b, 'escape')) THEN
    PERFORM leasefs.take(_a), leasefs.take(_b);
  ELSE
    PERFORM leasefs.take(_b), leasefs.take(_a);
  END IF;
END$$;

-- Keeps a directory from being removed while something is made in it.  Taken after a name's advisory lock.  The removal
-- of a directory takes this one first, and waits for no name.
CREATE OR REPLACE FUNCTION leasefs.enter(_directory bytea) RETURNS void LANGUAGE sql VOLATILE AS
$$SELECT pg_catalog.pg_advisory_xact_lock_shared(1818322804, pg_catalog.hashtext(pg_catalog.encode(_directory, 'escape')))$$;

CREATE OR REPLACE FUNCTION leasefs.slot_of(_id text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$SELECT GREATEST(pg_catalog.hashtextextended(_id, 0) & 9223372036854775807, 1)$$;

-- _last NULL: no upper bound.
CREATE OR REPLACE FUNCTION leasefs.bytes(_first bigint, _last bigint) RETURNS int8multirange LANGUAGE sql IMMUTABLE AS
$$SELECT CASE WHEN _last = 9223372036854775807 THEN pg_catalog.int8multirange(pg_catalog.int8range(_first, NULL))
              ELSE pg_catalog.int8multirange(pg_catalog.int8range(_first, _last, '[]')) END$$;

CREATE OR REPLACE FUNCTION leasefs.exclusive(t leasefs.ticket) RETURNS int8multirange LANGUAGE sql IMMUTABLE AS
$$SELECT COALESCE((t).x, CASE WHEN (t).mode = 0 THEN '{(,)}'::int8multirange ELSE '{}' END)$$;

CREATE OR REPLACE FUNCTION leasefs.shared(t leasefs.ticket) RETURNS int8multirange LANGUAGE sql IMMUTABLE AS
$$SELECT COALESCE((t).s, CASE WHEN (t).mode = 0 THEN '{}' ELSE '{(,)}'::int8multirange END)$$;

-- An unbounded range begins at the least offset.
CREATE OR REPLACE FUNCTION leasefs.is_partial(t leasefs.ticket) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT (t).x IS NOT NULL AND NOT ((t).x @> '[-9223372036854775808,)'::int8range OR (t).s @> '[-9223372036854775808,)'::int8range)$$;

-- Do the tickets have one lock owner or, unless both have a lock owner, one handle?
CREATE OR REPLACE FUNCTION leasefs.is_same(a leasefs.ticket, b leasefs.ticket) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT COALESCE((a).mount = (b).mount AND CASE WHEN (a).owner IS NOT NULL AND (b).owner IS NOT NULL THEN (a).owner = (b).owner
                                                 ELSE (a).handle = (b).handle END, false)$$;

CREATE OR REPLACE FUNCTION leasefs.conflicts(a leasefs.ticket, b leasefs.ticket) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT NOT leasefs.is_same(a, b) AND CASE
    WHEN (a).x IS NULL AND (b).x IS NULL THEN (a).mode = 0 OR (b).mode = 0
    ELSE leasefs.exclusive(a) && leasefs.exclusive(b) OR leasefs.exclusive(a) && leasefs.shared(b) OR
         leasefs.shared(a) && leasefs.exclusive(b) END$$;

-- Does `u`, which waits, wait for this holder?  For one that has the whole lock all wait in the end: a shared ticket waits
-- for an exclusive one, which waits for it.
CREATE OR REPLACE FUNCTION leasefs.waits_for(u leasefs.ticket, holder leasefs.ticket) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT leasefs.conflicts(holder, u) OR NOT leasefs.is_partial(holder) AND NOT leasefs.is_same(holder, u)$$;

-- An offset in the form that the client reads.
CREATE OR REPLACE FUNCTION leasefs.offset_of(_at bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.lpad(pg_catalog.to_hex(_at # (-9223372036854775808)), 16, '0')$$;

CREATE OR REPLACE FUNCTION leasefs.segments(t leasefs.ticket) RETURNS text LANGUAGE sql STABLE AS
$$SELECT COALESCE(pg_catalog.string_agg(
    leasefs.offset_of(COALESCE(lower(r), -9223372036854775808)) || ' ' ||
    leasefs.offset_of(COALESCE(upper(r) - 1, 9223372036854775807)) || ' ' || mode, ' ' ORDER BY r), '')
  FROM (SELECT unnest((t).x) AS r, 0 AS mode UNION ALL SELECT unnest((t).s), 1) AS parts$$;

-- Notifies the mount of a ticket, if it has one.
CREATE OR REPLACE FUNCTION leasefs.tell(_mount text, _word text, _id text, _more text DEFAULT '') RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF _mount NOT IN ('sql', 'guard', 'delay') THEN
    PERFORM pg_notify('leasefs_' || _mount, _word || ' ' || _id || _more);
  END IF;
END$$;

CREATE OR REPLACE FUNCTION leasefs.tell_watchers(t leasefs.ticket) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  m text;
BEGIN
  FOREACH m IN ARRAY COALESCE((t).watched, '{}') LOOP
    PERFORM pg_notify('leasefs_' || m, 'f ' || encode((t).path, 'hex') || ' ' || COALESCE(encode((t).name, 'hex'), ''));
  END LOOP;
END$$;

-- A number above all earlier ones of the name, also after its row was deleted, or the clock or the sequence was set back.
CREATE OR REPLACE FUNCTION leasefs.next_number(_path bytea) RETURNS bigint LANGUAGE sql VOLATILE AS
$$UPDATE leasefs.ticket SET last = GREATEST(last + 1, pg_catalog.nextval('leasefs.fence'),
    (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint)
  WHERE path = _path AND slot = 0 RETURNING last$$;

CREATE OR REPLACE FUNCTION leasefs.is_queue(_path bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.substr(_path, pg_catalog.length(_path)) = '/'::bytea$$;

CREATE OR REPLACE FUNCTION leasefs.directory_of(_path bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.substr(_path, 1, pg_catalog.length(_path) - 1)$$;

CREATE OR REPLACE FUNCTION leasefs.find(_path bytea, _id text) RETURNS leasefs.ticket LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t leasefs.ticket;
BEGIN
  SELECT u.* INTO t FROM leasefs.ticket u WHERE u.path = _path AND u.slot IN (0, leasefs.slot_of(_id)) AND u.id = _id;
  RETURN t;
END$$;

-- The answer about a ticket; with `_against` it has the bytes that conflict with that ticket.
CREATE OR REPLACE FUNCTION leasefs.describe(_result text, t leasefs.ticket, _against leasefs.ticket DEFAULT NULL) RETURNS leasefs.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  a leasefs.answer;
  r int8range;
  m integer;
BEGIN
  IF (t).x IS NOT NULL THEN
    SELECT p.r, p.mode INTO r, m
    FROM (SELECT unnest((t).x) AS r, 0 AS mode UNION ALL SELECT unnest((t).s), 1) AS p
    WHERE (_against).id IS NULL OR p.r && leasefs.exclusive(_against) OR p.mode = 0 AND p.r && leasefs.shared(_against)
    ORDER BY p.r LIMIT 1;
  END IF;
  a.result := _result;
  a.id := (t).id;
  a.number := (t).number;
  a.kind := (t).kind;
  a.mode := COALESCE(m, (t).mode);
  a.age := leasefs.ms() - (t).acquired;
  a.remaining := (t).deadline - leasefs.ms();
  a.ttl := (t).ttl;
  a.meta := (t).meta;
  a.mount := (t).mount;
  a.first := COALESCE(lower(r), -9223372036854775808);
  a.last := COALESCE(upper(r) - 1, 9223372036854775807);
  a.name := (t).name;
  RETURN a;
END$$;

-- --- adding and removing tickets, with the name's advisory lock held ---

-- Adds a ticket: in the lock's own row if it holds and that row is free.
CREATE OR REPLACE FUNCTION leasefs.put(t leasefs.ticket) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF t.held AND t.name IS NULL AND NOT leasefs.is_queue(t.path) THEN
    UPDATE leasefs.ticket u SET (id, number, kind, mode, mount, identity, handle, owner, held, claimed, again, ttl, acquired,
        deadline, delay, meta, content, x, s, joined, watched) =
      (t.id, t.number, t.kind, t.mode, t.mount, t.identity, t.handle, t.owner, t.held, t.claimed, t.again, t.ttl, t.acquired,
        t.deadline, t.delay, t.meta, t.content, t.x, t.s, t.joined, NULL)
    WHERE u.path = t.path AND u.slot = 0 AND u.id IS NULL;
    IF FOUND THEN RETURN; END IF;
  END IF;
  t.slot := leasefs.slot_of(t.id);
  t.place := t.number;
  t.parent := NULL;
  t.leaf := NULL;
  t.last := 0;
  t.top := 0;
  t.others := 0;
  t.odd := false;
  t.refused := 0;
  t.freed := 0;
  INSERT INTO leasefs.ticket VALUES (t.*);
  UPDATE leasefs.ticket u SET others = u.others + 1 WHERE u.path = t.path AND u.slot = 0;
END$$;

-- Writes all columns of a ticket that may have changed.
CREATE OR REPLACE FUNCTION leasefs.save(t leasefs.ticket) RETURNS void LANGUAGE sql VOLATILE AS
$$UPDATE leasefs.ticket u SET (number, kind, mode, mount, handle, owner, held, claimed, again, ttl, acquired, deadline, delay,
      meta, content, x, s, joined, name, id) =
    ((t).number, (t).kind, (t).mode, (t).mount, (t).handle, (t).owner, (t).held, (t).claimed, (t).again, (t).ttl, (t).acquired,
      (t).deadline, (t).delay, (t).meta, (t).content, (t).x, (t).s, (t).joined, (t).name, (t).id)
  WHERE u.path = (t).path AND u.slot = (t).slot$$;

CREATE OR REPLACE FUNCTION leasefs.drop(t leasefs.ticket) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  next leasefs.ticket;
BEGIN
  IF NOT t.held THEN -- if the first waiter goes, the next one becomes the first, and must try again
    SELECT u.* INTO next FROM leasefs.ticket u WHERE u.path = t.path AND u.id IS NOT NULL AND NOT u.held ORDER BY u.place LIMIT 1;
    IF next.id = t.id THEN
      SELECT u.* INTO next FROM leasefs.ticket u
      WHERE u.path = t.path AND u.id IS NOT NULL AND NOT u.held AND u.id <> t.id ORDER BY u.place LIMIT 1;
      IF next.id IS NOT NULL THEN PERFORM leasefs.tell(next.mount, 'a', next.id); END IF;
    END IF;
  END IF;
  IF t.watched IS NOT NULL THEN PERFORM leasefs.tell_watchers(t); END IF;
  IF t.slot = 0 THEN
    UPDATE leasefs.ticket u SET id = NULL, held = false, meta = NULL, content = NULL, x = NULL, s = NULL, joined = NULL,
      watched = NULL, freed = leasefs.ms()
    WHERE u.path = t.path AND u.slot = 0 AND u.id = t.id;
  ELSE
    DELETE FROM leasefs.ticket u WHERE u.path = t.path AND u.slot = t.slot AND u.id = t.id;
    IF FOUND THEN
      UPDATE leasefs.ticket u SET others = u.others - 1, freed = leasefs.ms() WHERE u.path = t.path AND u.slot = 0;
    END IF;
  END IF;
END$$;

CREATE OR REPLACE FUNCTION leasefs.delay_of(t leasefs.ticket) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  d bigint;
BEGIN
  IF t.delay IS NOT NULL THEN RETURN t.delay; END IF;
  IF leasefs.is_queue(t.path) THEN
    SELECT q.delay INTO d FROM leasefs.directory q WHERE q.path = leasefs.directory_of(t.path);
  ELSE
    SELECT q.delay INTO d FROM leasefs.ticket h JOIN leasefs.directory q ON q.path = h.parent
    WHERE h.path = t.path AND h.slot = 0;
  END IF;
  RETURN COALESCE(d, 0);
END$$;

-- Ends a ticket against its will, at `since`.  If it holds, its lock-delay begins: in a directory's queue a nameless ticket
-- keeps its position until then.
CREATE OR REPLACE FUNCTION leasefs.lose(t leasefs.ticket, _why text, _since bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  d bigint := CASE WHEN t.kind = 0 OR t.mount = 'delay' OR NOT t.held THEN 0 ELSE leasefs.delay_of(t) END;
BEGIN
  PERFORM leasefs.tell(t.mount, 'e', t.id, ' ' || _why);
  PERFORM leasefs.drop(t);
  IF d <= 0 OR _since + d <= leasefs.ms() THEN RETURN; END IF;
  IF t.name IS NOT NULL THEN
    t.mount := 'delay';
    t.name := NULL;
    t.deadline := _since + d;
    t.watched := NULL;
    PERFORM leasefs.put(t);
  ELSE
    UPDATE leasefs.ticket u SET refused = GREATEST(u.refused, _since + d)
    WHERE u.path = t.path AND u.slot = 0 AND NOT EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = t.path AND v.held);
  END IF;
END$$;

-- Ends tickets after their deadline.
CREATE OR REPLACE FUNCTION leasefs.expire(_path bytea) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t leasefs.ticket;
BEGIN
  IF leasefs.is_closed() THEN RETURN; END IF;
  FOR t IN SELECT u.* FROM leasefs.ticket u
           WHERE u.path = _path AND u.id IS NOT NULL AND u.deadline <= leasefs.ms() ORDER BY u.place LIMIT 512 LOOP
    IF t.held THEN
      PERFORM leasefs.lose(t, 'expired', t.deadline);
    ELSE
      PERFORM leasefs.drop(t);
    END IF;
  END LOOP;
END$$;

-- --- ShedLock ---

-- While leasefs uses a table of ShedLock, each held lock has a row there, written in the same transaction, and a row of
-- ShedLock's clients is a holder here.  leasefs.use_shedlock replaces these functions; until then they do nothing.

DO $do$
BEGIN
  IF to_regproc('leasefs.shedlock') IS NOT NULL THEN RETURN; END IF;
  -- The holder that is a row of ShedLock's clients, or NULL.
  CREATE FUNCTION leasefs.shedlock(_path bytea) RETURNS leasefs.ticket LANGUAGE sql AS $$SELECT NULL::leasefs.ticket$$;
  -- The names of such holders.
  CREATE FUNCTION leasefs.shedlock_names() RETURNS SETOF text LANGUAGE sql AS $$SELECT NULL::text WHERE false$$;
  -- Ends such a holder.
  CREATE FUNCTION leasefs.shedlock_end(_path bytea) RETURNS void LANGUAGE sql AS $$SELECT NULL::void$$;
  -- The row of a name shows whether, and until when, the lock is held or refused to others.
  CREATE FUNCTION leasefs.shedlock_show(_path bytea) RETURNS void LANGUAGE sql AS $$SELECT NULL::void$$;
  -- The table in use; NULL: none.
  CREATE FUNCTION leasefs.shedlock_table() RETURNS text LANGUAGE sql AS $$SELECT NULL::text$$;
END$do$;

CREATE OR REPLACE FUNCTION leasefs.shedlock_on_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM leasefs.shedlock_show(CASE WHEN TG_OP = 'DELETE' THEN OLD.path ELSE NEW.path END);
  RETURN NULL;
END$$;

-- A path as a name in ShedLock's table, whose names have up to _max characters; NULL: it is no such name.
CREATE OR REPLACE FUNCTION leasefs.shedlock_name(_path bytea, _max integer) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  name text;
BEGIN
  name := convert_from(_path, 'UTF8');
  RETURN CASE WHEN char_length(name) <= _max AND NOT leasefs.is_queue(_path) THEN name END;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END$$;

-- Uses that table for all mounts and SQL clients from now on; NULL: uses none.  Only the schema's owner may call it, because
-- the functions run with the owner's rights.
CREATE OR REPLACE FUNCTION leasefs.use_shedlock(_table text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $use$
DECLARE
  t regclass := COALESCE(to_regclass(_table), CASE WHEN strpos(_table, '.') = 0 THEN to_regclass('public.' || _table) END);
  used text := leasefs.shedlock_table();
  wrong text;
  longest integer;
  p bytea;
BEGIN
  IF _table IS NOT NULL AND t IS NULL THEN
    RAISE EXCEPTION 'leasefs: there is no table %', _table USING ERRCODE = 'undefined_table';
  ELSIF t::text IS NOT DISTINCT FROM used THEN
    RETURN;
  ELSIF t IS NOT NULL AND used IS NOT NULL THEN
    RAISE EXCEPTION 'leasefs: the table % is in use already, for all mounts', used USING ERRCODE = 'object_in_use';
  END IF;
  SELECT string_agg(format('%s %s', c.name, c.type), ', ' ORDER BY c.number) INTO wrong
  FROM (VALUES (1, 'name', 'character varying'), (2, 'lock_until', 'timestamp without time zone'),
               (3, 'locked_at', 'timestamp without time zone'), (4, 'locked_by', 'character varying')) AS c (number, name, type)
  WHERE t IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t AND a.attname = c.name AND a.attnum > 0 AND
    (format_type(a.atttypid, NULL) = c.type OR format_type(a.atttypid, NULL) = 'text' AND c.type = 'character varying'));
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'leasefs: the table % has no columns: %', t, wrong USING ERRCODE = 'wrong_object_type';
  END IF;
  SELECT CASE WHEN a.atttypmod > 0 THEN a.atttypmod - 4 ELSE 1000 END INTO longest
  FROM pg_attribute a JOIN pg_index i ON i.indrelid = t AND i.indisunique AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum
  WHERE a.attrelid = t AND a.attname = 'name';
  IF t IS NOT NULL AND longest IS NULL THEN
    RAISE EXCEPTION 'leasefs: the table % has no primary key (name)', t USING ERRCODE = 'wrong_object_type';
  END IF;

  PERFORM pg_advisory_xact_lock(1818322805), set_config('lock_timeout', '60s', true);
  IF t IS NULL THEN
    DROP TRIGGER shedlock_update ON leasefs.ticket;
    DROP TRIGGER shedlock_insert ON leasefs.ticket;
    DROP TRIGGER shedlock_delete ON leasefs.ticket;
    CREATE OR REPLACE FUNCTION leasefs.shedlock(_path bytea) RETURNS leasefs.ticket LANGUAGE sql AS $$SELECT NULL::leasefs.ticket$$;
    CREATE OR REPLACE FUNCTION leasefs.shedlock_names() RETURNS SETOF text LANGUAGE sql AS $$SELECT NULL::text WHERE false$$;
    CREATE OR REPLACE FUNCTION leasefs.shedlock_table() RETURNS text LANGUAGE sql AS $$SELECT NULL::text$$;
    RETURN;
  END IF;
  EXECUTE format($f$
    CREATE OR REPLACE FUNCTION leasefs.shedlock_table() RETURNS text LANGUAGE sql AS $$SELECT %2$L::text$$;

    CREATE OR REPLACE FUNCTION leasefs.shedlock(_path bytea) RETURNS leasefs.ticket LANGUAGE plpgsql AS $$
    DECLARE
      t leasefs.ticket;
      r record;
      now timestamp := timezone('UTC', clock_timestamp());
    BEGIN
      SELECT LEAST(s.lock_until, now + interval '10 years') AS until, GREATEST(LEAST(s.locked_at, now), 'epoch') AS since INTO r
      FROM %1$s s
      WHERE s.name = leasefs.shedlock_name(_path, %3$s) AND s.lock_until > now AND s.locked_by IS DISTINCT FROM 'leasefs.mount';
      IF NOT FOUND THEN RETURN NULL; END IF;
      t.path := _path;
      t.id := 'shedlock';
      t.kind := 1;
      t.mode := 0;
      t.mount := 'sql';
      t.held := true;
      t.acquired := extract(epoch FROM r.since) * 1000;
      t.deadline := extract(epoch FROM r.until) * 1000;
      t.ttl := t.deadline - t.acquired;
      t.number := GREATEST((SELECT v.top + 1 FROM leasefs.ticket v WHERE v.path = _path AND v.slot = 0), extract(epoch FROM r.since) * 1000000);
      RETURN t;
    END$$;

    CREATE OR REPLACE FUNCTION leasefs.shedlock_names() RETURNS SETOF text LANGUAGE sql AS $$
      SELECT s.name FROM %1$s s WHERE s.lock_until > timezone('UTC', clock_timestamp()) AND s.locked_by IS DISTINCT FROM 'leasefs.mount'$$;

    CREATE OR REPLACE FUNCTION leasefs.shedlock_end(_path bytea) RETURNS void LANGUAGE sql AS $$
      UPDATE %1$s s SET lock_until = timezone('UTC', clock_timestamp())
      WHERE s.name = leasefs.shedlock_name(_path, %3$s) AND s.lock_until > timezone('UTC', clock_timestamp()) AND
        s.locked_by IS DISTINCT FROM 'leasefs.mount'$$;

    CREATE OR REPLACE FUNCTION leasefs.shedlock_show(_path bytea) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
      n text := leasefs.shedlock_name(_path, %3$s);
      now timestamp := timezone('UTC', clock_timestamp());
      until timestamp;
    BEGIN
      IF n IS NULL THEN RETURN; END IF;
      SELECT timezone('UTC', to_timestamp(GREATEST(max(v.deadline) FILTER (WHERE v.held), max(v.refused), 0) / 1000.0)) INTO until
      FROM leasefs.ticket v WHERE v.path = _path;
      IF until <= now THEN
        UPDATE %1$s s SET lock_until = now WHERE s.name = n AND s.locked_by = 'leasefs.mount' AND s.lock_until > now;
        RETURN;
      END IF;
      INSERT INTO %1$s AS s (name, lock_until, locked_at, locked_by) VALUES (n, until, now, 'leasefs.mount')
      ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_by = excluded.locked_by,
        locked_at = CASE WHEN s.lock_until > now THEN s.locked_at ELSE now END
      WHERE s.lock_until <= now OR s.locked_by = 'leasefs.mount';
      IF NOT FOUND THEN -- since it was looked at: this transaction begins again
        RAISE EXCEPTION 'leasefs: %% is locked by ShedLock', n USING ERRCODE = 'serialization_failure';
      END IF;
    END$$;

    CREATE TRIGGER shedlock_update AFTER UPDATE ON leasefs.ticket FOR EACH ROW
      WHEN ((NEW.held OR OLD.held OR NEW.refused > 0) AND
        (NEW.held, NEW.deadline, NEW.refused) IS DISTINCT FROM (OLD.held, OLD.deadline, OLD.refused))
      EXECUTE FUNCTION leasefs.shedlock_on_change();
    CREATE TRIGGER shedlock_insert AFTER INSERT ON leasefs.ticket FOR EACH ROW WHEN (NEW.held)
      EXECUTE FUNCTION leasefs.shedlock_on_change();
    CREATE TRIGGER shedlock_delete AFTER DELETE ON leasefs.ticket FOR EACH ROW WHEN (OLD.held)
      EXECUTE FUNCTION leasefs.shedlock_on_change()$f$, t, t::text, longest);
  FOR p IN SELECT DISTINCT v.path FROM leasefs.ticket v WHERE v.held OR v.refused > 0 LOOP
    PERFORM leasefs.shedlock_show(p);
  END LOOP;
END$use$;

-- --- the rule that grants ---

-- Finds what blocks a ticket that does not hold.  `_place`: the waiter's; NULL: it is not in the queue yet.  `blocker` is
-- NULL for a lock-delay.
CREATE OR REPLACE FUNCTION leasefs.block(t leasefs.ticket, _place bigint, OUT blocked boolean, OUT blocker leasefs.ticket)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  h record;
  q record;
BEGIN
  IF leasefs.is_queue(t.path) THEN
    -- An exclusive ticket is blocked by the holders and the waiters before it, if they are `width` or more.  A shared one
    -- is blocked by a waiter before it and by an exclusive holder before it; by an exclusive holder behind it only if they
    -- are `width` or more.
    SELECT d.width, count(*) FILTER (WHERE u.held) AS holders,
           count(*) FILTER (WHERE NOT u.held AND (_place IS NULL OR u.place < _place)) AS before INTO q
    FROM leasefs.directory d LEFT JOIN leasefs.ticket u ON u.path = t.path AND u.id IS NOT NULL AND u.id <> t.id
    WHERE d.path = leasefs.directory_of(t.path) GROUP BY d.width;
    blocked := COALESCE(q.holders + q.before >= q.width, false);
    IF t.mode = 0 THEN
      IF blocked THEN
        SELECT u.* INTO blocker FROM leasefs.ticket u WHERE u.path = t.path AND u.id IS NOT NULL AND u.id <> t.id
        ORDER BY u.place LIMIT 1;
      END IF;
      RETURN;
    END IF;
    IF q.before > 0 THEN
      blocked := true;
      SELECT u.* INTO blocker FROM leasefs.ticket u WHERE u.path = t.path AND u.id IS NOT NULL AND NOT u.held AND u.id <> t.id
      ORDER BY u.place LIMIT 1;
      RETURN;
    END IF;
    SELECT u.* INTO blocker FROM leasefs.ticket u WHERE u.path = t.path AND u.held AND u.mode = 0 ORDER BY u.place LIMIT 1;
    blocked := FOUND AND (blocked OR _place IS NULL OR blocker.place < _place);
    RETURN;
  END IF;
  SELECT u.odd, u.refused INTO h FROM leasefs.ticket u WHERE u.path = t.path AND u.slot = 0;
  blocker := leasefs.shedlock(t.path);
  IF h.refused > leasefs.ms() OR blocker.id IS NOT NULL THEN
    blocked := true;
    RETURN;
  END IF;
  -- A waiter that waits for a holder with t's own identity does not block t: it cannot hold before that holder ends.
  SELECT u.* INTO blocker FROM leasefs.ticket u
  WHERE u.path = t.path AND u.id IS NOT NULL AND u.id <> t.id AND (u.held OR _place IS NULL OR u.place < _place) AND
    leasefs.conflicts(u, t) AND
    (u.held OR NOT h.odd OR NOT EXISTS (SELECT FROM leasefs.ticket k WHERE k.path = t.path AND k.held AND
       leasefs.is_same(k, t) AND leasefs.waits_for(u, k)))
  ORDER BY u.place LIMIT 1;
  blocked := FOUND;
END$$;

-- The fencing token of a new holder: a new number if the ticket's own is below that of an earlier holder.
CREATE OR REPLACE FUNCTION leasefs.holding(t leasefs.ticket) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  n bigint := t.number;
  h bigint;
BEGIN
  SELECT u.top INTO h FROM leasefs.ticket u WHERE u.path = t.path AND u.slot = 0;
  IF t.again OR n < h THEN n := leasefs.next_number(t.path); END IF;
  IF n <> t.number OR NOT leasefs.is_queue(t.path) THEN
    UPDATE leasefs.ticket u SET top = n WHERE u.path = t.path AND u.slot = 0;
  END IF;
  RETURN n;
END$$;

-- Grants the lock to the next waiters, for the time that they need to claim it.
CREATE OR REPLACE FUNCTION leasefs.grant(_path bytea) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  CLAIM CONSTANT bigint := 3000;
  h record;
  t leasefs.ticket;
  b record;
  q record;
  passed integer := 0;
BEGIN
  SELECT u.others, u.odd, u.refused INTO h FROM leasefs.ticket u WHERE u.path = _path AND u.slot = 0;
  IF NOT FOUND OR h.others = 0 OR h.refused > leasefs.ms() OR leasefs.is_closed() THEN RETURN; END IF;
  FOR t IN SELECT u.* FROM leasefs.ticket u WHERE u.path = _path AND u.id IS NOT NULL AND NOT u.held ORDER BY u.place LOOP
    SELECT * INTO b FROM leasefs.block(t, t.place);
    IF NOT b.blocked THEN
      t.number := leasefs.holding(t);
      t.held := true;
      t.again := false;
      t.acquired := leasefs.ms();
      t.deadline := t.acquired + CLAIM;
      PERFORM leasefs.save(t);
      PERFORM leasefs.tell(t.mount, 'g', t.id);
    ELSIF leasefs.is_queue(_path) THEN
      IF t.mode = 0 THEN RETURN; END IF;
      passed := passed + 1;
      SELECT d.width, count(u.id) AS holders INTO q FROM leasefs.directory d
      LEFT JOIN leasefs.ticket u ON u.path = _path AND u.held
      WHERE d.path = leasefs.directory_of(_path) GROUP BY d.width;
      IF q.holders + passed > q.width THEN RETURN; END IF;
    ELSIF NOT h.odd THEN
      RETURN; -- no later waiter may overtake this one
    END IF;
  END LOOP;
END$$;

-- --- acquire ---

CREATE OR REPLACE FUNCTION leasefs.queued(t leasefs.ticket) RETURNS leasefs.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  SHEDLOCK_LOOK CONSTANT bigint := 1000; -- its release notifies nobody
  a leasefs.answer;
  s leasefs.ticket;
BEGIN
  a.result := 'queued';
  a.id := t.id;
  a.number := t.number;
  a.name := t.name;
  a.rank := CASE WHEN EXISTS (SELECT FROM leasefs.ticket u WHERE u.path = t.path AND u.id IS NOT NULL AND NOT u.held AND
    u.place < t.place) THEN 1 ELSE 0 END;
  IF leasefs.is_queue(t.path) THEN
    SELECT min(u.deadline) INTO a.wait FROM leasefs.ticket u WHERE u.path = t.path AND u.held;
  ELSE
    SELECT max(u.deadline) INTO a.wait FROM leasefs.ticket u WHERE u.path = t.path AND u.held;
    SELECT GREATEST(a.wait, u.refused) INTO a.wait FROM leasefs.ticket u WHERE u.path = t.path AND u.slot = 0;
    s := leasefs.shedlock(t.path);
    IF s.id IS NOT NULL THEN a.wait := LEAST(s.deadline, leasefs.ms() + SHEDLOCK_LOOK); END IF;
  END IF;
  a.wait := COALESCE(GREATEST(a.wait - leasefs.ms(), 0), -1);
  RETURN a;
END$$;

-- A lock owner has one holder ticket: an existing one takes over the bytes of `t`.  Returns the holder.
CREATE OR REPLACE FUNCTION leasefs.merge(t leasefs.ticket, _bytes int8multirange, _mode integer) RETURNS leasefs.ticket
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  UNDO_MAX CONSTANT integer := 4;
  u leasefs.ticket;
  j leasefs.joined;
  list leasefs.joined[] := '{}';
BEGIN
  IF t.owner IS NULL THEN RETURN t; END IF;
  SELECT v.* INTO u FROM leasefs.ticket v
  WHERE v.path = t.path AND v.held AND v.claimed AND v.mount = t.mount AND v.owner = t.owner AND v.id <> t.id LIMIT 1;
  IF NOT FOUND THEN RETURN t; END IF;
  u.x := leasefs.exclusive(u);
  u.s := leasefs.shared(u);
  IF NOT EXISTS (SELECT FROM unnest(u.joined) AS k WHERE k.id = t.id) THEN -- not a repetition
    FOREACH j IN ARRAY COALESCE(u.joined, '{}') LOOP
      j.bytes := j.bytes - _bytes;
      j.x := j.x - _bytes;
      j.s := j.s - _bytes;
      list := list || j;
    END LOOP;
    j := ROW(t.id, _bytes, u.x * _bytes, u.s * _bytes);
    list := list || j;
    u.joined := list[GREATEST(cardinality(list) - UNDO_MAX + 1, 1):];
  END IF;
  u.x := u.x - _bytes;
  u.s := u.s - _bytes;
  IF _mode = 0 THEN u.x := u.x + _bytes; ELSE u.s := u.s + _bytes; END IF;
  u.mode := CASE WHEN isempty(u.x) THEN 1 ELSE 0 END;
  RETURN u;
END$$;

CREATE OR REPLACE FUNCTION leasefs.granted(t leasefs.ticket, _ttl bigint) RETURNS leasefs.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  SEGMENTS_MAX CONSTANT integer := 1000;
  a leasefs.answer;
BEGIN
  a.segments := leasefs.segments(t);
  IF length(a.segments) > SEGMENTS_MAX * 36 THEN
    RAISE EXCEPTION 'leasefs: too many byte ranges of one process' USING ERRCODE = 'program_limit_exceeded';
  END IF;
  t.ttl := _ttl;
  t.deadline := leasefs.ms() + _ttl;
  t.claimed := true;
  PERFORM leasefs.save(t);
  IF leasefs.is_partial(t) THEN
    UPDATE leasefs.ticket u SET odd = true WHERE u.path = t.path AND u.slot = 0 AND NOT u.odd;
  END IF;
  a.result := 'granted';
  a.id := t.id;
  a.number := t.number;
  a.name := t.name;
  RETURN a;
END$$;

-- A name for a sequence ticket that nothing in the directory has.
CREATE OR REPLACE FUNCTION leasefs.new_name(_directory bytea, _prefix bytea) RETURNS bytea LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  n bigint;
  made bytea;
BEGIN
  FOR i IN 1..1000 LOOP
    UPDATE leasefs.directory d SET sequence = d.sequence + 1 WHERE d.path = _directory RETURNING d.sequence - 1 INTO n;
    made := _prefix || convert_to(lpad(n::text, GREATEST(10, length(n::text)), '0'), 'UTF8');
    IF NOT EXISTS (SELECT FROM leasefs.ticket u WHERE u.path = _directory || '/'::bytea AND u.name = made) AND
       NOT EXISTS (SELECT FROM leasefs.ticket u WHERE u.parent = _directory AND u.slot = 0 AND u.leaf = made) AND
       NOT EXISTS (SELECT FROM leasefs.directory d WHERE d.parent = _directory AND d.leaf = made) THEN
      RETURN made;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'leasefs: too many names of the sequence are taken' USING ERRCODE = 'program_limit_exceeded';
END$$;

CREATE OR REPLACE FUNCTION leasefs.is_numbered(_leaf bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.length(_leaf) > 10 AND pg_catalog.encode(_leaf, 'escape') ~ '-[0-9]{10}$'$$;

-- Makes the lock's own row.  NULL, or the reason why it cannot exist.
CREATE OR REPLACE FUNCTION leasefs.open(_path bytea, _parent bytea, _leaf bytea) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM leasefs.enter(_parent);
  IF NOT EXISTS (SELECT FROM leasefs.directory d WHERE d.path = _parent) THEN
    RETURN CASE WHEN EXISTS (SELECT FROM leasefs.ticket u WHERE u.path = _parent AND u.held) THEN 'notdirectory' ELSE 'missing' END;
  END IF;
  IF EXISTS (SELECT FROM leasefs.directory d WHERE d.path = _path) THEN RETURN 'directory'; END IF;
  INSERT INTO leasefs.ticket (path, slot, place, parent, leaf, freed)
  VALUES (_path, 0, 0, CASE WHEN leasefs.is_queue(_path) THEN NULL ELSE _parent END, _leaf, leasefs.ms());
  RETURN NULL;
END$$;

-- Takes the lock, or queues for it.  A repetition renews the ticket that it finds.  _test: only finds the ticket that
-- blocks it.  For a sequence ticket _path is the directory's queue, and its name begins with _leaf.  _number: the number
-- with which it queued before.
CREATE OR REPLACE FUNCTION leasefs.acquire(_path bytea, _parent bytea, _leaf bytea, _sequence boolean, _id text, _mount text,
  _identity text, _kind integer, _mode integer, _ttl bigint, _liveness bigint, _wait boolean, _test boolean,
  _handle bigint, _owner bigint, _first bigint, _last bigint, _number bigint, _meta bytea, _content bytea, _stamp text)
RETURNS leasefs.answer LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  a leasefs.answer;
  h record;
  t leasefs.ticket;
  u leasefs.ticket;
  b record;
  bytes pg_catalog.int8multirange;
  why pg_catalog.text;
  now bigint;
  closed boolean;
  numbered boolean;
  taken boolean;
  n bigint;
BEGIN
  -- In place of SET search_path, which costs a quarter of the call.  All names above this, types too, are qualified.
  IF pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.<>) 'pg_catalog, pg_temp'::pg_catalog.text THEN
    RAISE EXCEPTION 'leasefs: this function is for mounts, whose search_path is pg_catalog, pg_temp';
  END IF;
  numbered := NOT _sequence AND CASE WHEN length(_leaf) > 10 THEN get_byte(_leaf, length(_leaf) - 11) = 45 ELSE false END;
  IF numbered THEN
    PERFORM leasefs.take_two(_path, _parent || '/'::bytea);
    numbered := leasefs.is_numbered(_leaf);
  ELSE -- the same as leasefs.take
    taken := pg_advisory_xact_lock(1818322803, hashtext(encode(_path, 'escape'))) IS NULL;
  END IF;
  now := leasefs.ms();
  IF NOT _sequence AND NOT _test AND _owner IS NULL AND _number IS NULL THEN -- the lock may be uncontended
    n := GREATEST(nextval('leasefs.fence'), (date_part('epoch', clock_timestamp()) * 1000000)::bigint);
    UPDATE leasefs.ticket v SET id = _id, number = GREATEST(v.last + 1, n), last = GREATEST(v.last + 1, n),
      top = GREATEST(v.last + 1, n), kind = _kind, mode = _mode, mount = _mount, identity = _identity, handle = _handle,
      owner = NULL, held = true, claimed = true, again = false, ttl = _ttl, acquired = now, deadline = now + _ttl, delay = NULL,
      meta = _meta, content = _content, odd = false
    FROM leasefs.life l
    WHERE v.path = _path AND v.slot = 0 AND v.id IS NULL AND v.others = 0 AND v.refused <= now AND NOT l.closed AND
      (_stamp IS NULL OR l.stamp = _stamp) AND (leasefs.shedlock(_path)).id IS NULL
    RETURNING v.last INTO a.number;
    IF FOUND THEN
      a.result := 'granted';
      a.id := _id;
      a.segments := '';
      RETURN a;
    END IF;
  END IF;
  closed := leasefs.check_epoch(_stamp);
  SELECT v.path, v.others, v.deadline, v.odd INTO h FROM (SELECT) AS one LEFT JOIN leasefs.ticket v ON v.path = _path AND v.slot = 0;
  IF h.path IS NULL THEN
    IF numbered THEN
      SELECT v.* INTO u FROM leasefs.ticket v WHERE v.path = _parent || '/'::bytea AND v.name = _leaf AND v.deadline > now;
      IF FOUND THEN RETURN leasefs.describe('busy', u); END IF;
    END IF;
    why := leasefs.open(_path, CASE WHEN _sequence THEN leasefs.directory_of(_path) ELSE _parent END, _leaf);
    IF why IS NOT NULL THEN
      a.result := why;
      RETURN a;
    END IF;
  ELSIF h.others > 0 OR h.deadline <= now THEN
    PERFORM leasefs.expire(_path);
  END IF;
  IF _owner IS NOT NULL THEN bytes := leasefs.bytes(_first, _last); END IF;
  t := leasefs.find(_path, _id);
  IF closed AND t.held THEN -- another may hold it, whose ticket the server has lost
    PERFORM leasefs.drop(t);
    t := NULL;
  END IF;
  IF t.id IS NOT NULL THEN -- a claim after the hand-over, a refresh, a repetition
    IF NOT t.held THEN
      t.deadline := now + _liveness;
      PERFORM leasefs.save(t);
      PERFORM leasefs.grant(_path);
      t := leasefs.find(_path, _id);
      IF NOT t.held THEN RETURN leasefs.queued(t); END IF;
    END IF;
    u := leasefs.merge(t, bytes, _mode);
    IF u.id <> t.id THEN PERFORM leasefs.drop(t); END IF;
    a := leasefs.granted(u, _ttl);
    PERFORM leasefs.grant(_path);
    RETURN a;
  END IF;

  PERFORM leasefs.grant(_path);
  t.path := _path;
  t.id := _id;
  t.kind := _kind;
  t.mode := _mode;
  t.mount := _mount;
  t.identity := _identity;
  t.handle := _handle;
  t.owner := _owner;
  t.ttl := _ttl;
  t.meta := _meta;
  t.content := _content;
  t.acquired := now;
  t.again := _number IS NOT NULL;
  t.claimed := false;
  t.held := false;
  IF _owner IS NOT NULL THEN
    t.x := CASE WHEN _mode = 0 THEN bytes ELSE '{}' END;
    t.s := CASE WHEN _mode = 0 THEN '{}' ELSE bytes END;
  END IF;
  IF NOT _sequence AND NOT h.odd AND (leasefs.is_partial(t) OR EXISTS (
       SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.id IS NOT NULL AND v.mount = _mount AND
         (v.handle = _handle OR v.owner = _owner))) THEN
    UPDATE leasefs.ticket v SET odd = true WHERE v.path = _path AND v.slot = 0;
  END IF;
  SELECT * INTO b FROM leasefs.block(t, _number);
  IF closed AND NOT b.blocked AND (_test OR NOT _wait) THEN
    a.result := 'grace';
    RETURN a;
  END IF;
  b.blocked := b.blocked OR closed;
  IF _test OR b.blocked AND NOT _wait THEN
    IF NOT b.blocked THEN
      a.result := 'free';
      RETURN a;
    END IF;
    u := b.blocker;
    IF _test AND _owner IS NOT NULL THEN -- the one with the lowest range
      SELECT v.* INTO u FROM leasefs.ticket v WHERE v.path = _path AND v.held AND leasefs.conflicts(v, t)
      ORDER BY (leasefs.describe('busy', v, t)).first LIMIT 1;
      IF NOT FOUND THEN u := b.blocker; END IF;
    END IF;
    RETURN leasefs.describe('busy', u, t);
  END IF;

  -- Of two that share, and wait to become exclusive, each would wait for the other.
  IF b.blocked AND NOT _sequence AND _number IS NULL AND EXISTS (
       SELECT FROM leasefs.ticket v, leasefs.ticket own, leasefs.ticket its
       WHERE v.path = _path AND v.id IS NOT NULL AND NOT v.held AND own.path = _path AND own.held AND its.path = _path AND
         its.held AND leasefs.is_same(own, t) AND leasefs.is_same(its, v) AND leasefs.waits_for(v, own) AND
         leasefs.waits_for(t, its)) THEN
    a.result := 'deadlock';
    RETURN a;
  END IF;

  t.number := COALESCE(_number, leasefs.next_number(_path));
  IF _sequence THEN
    IF _number IS NULL THEN
      t.name := leasefs.new_name(leasefs.directory_of(_path), _leaf);
    ELSIF EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.name = _leaf) THEN
      t.name := leasefs.new_name(leasefs.directory_of(_path), substr(_leaf, 1, length(_leaf) - 10));
    ELSE
      t.name := _leaf; -- its name from before the server lost its queue
      UPDATE leasefs.directory d SET sequence = GREATEST(d.sequence, encode(substr(_leaf, length(_leaf) - 9), 'escape')::bigint + 1)
      WHERE d.path = leasefs.directory_of(_path);
    END IF;
  END IF;
  IF b.blocked THEN
    t.deadline := now + _liveness;
    PERFORM leasefs.put(t);
    IF (b.blocker).id IS NOT NULL THEN PERFORM leasefs.tell((b.blocker).mount, 'w', (b.blocker).id); END IF;
    RETURN leasefs.queued(leasefs.find(_path, _id));
  END IF;
  u := leasefs.merge(t, bytes, _mode);
  IF u.id = t.id THEN
    t.held := true;
    t.number := leasefs.holding(t);
    t.deadline := now + _ttl;
    t.again := false;
    PERFORM leasefs.put(t);
    u := leasefs.find(_path, _id);
  END IF;
  a := leasefs.granted(u, _ttl);
  PERFORM leasefs.grant(_path);
  RETURN a;
END$$;

-- --- releasing and changing tickets ---

-- Gives a ticket the bytes that its lock owner held before a claim joined it.  False: others hold some of them now.
CREATE OR REPLACE FUNCTION leasefs.undo(u leasefs.ticket, _id text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j leasefs.joined;
  list leasefs.joined[] := '{}';
BEGIN
  FOREACH j IN ARRAY u.joined LOOP
    IF j.id = _id THEN
      u.x := u.x - j.bytes + j.x;
      u.s := u.s - j.bytes + j.s;
    ELSE
      list := list || j;
    END IF;
  END LOOP;
  u.joined := list;
  IF isempty(u.x) AND isempty(u.s) THEN
    PERFORM leasefs.drop(u);
    RETURN true;
  END IF;
  u.mode := CASE WHEN isempty(u.x) THEN 1 ELSE 0 END;
  IF EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = u.path AND v.held AND v.id <> u.id AND leasefs.conflicts(v, u)) THEN
    RETURN false;
  END IF;
  PERFORM leasefs.save(u);
  IF leasefs.is_partial(u) THEN UPDATE leasefs.ticket v SET odd = true WHERE v.path = u.path AND v.slot = 0; END IF;
  RETURN true;
END$$;

-- Ends a ticket, whether it holds or waits, and grants the lock to the next.  _why: the reason, if its holder did not
-- release it.
-- → gone; missing: there was no such ticket; stays: it has joined its lock owner's ticket, and cannot be undone
CREATE OR REPLACE FUNCTION leasefs.release(_path bytea, _id text, _mount text, _owner bigint, _why text, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  t leasefs.ticket;
  result pg_catalog.text;
  taken boolean;
  now bigint;
BEGIN
  -- In place of SET search_path, which costs a quarter of the call.  All names above this, types too, are qualified.
  IF pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.<>) 'pg_catalog, pg_temp'::pg_catalog.text THEN
    RAISE EXCEPTION 'leasefs: this function is for mounts, whose search_path is pg_catalog, pg_temp';
  END IF;
  taken := pg_advisory_xact_lock(1818322803, hashtext(encode(_path, 'escape'))) IS NULL; -- the same as leasefs.take
  IF _why IS NULL THEN
    now := leasefs.ms();
    UPDATE leasefs.ticket v SET id = NULL, held = false, meta = NULL, content = NULL, x = NULL, s = NULL, joined = NULL, freed = now
    FROM leasefs.life l
    WHERE v.path = _path AND v.slot = 0 AND v.id = _id AND v.others = 0 AND v.deadline > now AND v.watched IS NULL AND
      (_stamp IS NULL OR l.stamp = _stamp);
    IF FOUND THEN RETURN 'gone'; END IF;
  END IF;
  PERFORM leasefs.check_epoch(_stamp);
  result := 'missing';
  PERFORM leasefs.expire(_path);
  t := leasefs.find(_path, _id);
  IF t.id IS NOT NULL AND t.mount <> 'delay' THEN
    result := 'gone';
    IF t.held AND _why IS NOT NULL THEN
      PERFORM leasefs.lose(t, _why, leasefs.ms());
    ELSE
      PERFORM leasefs.drop(t);
    END IF;
  ELSIF _owner IS NOT NULL THEN
    SELECT v.* INTO t FROM leasefs.ticket v WHERE v.path = _path AND v.held AND v.claimed AND v.mount = _mount AND v.owner = _owner AND
      EXISTS (SELECT FROM unnest(v.joined) AS k WHERE k.id = _id) LIMIT 1;
    IF FOUND AND NOT leasefs.undo(t, _id) THEN result := 'stays'; END IF;
  END IF;
  PERFORM leasefs.grant(_path);
  RETURN result;
END$$;

-- Releases a part of the bytes of a lock owner.
CREATE OR REPLACE FUNCTION leasefs.release_range(_path bytea, _mount text, _owner bigint, _first bigint, _last bigint, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
  bytes int8multirange := leasefs.bytes(_first, _last);
  j leasefs.joined;
  list leasefs.joined[];
BEGIN
  PERFORM leasefs.take(_path);
  PERFORM leasefs.check_epoch(_stamp);
  PERFORM leasefs.expire(_path);
  FOR t IN SELECT v.* FROM leasefs.ticket v
           WHERE v.path = _path AND v.held AND v.claimed AND v.mount = _mount AND v.owner = _owner LOOP
    t.x := leasefs.exclusive(t) - bytes;
    t.s := leasefs.shared(t) - bytes;
    IF isempty(t.x) AND isempty(t.s) THEN
      PERFORM leasefs.drop(t);
    ELSE
      list := '{}';
      FOREACH j IN ARRAY COALESCE(t.joined, '{}') LOOP
        j.bytes := j.bytes - bytes;
        j.x := j.x - bytes;
        j.s := j.s - bytes;
        list := list || j;
      END LOOP;
      t.joined := list;
      t.mode := CASE WHEN isempty(t.x) THEN 1 ELSE 0 END;
      PERFORM leasefs.save(t);
      UPDATE leasefs.ticket v SET odd = true WHERE v.path = _path AND v.slot = 0;
    END IF;
  END LOOP;
  PERFORM leasefs.grant(_path);
  RETURN 'ok';
END$$;

-- Extends a holder to _left from now; a later end stays, up to _ttl from now.  _x and _s are the bytes that it holds in its mount's view.
-- → ok; stale: it does not hold; busy: it holds in another mode, or not all of the bytes
CREATE OR REPLACE FUNCTION leasefs.renew(_path bytea, _id text, _mode integer, _ttl bigint, _left bigint, _x int8multirange,
  _s int8multirange, _stamp text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
BEGIN
  PERFORM leasefs.take(_path);
  PERFORM leasefs.check_epoch(_stamp);
  t := leasefs.find(_path, _id);
  IF t.held AND t.deadline > leasefs.ms() AND t.mount <> 'delay' THEN
    IF t.owner IS NULL AND t.mode <> _mode OR
       _x IS NOT NULL AND NOT (leasefs.exclusive(t) @> _x AND leasefs.exclusive(t) + leasefs.shared(t) @> _s) THEN
      RETURN 'busy';
    END IF;
    UPDATE leasefs.ticket v SET ttl = _ttl, deadline = GREATEST(leasefs.ms() + _left, LEAST(v.deadline, leasefs.ms() + _ttl))
    WHERE v.path = _path AND v.slot = t.slot;
    RETURN 'ok';
  END IF;
  PERFORM leasefs.expire(_path);
  PERFORM leasefs.grant(_path);
  RETURN 'stale';
END$$;

-- Renews many.  It leaves out locks that another transaction is changing, so it never waits, and tickets that do not hold,
-- or hold in another mode: call leasefs.renew for those.  → the ids of those that were renewed
CREATE OR REPLACE FUNCTION leasefs.renew_many(_paths bytea[], _ids text[], _modes integer[], _ttls bigint[], _stamp text) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  renewed text[] := '{}';
BEGIN
  IF leasefs.check_epoch(_stamp) THEN RETURN renewed; END IF;
  FOR i IN 1..cardinality(_paths) LOOP
    IF leasefs.try_take(_paths[i]) THEN
      UPDATE leasefs.ticket v SET ttl = _ttls[i], deadline = leasefs.ms() + _ttls[i]
      WHERE v.path = _paths[i] AND v.slot IN (0, leasefs.slot_of(_ids[i])) AND v.id = _ids[i] AND v.held AND
        v.mode = _modes[i] AND v.x IS NULL AND v.deadline > leasefs.ms() AND v.mount <> 'delay';
      IF FOUND THEN renewed := renewed || _ids[i]; END IF;
    END IF;
  END LOOP;
  RETURN renewed;
END$$;

-- During a grace period a mount restores each ticket that it holds, whether or not the server has it; afterwards this is
-- the same as renew.  If two restored tickets conflict, the later grant holds; a ticket that was not restored ends.
-- → as renew, or restored: the server did not have it
CREATE OR REPLACE FUNCTION leasefs.restore(_path bytea, _parent bytea, _leaf bytea, _sequence boolean, _id text, _mount text, _identity text,
  _kind integer, _mode integer, _ttl bigint, _left bigint, _handle bigint, _owner bigint, _x int8multirange, _s int8multirange,
  _number bigint, _age bigint, _meta bytea, _content bytea, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
  u leasefs.ticket;
  why text;
  there boolean;
  now bigint := leasefs.ms();
BEGIN
  PERFORM leasefs.take(_path);
  IF NOT leasefs.check_epoch(_stamp) THEN
    RETURN leasefs.renew(_path, _id, _mode, _ttl, _left, _x, _s, _stamp);
  END IF;
  IF NOT EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.slot = 0) THEN
    why := leasefs.open(_path, CASE WHEN _sequence THEN leasefs.directory_of(_path) ELSE _parent END, _leaf);
    IF why = 'missing' THEN -- the mount restores the directory, too: this transaction begins again
      RAISE EXCEPTION 'leasefs: the directory is not there yet' USING ERRCODE = 'serialization_failure';
    ELSIF why IS NOT NULL THEN
      RETURN 'stale';
    END IF;
  END IF;
  IF (leasefs.shedlock(_path)).id IS NOT NULL THEN RETURN 'stale'; END IF;
  t := leasefs.find(_path, _id);
  there := t.id IS NOT NULL;
  IF there THEN PERFORM leasefs.drop(t); END IF;
  t := NULL;
  t.path := _path;
  t.id := _id;
  t.number := _number;
  t.kind := _kind;
  t.mode := _mode;
  t.mount := _mount;
  t.identity := _identity;
  t.handle := _handle;
  t.owner := _owner;
  t.held := true;
  t.claimed := true;
  t.again := false;
  t.ttl := _ttl;
  t.acquired := now - _age;
  t.deadline := now + _left;
  t.meta := _meta;
  t.content := _content;
  IF _owner IS NOT NULL THEN
    t.x := COALESCE(_x, leasefs.exclusive(t));
    t.s := COALESCE(_s, leasefs.shared(t));
  END IF;
  IF _sequence THEN t.name := _leaf; END IF;
  FOR u IN SELECT v.* FROM leasefs.ticket v WHERE v.path = _path AND v.held ORDER BY v.number DESC LOOP
    CONTINUE WHEN CASE WHEN _sequence THEN u.name IS DISTINCT FROM t.name ELSE NOT leasefs.conflicts(u, t) END;
    IF u.number > _number AND EXISTS (SELECT FROM leasefs.restored r WHERE r.id = u.id) THEN RETURN 'stale'; END IF;
    IF u.number < _number THEN PERFORM leasefs.tell(u.mount, 'e', u.id, ' lost'); END IF;
    PERFORM leasefs.drop(u);
  END LOOP;
  UPDATE leasefs.ticket v SET last = GREATEST(v.last, _number), top = GREATEST(v.top, _number), odd = v.odd OR _owner IS NOT NULL OR
    _handle IS NOT NULL WHERE v.path = _path AND v.slot = 0;
  PERFORM leasefs.put(t);
  INSERT INTO leasefs.restored VALUES (_id) ON CONFLICT DO NOTHING;
  IF _sequence THEN
    UPDATE leasefs.directory d SET sequence = GREATEST(d.sequence, encode(substr(_leaf, length(_leaf) - 9), 'escape')::bigint + 1)
    WHERE d.path = leasefs.directory_of(_path);
  END IF;
  RETURN CASE WHEN there THEN 'ok' ELSE 'restored' END;
END$$;

-- The heartbeat of waiting tickets of one lock.  → those that no longer wait, with rank -1; and the first waiter of the
-- lock, if it is one of these
CREATE OR REPLACE FUNCTION leasefs.beat(_path bytea, _ids text[], _livenesses bigint[], _stamp text) RETURNS SETOF leasefs.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a leasefs.answer;
  t leasefs.ticket;
BEGIN
  PERFORM leasefs.take(_path);
  PERFORM leasefs.check_epoch(_stamp);
  PERFORM leasefs.expire(_path);
  FOR i IN 1..cardinality(_ids) LOOP
    UPDATE leasefs.ticket v SET deadline = leasefs.ms() + _livenesses[i]
    WHERE v.path = _path AND v.slot = leasefs.slot_of(_ids[i]) AND v.id = _ids[i] AND NOT v.held;
  END LOOP;
  PERFORM leasefs.grant(_path);
  FOR i IN 1..cardinality(_ids) LOOP
    t := leasefs.find(_path, _ids[i]);
    IF t.id IS NULL OR t.held THEN
      a := NULL;
      a.id := _ids[i];
      a.rank := -1;
      a.wait := -1;
      RETURN NEXT a;
    ELSE
      a := leasefs.queued(t);
      IF a.rank = 0 THEN RETURN NEXT a; END IF;
    END IF;
  END LOOP;
END$$;

-- Converts a ticket to another claim in one step; meta and content if not NULL.  → ok, busy, stale or grace
CREATE OR REPLACE FUNCTION leasefs.convert(_path bytea, _id text, _kind integer, _mode integer, _ttl bigint, _liveness bigint,
  _handle bigint, _owner bigint, _first bigint, _last bigint, _meta bytea, _content bytea, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
  was leasefs.ticket;
  q record;
  excluded boolean := false;
  closed boolean;
BEGIN
  PERFORM leasefs.take(_path);
  closed := leasefs.check_epoch(_stamp);
  PERFORM leasefs.expire(_path);
  t := leasefs.find(_path, _id);
  IF t.id IS NULL OR t.mount = 'delay' THEN RETURN 'stale'; END IF;
  was := t;
  t.kind := _kind;
  t.mode := _mode;
  t.ttl := _ttl;
  t.handle := _handle;
  t.owner := _owner;
  t.x := NULL;
  t.s := NULL;
  t.joined := NULL;
  IF _owner IS NOT NULL THEN
    t.x := CASE WHEN _mode = 0 THEN leasefs.bytes(_first, _last) ELSE '{}' END;
    t.s := CASE WHEN _mode = 0 THEN '{}' ELSE leasefs.bytes(_first, _last) END;
  END IF;
  IF closed AND t.held AND _mode = 0 AND (was.mode <> 0 OR leasefs.is_partial(was)) THEN RETURN 'grace'; END IF;
  IF t.held AND leasefs.is_queue(_path) THEN
    -- An exclusive ticket may hold beside `width` - 1 others, but not beside shared holders.
    IF _mode = 0 AND was.mode <> 0 THEN
      SELECT d.width, count(u.id) AS holders, count(u.id) FILTER (WHERE u.mode = 1 AND u.id <> _id) AS sharing INTO q
      FROM leasefs.directory d LEFT JOIN leasefs.ticket u ON u.path = _path AND u.held
      WHERE d.path = leasefs.directory_of(_path) GROUP BY d.width;
      excluded := q.holders > 1 AND (q.holders > q.width OR q.sharing > 0);
    END IF;
  ELSIF t.held THEN
    excluded := EXISTS (SELECT FROM leasefs.ticket u WHERE u.path = _path AND u.held AND u.id <> _id AND leasefs.conflicts(u, t));
  END IF;
  IF excluded THEN RETURN 'busy'; END IF;
  IF _meta IS NOT NULL THEN t.meta := _meta; END IF;
  IF _content IS NOT NULL THEN t.content := _content; END IF;
  t.deadline := leasefs.ms() + CASE WHEN t.held THEN _ttl ELSE _liveness END;
  PERFORM leasefs.save(t);
  IF leasefs.is_partial(t) OR EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.id <> _id AND v.mount = t.mount AND
       (v.handle = _handle OR v.owner = _owner)) THEN
    UPDATE leasefs.ticket v SET odd = true WHERE v.path = _path AND v.slot = 0;
  END IF;
  PERFORM leasefs.grant(_path);
  RETURN 'ok';
END$$;

-- Replaces meta or content if not NULL.  → ok or stale
CREATE OR REPLACE FUNCTION leasefs.set(_path bytea, _id text, _meta bytea, _content bytea, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM leasefs.take(_path);
  PERFORM leasefs.check_epoch(_stamp);
  UPDATE leasefs.ticket v SET meta = COALESCE(_meta, v.meta), content = COALESCE(_content, v.content)
  WHERE v.path = _path AND v.slot IN (0, leasefs.slot_of(_id)) AND v.id = _id AND v.deadline > leasefs.ms();
  RETURN CASE WHEN FOUND THEN 'ok' ELSE 'stale' END;
END$$;

-- Moves a holder to another name, which must be free, or held only by the ticket that it replaces.  Waiters for that name
-- go on waiting.
CREATE OR REPLACE FUNCTION leasefs.rename(_path bytea, _id text, _to bytea, _parent bytea, _leaf bytea, _replaced text, _stamp text,
  OUT result text, OUT number bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
  u leasefs.ticket;
  h leasefs.ticket;
  first leasefs.ticket;
  over boolean := false;
  past bigint;
  closed boolean;
BEGIN
  PERFORM leasefs.take_two(_path, _to);
  closed := leasefs.check_epoch(_stamp);
  PERFORM leasefs.expire(_path);
  t := leasefs.find(_path, _id);
  IF _path = _to THEN
    result := CASE WHEN t.held THEN 'ok' ELSE 'stale' END;
    number := t.number;
    RETURN;
  END IF;
  IF t.id IS NULL THEN
    u := leasefs.find(_to, _id); -- a repetition
    result := CASE WHEN u.id IS NULL THEN 'stale' ELSE 'ok' END;
    number := u.number;
    RETURN;
  END IF;
  IF NOT t.held THEN
    result := 'stale';
    RETURN;
  END IF;
  IF leasefs.is_numbered(_leaf) AND EXISTS (
       SELECT FROM leasefs.ticket v WHERE v.path = _parent || '/'::bytea AND v.name = _leaf AND v.deadline > leasefs.ms()) THEN
    result := 'busy';
    RETURN;
  END IF;
  IF (leasefs.shedlock(_to)).id IS NOT NULL THEN
    result := 'busy';
    RETURN;
  END IF;
  SELECT v.last INTO past FROM leasefs.ticket v WHERE v.path = _path AND v.slot = 0;
  SELECT v.* INTO h FROM leasefs.ticket v WHERE v.path = _to AND v.slot = 0;
  IF NOT FOUND THEN
    result := leasefs.open(_to, _parent, _leaf);
    IF result IS NULL AND closed THEN result := 'grace'; END IF;
    IF result IS NOT NULL THEN RETURN; END IF;
  ELSE
    PERFORM leasefs.expire(_to);
    PERFORM leasefs.grant(_to);
    IF _replaced IS NOT NULL THEN
      u := leasefs.find(_to, _replaced);
      over := u.held AND (SELECT count(*) FROM leasefs.ticket v WHERE v.path = _to AND v.held) = 1;
    END IF;
    SELECT v.* INTO h FROM leasefs.ticket v WHERE v.path = _to AND v.slot = 0;
    IF NOT COALESCE(over, false) AND closed AND h.refused <= leasefs.ms() AND
       NOT EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _to AND v.id IS NOT NULL) THEN
      result := 'grace';
      RETURN;
    END IF;
    IF NOT COALESCE(over, false) AND
       (h.refused > leasefs.ms() OR EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _to AND v.id IS NOT NULL)) THEN
      result := 'busy';
      RETURN;
    END IF;
    IF over THEN PERFORM leasefs.drop(u); END IF;
  END IF;
  UPDATE leasefs.ticket v SET last = GREATEST(v.last, past) WHERE v.path = _to AND v.slot = 0;
  PERFORM leasefs.drop(t);
  t.path := _to;
  t.number := leasefs.next_number(_to);
  PERFORM leasefs.put(t);
  UPDATE leasefs.ticket v SET top = t.number, odd = v.odd OR leasefs.is_partial(t) WHERE v.path = _to AND v.slot = 0;
  SELECT v.* INTO first FROM leasefs.ticket v WHERE v.path = _to AND v.id IS NOT NULL AND NOT v.held ORDER BY v.place LIMIT 1;
  IF FOUND THEN -- a waiter with a lower number, whose mount expects another deadline
    PERFORM leasefs.tell(t.mount, 'w', t.id), leasefs.tell(first.mount, 'a', first.id);
  END IF;
  PERFORM leasefs.grant(_path);
  result := 'ok';
  number := t.number;
END$$;

-- --- revoking ---

-- The holders of a name: all, or the one with the given token.  → ok, stale, missing or directory
CREATE OR REPLACE FUNCTION leasefs.holders(_path bytea, _parent bytea, _leaf bytea, _number bigint, OUT result text, OUT ids text[],
  OUT path bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  path := _path;
  IF EXISTS (SELECT FROM leasefs.directory d WHERE d.path = _path) THEN
    result := 'directory';
    RETURN;
  END IF;
  IF leasefs.is_numbered(_leaf) AND EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _parent || '/'::bytea AND v.name = _leaf) THEN
    path := _parent || '/'::bytea;
    SELECT array_agg(v.id) INTO ids FROM leasefs.ticket v WHERE v.path = holders.path AND v.name = _leaf AND v.deadline > leasefs.ms();
  ELSE
    SELECT array_agg(v.id) INTO ids FROM leasefs.ticket v WHERE v.path = _path AND v.held AND v.deadline > leasefs.ms();
    ids := COALESCE(ids, ARRAY[(leasefs.shedlock(_path)).id]);
    IF ids[1] IS NULL THEN ids := NULL; END IF;
  END IF;
  IF ids IS NULL THEN
    result := 'missing';
  ELSIF _number IS NOT NULL THEN
    SELECT array_agg(v.id) INTO ids FROM leasefs.ticket v WHERE v.path = holders.path AND v.id = ANY (ids) AND v.number = _number;
    result := CASE WHEN ids IS NULL THEN 'stale' ELSE 'ok' END;
  ELSE
    result := 'ok';
  END IF;
END$$;

-- Ends these tickets, as broken or as released by the token.  Tickets that no longer exist count as ended, so this may be
-- repeated.  _word and _text: a condition on the meta of each (see struct backend_match).  A holder whose meta has a guard
-- leaves a ticket without a mount and with the same number, until the guard's time or its term is over; guards end only if
-- there is nothing else.  → ok, with the number of other mounts that will confirm; busy: not all match
CREATE OR REPLACE FUNCTION leasefs.revoke(_path bytea, _ids text[], _why text, _mount text, _request text, _word integer, _text text,
  _keeps_guards boolean, _stamp text, OUT result text, OUT others integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
  guards integer := 0;
  there integer := 0;
  millis bigint;
  told text[] := '{}';
  m text;
BEGIN
  others := 0;
  PERFORM leasefs.take(_path);
  PERFORM leasefs.check_epoch(_stamp);
  PERFORM leasefs.expire(_path);
  IF 'shedlock' = ANY (_ids) AND _word IS NULL THEN PERFORM leasefs.shedlock_end(_path); END IF;
  IF (leasefs.shedlock(_path)).id = ANY (_ids) THEN
    result := 'busy';
    RETURN;
  END IF;
  FOR t IN SELECT v.* FROM leasefs.ticket v WHERE v.path = _path AND v.id = ANY (_ids) AND v.mount <> 'delay' LOOP
    there := there + 1;
    IF t.mount = 'guard' THEN
      guards := guards + 1;
    ELSIF _word IS NOT NULL AND
          (string_to_array(convert_from(COALESCE(t.meta, ''), 'LATIN1'), ' '))[_word] IS DISTINCT FROM _text THEN
      result := 'busy';
      RETURN;
    END IF;
  END LOOP;
  IF there > 0 AND guards = there AND _keeps_guards THEN
    result := 'busy';
    RETURN;
  END IF;
  FOR t IN SELECT v.* FROM leasefs.ticket v WHERE v.path = _path AND v.id = ANY (_ids) AND v.mount <> 'delay' LOOP
    CONTINUE WHEN t.mount = 'guard' AND guards < there;
    IF t.mount NOT IN ('guard', 'sql', _mount) AND NOT t.mount = ANY (told) THEN told := told || t.mount; END IF;
    millis := CASE WHEN t.mount = 'guard' OR t.kind = 0 OR NOT t.held THEN 0 ELSE LEAST(60000, COALESCE(
      substring((string_to_array(convert_from(COALESCE(t.meta, ''), 'LATIN1'), ' '))[8] FROM '^[0-9]{1,15}$')::bigint, 0) / 4) END;
    IF millis > 0 THEN
      PERFORM leasefs.tell(t.mount, 'e', t.id, ' ' || _why);
      t.delay := CASE WHEN _why = 'released' THEN 0 ELSE leasefs.delay_of(t) END;
      PERFORM leasefs.drop(t);
      t.id := 'g' || substr(t.id, 2);
      t.mount := 'guard';
      t.identity := NULL;
      t.handle := NULL;
      t.owner := NULL;
      t.joined := NULL;
      t.watched := NULL;
      t.deadline := LEAST(t.deadline, leasefs.ms() + millis);
      PERFORM leasefs.put(t);
    ELSIF _why = 'released' AND t.mount <> 'guard' THEN
      PERFORM leasefs.tell(t.mount, 'e', t.id, ' released');
      PERFORM leasefs.drop(t);
    ELSE
      PERFORM leasefs.lose(t, 'broken', leasefs.ms());
    END IF;
  END LOOP;
  SELECT v.* INTO t FROM leasefs.ticket v WHERE v.path = _path AND v.id IS NOT NULL AND NOT v.held ORDER BY v.place LIMIT 1;
  IF FOUND THEN PERFORM leasefs.tell(t.mount, 'a', t.id); END IF; -- its mount expects a later time
  PERFORM leasefs.grant(_path);
  FOREACH m IN ARRAY told LOOP
    IF EXISTS (SELECT FROM leasefs.mount k WHERE k.channel = m AND k.deadline > leasefs.ms()) THEN
      others := others + 1;
      PERFORM leasefs.tell(m, 's', _mount, ' ' || _request);
    END IF;
  END LOOP;
  UPDATE leasefs.ticket v SET revoked = _mount || ' ' || _request WHERE v.path = _path AND v.slot = 0;
  result := 'ok';
END$$;

-- The same for the holder with that fencing token.  → also stale or missing; _ids: the tickets that ended
CREATE OR REPLACE FUNCTION leasefs.revoke_token(_path bytea, _parent bytea, _leaf bytea, _number bigint, _mount text, _request text,
  _word integer, _text text, _keeps_guards boolean, _stamp text, OUT result text, OUT others integer, OUT ids text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  h record;
BEGIN
  SELECT * INTO h FROM leasefs.holders(_path, _parent, _leaf, _number);
  result := h.result;
  ids := h.ids;
  IF result = 'ok' THEN
    SELECT r.result, r.others INTO result, others
    FROM leasefs.revoke(h.path, h.ids, 'released', _mount, _request, _word, _text, _keeps_guards, _stamp) AS r;
  ELSIF EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = h.path AND v.slot = 0 AND v.revoked = _mount || ' ' || _request) THEN
    result := 'ok'; -- a repetition
    others := 0;
  END IF;
END$$;

CREATE OR REPLACE FUNCTION leasefs.heard(_mount text, _request text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$SELECT pg_notify('leasefs_' || _mount, 'h ' || _request)$$;

-- --- reading, without a change ---

CREATE OR REPLACE FUNCTION leasefs.stat(_path bytea, _parent bytea, _leaf bytea, OUT a leasefs.answer, OUT d_ttl bigint, OUT d_width bigint,
  OUT d_delay bigint, OUT d_sequence bigint, OUT d_meta bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  now bigint;
  is_free boolean;
  t leasefs.ticket;
BEGIN
  -- In place of SET search_path, which costs a quarter of the call.  All names above this, types too, are qualified.
  IF pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.<>) 'pg_catalog, pg_temp'::pg_catalog.text THEN
    RAISE EXCEPTION 'leasefs: this function is for mounts, whose search_path is pg_catalog, pg_temp';
  END IF;
  now := leasefs.ms();
  SELECT v.id IS NULL AND v.others = 0 INTO is_free FROM leasefs.ticket v WHERE v.path = _path AND v.slot = 0;
  IF NOT FOUND THEN -- a directory has no such row
    is_free := true;
    SELECT 'directory', d.ttl, d.width, d.delay, d.sequence, d.meta INTO a.result, d_ttl, d_width, d_delay, d_sequence, d_meta
    FROM leasefs.directory d WHERE d.path = _path;
    IF FOUND THEN
      SELECT count(*) INTO a.waiters FROM leasefs.ticket v WHERE v.path = _path || '/'::bytea AND v.id IS NOT NULL AND NOT v.held AND v.deadline > now;
      SELECT a.waiters + count(*) INTO a.waiters FROM leasefs.ticket h JOIN leasefs.ticket v ON v.path = h.path
      WHERE h.parent = _path AND h.slot = 0 AND h.others > 0 AND v.slot <> 0 AND NOT v.held AND v.deadline > now;
      RETURN;
    END IF;
  END IF;
  IF NOT is_free THEN
    SELECT v.* INTO t FROM leasefs.ticket v WHERE v.path = _path AND v.held AND v.deadline > now ORDER BY v.number LIMIT 1;
  END IF;
  IF t.id IS NULL THEN t := leasefs.shedlock(_path); END IF;
  IF t.id IS NOT NULL THEN
    a := leasefs.describe('lock', t);
    a.content := t.content;
    SELECT GREATEST(count(*) FILTER (WHERE v.held), 1), count(*) FILTER (WHERE NOT v.held), 0 INTO a.holders, a.waiters, a.position
    FROM leasefs.ticket v WHERE v.path = _path AND v.id IS NOT NULL AND v.deadline > now;
    RETURN;
  END IF;
  IF leasefs.is_numbered(_leaf) THEN
    SELECT v.* INTO t FROM leasefs.ticket v WHERE v.path = _parent || '/'::bytea AND v.name = _leaf AND v.deadline > now;
    IF FOUND THEN
      a := leasefs.describe('lock', t);
      a.content := t.content;
      a.holders := CASE WHEN t.held THEN 1 ELSE 0 END;
      a.waiters := 0;
      SELECT CASE WHEN t.held THEN count(*) FILTER (WHERE v.held AND v.place < t.place)
                  ELSE count(*) FILTER (WHERE v.held OR v.place < t.place) END INTO a.position
      FROM leasefs.ticket v WHERE v.path = t.path AND v.id IS NOT NULL AND v.id <> t.id;
      RETURN;
    END IF;
  END IF;
  a.result := 'nothing';
  a.waiters := 0;
  IF NOT is_free THEN
    SELECT count(*) INTO a.waiters FROM leasefs.ticket v WHERE v.path = _path AND v.id IS NOT NULL AND NOT v.held AND v.deadline > now;
  END IF;
END$$;

-- Names in a directory after _after, in order.  → missing or notdirectory; or ok, and each name
CREATE OR REPLACE FUNCTION leasefs.list(_path bytea, _after bytea, _max integer, OUT result text, OUT name bytea) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now bigint := leasefs.ms();
BEGIN
  IF NOT EXISTS (SELECT FROM leasefs.directory d WHERE d.path = _path) THEN
    result := CASE WHEN EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.held AND v.deadline > now)
                   THEN 'notdirectory' ELSE 'missing' END;
    RETURN NEXT;
    RETURN;
  END IF;
  result := 'ok';
  RETURN NEXT;
  RETURN QUERY SELECT * FROM (
    (SELECT 'directory', d.leaf FROM leasefs.directory d WHERE d.parent = _path AND d.leaf > _after ORDER BY d.leaf LIMIT _max)
    UNION ALL
    (SELECT 'lock', h.leaf FROM leasefs.ticket h WHERE h.parent = _path AND h.slot = 0 AND h.leaf > _after AND
       (h.held AND h.deadline > now OR h.others > 0 AND EXISTS (
          SELECT FROM leasefs.ticket v WHERE v.path = h.path AND v.held AND v.deadline > now))
     ORDER BY h.leaf LIMIT _max)
    UNION ALL
    (SELECT 'lock', v.name FROM leasefs.ticket v WHERE v.path = _path || '/'::bytea AND v.name > _after AND v.deadline > now
     ORDER BY v.name LIMIT _max)
    UNION ALL
    (SELECT 'lock', leasefs.leaf_of(n) FROM leasefs.shedlock_names() AS n
     WHERE leasefs.is_name(n) AND leasefs.parent_of(n) = _path AND leasefs.leaf_of(n) > _after ORDER BY 2 LIMIT _max)) AS all_of_them
  ORDER BY 2 LIMIT _max;
END$$;

-- The tickets of a directory's queue, by name.
CREATE OR REPLACE FUNCTION leasefs.tickets(_path bytea, _after bytea, _max integer, OUT name bytea, OUT id text, OUT held boolean, OUT age bigint,
  OUT meta bytea) RETURNS SETOF record LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$SELECT v.name, v.id, v.held, leasefs.ms() - v.acquired, v.meta FROM leasefs.ticket v
  WHERE v.path = _path || '/'::bytea AND v.name > _after AND v.deadline > leasefs.ms() ORDER BY v.name LIMIT _max$$;

-- Registers this mount for a notification when a name has no holder any more.  → ms until the holder's deadline; -1: it
-- has none now
CREATE OR REPLACE FUNCTION leasefs.watch(_path bytea, _parent bytea, _leaf bytea, _mount text, _stamp text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p bytea := _path;
  t leasefs.ticket;
BEGIN
  IF leasefs.is_numbered(_leaf) AND EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _parent || '/'::bytea AND v.name = _leaf) THEN
    p := _parent || '/'::bytea;
  END IF;
  PERFORM leasefs.take(p);
  SELECT v.* INTO t FROM leasefs.ticket v WHERE v.path = p AND v.deadline > leasefs.ms() AND
    CASE WHEN p = _path THEN v.held ELSE v.name = _leaf END ORDER BY v.deadline DESC LIMIT 1;
  IF NOT FOUND THEN
    t := leasefs.shedlock(_path);
    RETURN CASE WHEN t.id IS NULL THEN -1 ELSE GREATEST(LEAST(t.deadline - leasefs.ms(), 1000), 0) END;
  END IF;
  IF NOT _mount = ANY (COALESCE(t.watched, '{}')) THEN
    UPDATE leasefs.ticket v SET watched = COALESCE(v.watched, '{}') || _mount WHERE v.path = p AND v.slot = t.slot;
  END IF;
  RETURN t.deadline - leasefs.ms();
END$$;

-- --- directories ---

CREATE OR REPLACE FUNCTION leasefs.mkdir(_path bytea, _parent bytea, _leaf bytea, _ttl bigint, _width bigint, _delay bigint,
  _sequence bigint, _meta bytea, _nonce text, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was text;
BEGIN
  PERFORM leasefs.take(_path);
  PERFORM leasefs.check_epoch(_stamp);
  PERFORM leasefs.enter(_parent);
  IF NOT EXISTS (SELECT FROM leasefs.directory d WHERE d.path = _parent) THEN
    RETURN CASE WHEN EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _parent AND v.held AND v.deadline > leasefs.ms())
                THEN 'notdirectory' ELSE 'missing' END;
  END IF;
  SELECT d.nonce INTO was FROM leasefs.directory d WHERE d.path = _path;
  IF FOUND OR _path = '' THEN RETURN CASE WHEN was = _nonce THEN 'ok' ELSE 'exists' END; END IF;
  PERFORM leasefs.expire(_path);
  IF EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND (v.id IS NOT NULL OR v.refused > leasefs.ms())) OR
     leasefs.is_numbered(_leaf) AND EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _parent || '/'::bytea AND v.name = _leaf) OR
     (leasefs.shedlock(_path)).id IS NOT NULL THEN
    RETURN 'exists';
  END IF;
  PERFORM leasefs.forget(_path);
  INSERT INTO leasefs.directory VALUES (_path, _parent, _leaf, _ttl, _width, _delay, _sequence, _meta, _nonce);
  RETURN 'ok';
END$$;

-- Deletes the row of a free lock; the numbers go on from the sequence leasefs.fence.
CREATE OR REPLACE FUNCTION leasefs.forget(_path bytea) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  l bigint;
BEGIN
  DELETE FROM leasefs.ticket v WHERE v.path = _path AND v.slot = 0 RETURNING v.last INTO l;
  IF l > nextval('leasefs.fence') THEN
    PERFORM pg_advisory_xact_lock(1818322807, 0); -- else the lower of two numbers could be set last
    IF l > nextval('leasefs.fence') THEN
      PERFORM setval('leasefs.fence', l + 1000000); -- more than others take between the two calls
    END IF;
  END IF;
END$$;

CREATE OR REPLACE FUNCTION leasefs.rmdir(_path bytea, _stamp text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p bytea;
BEGIN
  PERFORM pg_advisory_xact_lock(1818322804, hashtext(encode(_path, 'escape'))), leasefs.check_epoch(_stamp);
  IF NOT EXISTS (SELECT FROM leasefs.directory d WHERE d.path = _path) THEN
    RETURN CASE WHEN EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.held AND v.deadline > leasefs.ms())
                THEN 'notdirectory' ELSE 'missing' END;
  END IF;
  IF EXISTS (SELECT FROM leasefs.directory d WHERE d.parent = _path) THEN RETURN 'notempty'; END IF;
  FOR p IN SELECT v.path FROM leasefs.ticket v WHERE v.parent = _path AND v.slot = 0
           UNION ALL SELECT v.path FROM leasefs.ticket v WHERE v.path = _path || '/'::bytea AND v.slot = 0 LOOP
    IF NOT leasefs.try_take(p) OR
       EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = p AND v.id IS NOT NULL AND v.deadline > leasefs.ms()) THEN
      RETURN 'notempty';
    END IF;
    PERFORM leasefs.expire(p);
    IF EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = p AND v.slot <> 0) THEN RETURN 'notempty'; END IF;
    PERFORM leasefs.forget(p);
  END LOOP;
  DELETE FROM leasefs.directory d WHERE d.path = _path;
  RETURN 'ok';
END$$;

CREATE OR REPLACE FUNCTION leasefs.set_directory(_path bytea, _ttl bigint, _width bigint, _delay bigint, _sequence bigint, _meta bytea, _stamp text)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM leasefs.take(_path || '/'::bytea);
  PERFORM leasefs.check_epoch(_stamp);
  UPDATE leasefs.directory d SET ttl = _ttl, width = _width, delay = _delay, sequence = GREATEST(d.sequence, _sequence), meta = _meta
  WHERE d.path = _path;
  IF NOT FOUND THEN
    RETURN CASE WHEN EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = _path AND v.held AND v.deadline > leasefs.ms())
                THEN 'notdirectory' ELSE 'missing' END;
  END IF;
  PERFORM leasefs.expire(_path || '/'::bytea);
  PERFORM leasefs.grant(_path || '/'::bytea);
  RETURN 'ok';
END$$;

-- --- mounts ---

-- Deletes the rows of locks that have been free for a minute, and ends what others left, in a part of the tickets' table that
-- begins with page _page.  → the first page of the next part, and the number of deleted rows
CREATE OR REPLACE FUNCTION leasefs.sweep(_page bigint, OUT page bigint, OUT deleted integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  PAGES CONSTANT bigint := 32;
  t leasefs.ticket;
  old bigint := leasefs.ms() - 60000;
  size bigint := pg_relation_size('leasefs.ticket') / current_setting('block_size')::bigint;
BEGIN
  page := _page;
  deleted := 0;
  IF leasefs.is_closed() THEN RETURN; END IF;
  FOR t IN SELECT v.* FROM leasefs.ticket v
           WHERE v.ctid >= format('(%s,0)', _page)::tid AND v.ctid < format('(%s,0)', _page + PAGES)::tid AND
             v.slot = 0 AND v.freed < old AND (v.id IS NULL OR v.deadline < old) LOOP
    IF leasefs.try_take(t.path) THEN
      PERFORM leasefs.expire(t.path);
      PERFORM leasefs.grant(t.path);
      IF EXISTS (SELECT FROM leasefs.ticket v WHERE v.path = t.path AND v.slot = 0 AND v.id IS NULL AND v.others = 0 AND
           v.refused < leasefs.ms() AND v.freed < old) THEN
        PERFORM leasefs.forget(t.path);
        deleted := deleted + 1;
      END IF;
    END IF;
  END LOOP;
  page := CASE WHEN _page + PAGES >= size THEN 0 ELSE _page + PAGES END;
END$$;

-- The heartbeat of a mount, which counts as alive for _ttl, and a sweep.
-- → the next page, the server's clock, and whether a synchronous standby has all confirmed commits
CREATE OR REPLACE FUNCTION leasefs.greet(_mount text, _identity text, _host text, _ttl bigint, _page bigint,
  OUT page bigint, OUT clock bigint, OUT replicated boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  clock := leasefs.ms();
  INSERT INTO leasefs.mount VALUES (_mount, _identity, _host, clock + _ttl)
  ON CONFLICT (channel) DO UPDATE SET deadline = clock + _ttl;
  DELETE FROM leasefs.mount m WHERE m.deadline < clock - 3600000;
  replicated := current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') IN ('on', 'remote_apply');
  page := (leasefs.sweep(_page)).page;
END$$;

-- The version of a mount that has greeted, and when it was first there.
CREATE OR REPLACE FUNCTION leasefs.note_mount(_mount text, _version text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$UPDATE leasefs.mount m SET version = _version, since = COALESCE(m.since, leasefs.ms()) WHERE m.channel = _mount$$;

-- The mounts that are there, and for how many ms.
CREATE OR REPLACE FUNCTION leasefs.mounts(OUT version text, OUT host text, OUT age bigint) RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$SELECT m.version, m.host, leasefs.ms() - m.since FROM leasefs.mount m WHERE m.deadline > leasefs.ms() ORDER BY m.since$$;

-- The sessions whose transactions keep the advisory lock of a name, for the log.
CREATE OR REPLACE FUNCTION leasefs.blockers(_path bytea, OUT who text, OUT name text) RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$SELECT format('PID %s, role %s, application %s, %s, its transaction began at %s', a.pid, a.usename, quote_literal(a.application_name), a.state, a.xact_start),
    encode(_path, 'escape')
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = 1818322803 AND
    l.objid::bigint = hashtext(encode(_path, 'escape'))::bigint & 4294967295 AND l.pid <> pg_backend_pid() AND
    l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())$$;

-- The leases and handle locks of a mount that starts again, from _after_path on.  From now on their ends are reported on
-- the mount's new channel.  Each gets a new id, so no request of the daemon before finds it.  It keeps handle and lock owner,
-- whose numbers no other mount has.  A waiting one, or one that was not claimed, ends, unless it is a ticket of a queue.
--
-- The call may be repeated, because its answer may be lost: the new ids begin with a hash of the mount, so a repetition
-- finds again what the first one recovered.  A path whose tickets another transaction may be changing is returned with
-- `busy` and without an id: call again with _again.  That call fails with 55P03 if it changes nothing and there are such
-- paths.  Ignore a row with neither.  After _max rows the call begins no further path.
CREATE OR REPLACE FUNCTION leasefs.recover(_identity text, _mount text, _after_path bytea, _again boolean, _max integer,
  OUT path bytea, OUT busy boolean, OUT id text, OUT number bigint, OUT remaining bigint, OUT age bigint, OUT ttl bigint,
  OUT mode smallint, OUT meta bytea, OUT name bytea, OUT held boolean, OUT content bytea, OUT kind smallint,
  OUT segments text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t leasefs.ticket;
  now bigint := leasefs.ms();
  closed boolean := leasefs.is_closed();
  prefix text := lpad(to_hex(hashtext(_mount)), 8, '0');
  rows integer := 0;
  changed integer := 0;
  any_busy boolean := false;
BEGIN
  FOR t IN SELECT v.* FROM leasefs.ticket v WHERE v.identity = _identity AND v.id IS NOT NULL AND v.mount NOT IN ('guard', 'delay') AND
             (v.mount <> _mount OR starts_with(v.id, prefix)) AND v.path > _after_path AND
             v.deadline > now AND (NOT closed OR EXISTS (SELECT FROM leasefs.restored r WHERE r.id = v.id))
           ORDER BY v.path, v.slot LOOP
    EXIT WHEN rows >= _max AND t.path <> path;
    path := t.path;
    id := NULL;
    busy := NOT leasefs.try_take(t.path);
    rows := rows + 1;
    IF busy THEN
      any_busy := true;
      RETURN NEXT;
      CONTINUE;
    END IF;
    -- A request of the daemon before may have changed it before the lock was taken.
    SELECT v.* INTO t FROM leasefs.ticket v WHERE v.path = t.path AND v.slot = t.slot AND v.id = t.id AND v.mount = t.mount;
    IF FOUND AND t.mount <> _mount AND (t.kind = 0 OR (t.kind <> 1 AND t.name IS NULL AND (NOT t.held OR NOT t.claimed))) THEN
      PERFORM leasefs.drop(t), leasefs.grant(t.path);
      changed := changed + 1;
    ELSIF FOUND THEN
      id := t.id;
      IF t.mount <> _mount THEN
        id := prefix || substr(replace(gen_random_uuid()::text, '-', ''), 1, 24);
        UPDATE leasefs.ticket v SET id = recover.id, slot = CASE WHEN v.slot <> 0 THEN leasefs.slot_of(recover.id) ELSE 0 END,
          mount = _mount, joined = NULL
        WHERE v.path = t.path AND v.slot = t.slot AND v.id = t.id;
        IF closed THEN INSERT INTO leasefs.restored VALUES (recover.id); END IF;
        changed := changed + 1;
      END IF;
      number := t.number;
      remaining := t.deadline - now;
      age := now - t.acquired;
      ttl := t.ttl;
      mode := t.mode;
      meta := t.meta;
      name := t.name;
      held := t.held;
      content := t.content;
      kind := t.kind;
      segments := leasefs.segments(t);
    END IF;
    RETURN NEXT;
  END LOOP;
  IF _again AND any_busy AND changed = 0 THEN
    RAISE EXCEPTION 'leasefs: other transactions keep the locks of this mount' USING ERRCODE = 'lock_not_available';
  END IF;
END$$;

-- --- functions for SQL clients ---

CREATE OR REPLACE FUNCTION leasefs.is_name(_name text) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$SELECT _name !~ '(^|/)\.{0,2}(/|$)' AND NOT EXISTS (SELECT FROM pg_catalog.string_to_table(_name, '/') AS c WHERE pg_catalog.octet_length(c) > 255)$$;

-- In an open transaction these would stop every mount that wants the lock.  So they are refused in a transaction that can
-- be recognised: it has written before, or began long before this statement.
CREATE OR REPLACE FUNCTION leasefs.check_call(_name text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF pg_current_xact_id_if_assigned() IS NOT NULL OR statement_timestamp() - transaction_timestamp() > interval '100 ms' THEN
    RAISE EXCEPTION 'leasefs: call this outside a transaction block, so that it is committed at once'
      USING ERRCODE = 'active_sql_transaction';
  END IF;
  IF leasefs.is_name(_name) IS NOT TRUE THEN
    RAISE EXCEPTION 'leasefs: % is no name of a lock: write it as a path below the mount, such as backup or db/backup', quote_nullable(_name)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
END$$;

CREATE OR REPLACE FUNCTION leasefs.leaf_of(_name text) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.convert_to(pg_catalog.regexp_replace(_name, '.*/', ''), 'UTF8')$$;

CREATE OR REPLACE FUNCTION leasefs.parent_of(_name text) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$SELECT pg_catalog.convert_to(pg_catalog.regexp_replace(_name, '/?[^/]*$', ''), 'UTF8')$$;

CREATE OR REPLACE FUNCTION leasefs.terms(_token text, _ttl interval) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  ms bigint := extract(epoch FROM _ttl) * 1000;
BEGIN
  IF _token IS NULL OR _token = '' OR length(_token) > 200 THEN
    RAISE EXCEPTION 'leasefs: the token must be a text of 1 to 200 characters that nobody else uses'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF ms IS NULL OR ms < 100 OR ms > 315360000000 THEN
    RAISE EXCEPTION 'leasefs: the term must be between 100 ms and 10 years' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN ms;
END$$;

-- Takes a lock until the term is over, or it is unlocked.  → its fencing token; NULL: another holds it.  With the token of
-- the present holder the term begins again.
CREATE OR REPLACE FUNCTION leasefs.try_lock(name text, token text, ttl interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
  a leasefs.answer;
  known record;
  ms bigint := leasefs.terms(token, ttl);
BEGIN
  PERFORM leasefs.check_call(name);
  IF leasefs.is_closed() THEN -- without a mount this call ends the grace period when its time is over
    SELECT e.stamp, leasefs.ms() - l.since AS closed_for INTO known FROM leasefs.life l JOIN leasefs.epoch e USING (stamp);
    PERFORM leasefs.enter_epoch('sql', COALESCE(known.stamp, ''), left(md5(random()::text || clock_timestamp()), 16), 0, 0, 0, 3600000,
      COALESCE(known.closed_for, 0), true, false);
  END IF;
  BEGIN
    a := leasefs.acquire(convert_to(name, 'UTF8'), leasefs.parent_of(name), leasefs.leaf_of(name), false, 'sql:' || token, 'sql', NULL,
      1, 0, ms, ms, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
  EXCEPTION WHEN serialization_failure THEN -- ShedLock has just taken it
    RETURN NULL;
  END;
  IF a.result = 'granted' THEN RETURN a.number; END IF;
  IF a.result IN ('busy', 'grace') THEN RETURN NULL; END IF;
  RAISE EXCEPTION 'leasefs: %: %', name, CASE a.result WHEN 'directory' THEN 'is a directory' WHEN 'missing' THEN 'its directory is not there'
    ELSE 'its directory is no directory' END USING ERRCODE = 'invalid_parameter_value';
END$$;

-- → does that token still hold the lock?
CREATE OR REPLACE FUNCTION leasefs.renew_lock(name text, token text, ttl interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
  ms bigint := leasefs.terms(token, ttl);
BEGIN
  PERFORM leasefs.check_call(name);
  RETURN leasefs.renew(convert_to(name, 'UTF8'), 'sql:' || token, 0, ms, ms, NULL, NULL, NULL) = 'ok';
END$$;

-- → did that token hold the lock?
CREATE OR REPLACE FUNCTION leasefs.unlock(name text, token text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
BEGIN
  PERFORM leasefs.check_call(name);
  RETURN leasefs.release(convert_to(name, 'UTF8'), 'sql:' || token, 'sql', NULL, NULL, NULL) = 'gone';
END$$;

-- Roles that could lock may call the functions that an upgrade has added.
DO $$
DECLARE
  roles text := (
    SELECT string_agg(CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', ')
    FROM pg_proc p, aclexplode(p.proacl) a WHERE p.oid = to_regproc('leasefs.acquire') AND a.grantee <> p.proowner);
BEGIN
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA leasefs FROM PUBLIC;
  REVOKE ALL ON ALL TABLES IN SCHEMA leasefs FROM PUBLIC;
  IF roles IS NOT NULL THEN EXECUTE 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasefs TO ' || roles; END IF;
END$$;
