-- Concurrency keys of what is not handed in by a client: of a child, of each item of a map, of what a schedule enqueues.

alter table suture.fan_out_inputs add column concurrency_keys text[];
alter table suture.schedules add column concurrency_key text check (concurrency_key <> '');
