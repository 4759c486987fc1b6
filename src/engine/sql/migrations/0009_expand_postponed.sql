-- Rows that are not due at once (a pause between tries, a time in the future), and only those: whoever looks finds the next of them
-- without reading the backlog. Both columns are written together, whenever a row becomes enqueued.
create index executions_later on suture.workflow_executions (run_at) where status = 'enqueued' and run_at > updated_at;
