-- A run or an inbox. Rows are never removed: a deleted one is its own tombstone.
-- `touched` orders listings: batches.at of the newest batch when the row was last written;
-- NULL for inboxes and tombstones, which no listing shows. `status` is '' and `agent` NULL
-- before the first label. Times are epoch seconds on this database's clock.
CREATE TABLE runs (
    no INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    head INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    touched INTEGER,
    stored_bytes INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    lease_until REAL NOT NULL DEFAULT 0,
    ttl_s REAL NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT '',
    agent TEXT,
    wake_at REAL,
    about BLOB
);
-- The one index that every append must change. A listing of all runs merges those of every
-- status, so that a second index, and with it one more page to sync, is saved.
CREATE INDEX runs_by_status ON runs (status, touched) WHERE touched IS NOT NULL;

-- `no` is runs.no. Rows lie in the order in which they were written, so that a group of
-- appends to many runs fills whole pages; the index finds one run's.
CREATE TABLE batches (
    at INTEGER PRIMARY KEY,
    no INTEGER NOT NULL,
    after_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX batches_by_run ON batches (no, last_seq);

CREATE TABLE snapshots (
    at INTEGER PRIMARY KEY,
    no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX snapshots_by_run ON snapshots (no, seq);
