-- Where a journal begins: 0, or the seq of the snapshot that stands for all before it.
ALTER TABLE runs ADD COLUMN begins INTEGER NOT NULL DEFAULT 0;
