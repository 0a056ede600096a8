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
CREATE TABLE indelible_batches (
    no bigint NOT NULL,
    after_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (no, last_seq)
);
ALTER TABLE indelible_batches ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE indelible_snapshots (
    no bigint NOT NULL,
    seq bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (no, seq)
);
ALTER TABLE indelible_snapshots ALTER COLUMN data SET STORAGE EXTERNAL;
