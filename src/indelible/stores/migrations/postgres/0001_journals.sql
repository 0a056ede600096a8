-- Which of these steps have been taken: one row.
CREATE TABLE indelible_meta (
    the_only boolean PRIMARY KEY DEFAULT true CHECK (the_only),
    version integer NOT NULL
);

CREATE SEQUENCE indelible_touches AS bigint;

-- A run or an inbox. Rows are never removed: a deleted one is its own tombstone. `listed` is
-- true for runs, false for inboxes and tombstones. The journal holds the batches after `begins`.
-- Times are epoch seconds on this server's clock; nothing is ordered by them.
--
-- `touched` orders listings, and each append changes it; `era` is the same, coarser. Only `era` is
-- indexed, so that an append changes an index once in 4096, and the row's new version mostly stays
-- in its page, where it is tidied up without a vacuum. A listing sorts one era at a time.
CREATE TABLE indelible_runs (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    head bigint NOT NULL DEFAULT 0,
    begins bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0,
    listed boolean NOT NULL,
    deleted boolean NOT NULL DEFAULT false,
    touched bigint NOT NULL DEFAULT 0,
    era bigint NOT NULL GENERATED ALWAYS AS (touched >> 12) STORED,
    stored_bytes bigint NOT NULL DEFAULT 0,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    lease_until double precision NOT NULL DEFAULT 0,
    ttl_s double precision NOT NULL DEFAULT 0,
    wake_at double precision,
    owner text COLLATE "C" NOT NULL DEFAULT '',
    status text COLLATE "C" NOT NULL DEFAULT '',
    agent text COLLATE "C",
    about bytea
) WITH (fillfactor = 70);
CREATE INDEX indelible_runs_by_era ON indelible_runs (era) WHERE listed;
CREATE INDEX indelible_runs_by_status ON indelible_runs (status, era) WHERE listed;

-- `no` is indelible_runs.no. What is stored is compressed already: PostgreSQL must not try again.
-- Up to half a page stays in the table itself, since moving it out costs four more rows to write.
CREATE TABLE indelible_batches (
    no bigint NOT NULL,
    after_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (no, last_seq)
) WITH (toast_tuple_target = 4080);
ALTER TABLE indelible_batches ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE indelible_snapshots (
    no bigint NOT NULL,
    seq bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (no, seq)
);
ALTER TABLE indelible_snapshots ALTER COLUMN data SET STORAGE EXTERNAL;

-- Appending. As functions, because each session keeps the plans of their statements, which would else
-- cost more than the work; and a pooler need not know of it. `at` is the time where a test gives it.
--
-- These settings are for the transaction alone. With `synced` it commits synchronously whatever the
-- server's setting is, and a stronger one is left as it is.
CREATE FUNCTION indelible_settle(synced boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    IF NOT synced THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- One batch; true if it landed.
CREATE FUNCTION indelible_append(
    synced boolean, at double precision, its_run text, its_epoch bigint, its_after bigint, its_last bigint,
    its_data bytea, labelled boolean, its_agent text, its_status text, its_wake_at double precision, its_about bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    its_now double precision := coalesce(at, extract(epoch FROM clock_timestamp()));
    its_no bigint;
BEGIN
    PERFORM indelible_settle(synced);
    IF labelled THEN
        UPDATE indelible_runs SET head = its_last, stored_bytes = stored_bytes + octet_length(its_data),
            touched = nextval('indelible_touches'), updated_at = its_now, lease_until = its_now + ttl_s,
            agent = its_agent, status = its_status, wake_at = its_wake_at, about = its_about
        WHERE run_id = its_run AND head = its_after AND epoch = its_epoch AND NOT deleted RETURNING no INTO its_no;
    ELSE
        UPDATE indelible_runs SET head = its_last, stored_bytes = stored_bytes + octet_length(its_data),
            touched = nextval('indelible_touches'), updated_at = its_now, lease_until = its_now + ttl_s
        WHERE run_id = its_run AND head = its_after AND epoch = its_epoch AND NOT deleted RETURNING no INTO its_no;
    END IF;
    IF its_no IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO indelible_batches (no, after_seq, last_seq, data) VALUES (its_no, its_after, its_last, its_data);
    RETURN true;
END $$;

-- A batch for each of several runs, which come sorted, `ranks` being their places in the call; returns where in the
-- arrays those stand that landed. The one plan that is left looks the runs up one after the other, so that two
-- sessions lock them in the same order; it is also the right one however large the table has become.
CREATE FUNCTION indelible_append_many(
    synced boolean, at double precision, runs text[], ranks integer[], epochs bigint[], afters bigint[], lasts bigint[],
    datas bytea[], labels boolean[], agents text[], statuses text[], wake_ats double precision[], abouts bytea[]
) RETURNS bigint[] LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
    its_now double precision := coalesce(at, extract(epoch FROM clock_timestamp()));
    touches bigint[] := ARRAY(SELECT nextval('indelible_touches') FROM generate_series(1, cardinality(runs)));
    landed bigint[];
BEGIN
    PERFORM indelible_settle(synced);
    WITH moved AS (
        UPDATE indelible_runs AS run SET head = its_last, stored_bytes = stored_bytes + octet_length(datas[place]),
            touched = touches[its_rank], updated_at = its_now, lease_until = its_now + ttl_s,
            agent = CASE WHEN labelled THEN agents[place] ELSE run.agent END,
            status = CASE WHEN labelled THEN statuses[place] ELSE run.status END,
            wake_at = CASE WHEN labelled THEN wake_ats[place] ELSE run.wake_at END,
            about = CASE WHEN labelled THEN abouts[place] ELSE run.about END
        FROM unnest(runs, ranks, epochs, afters, lasts, labels) WITH ORDINALITY
            AS one (its_run, its_rank, its_epoch, its_after, its_last, labelled, place)
        WHERE run.run_id = its_run AND run.head = its_after AND run.epoch = its_epoch AND NOT run.deleted
        RETURNING run.no, place, its_after, its_last),
    kept AS (
        INSERT INTO indelible_batches (no, after_seq, last_seq, data)
        SELECT no, its_after, its_last, datas[place] FROM moved)
    SELECT array_agg(place) INTO landed FROM moved;
    RETURN landed;
END $$;
