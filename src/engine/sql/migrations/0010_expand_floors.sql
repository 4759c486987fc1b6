-- Where the claims of a queue may begin to read: below it nothing waits. Written only while claims are slow, which happens when somebody holds
-- an old snapshot: what was enqueued since then cannot be removed from executions_due, and each claim would read all of it. A floor that is too
-- high delays until the next one is found, and loses nothing; after a minute it counts no longer.
create unlogged table suture.floors (
    queue           text        primary key,
    urgency         interval    not null,
    at              timestamptz not null,
    took            interval    not null -- how long the search lasted
);
